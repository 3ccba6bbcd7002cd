"""Pictures in files: the answer, the reason to abstain, and the cost, in Python and on the command line."""

import csv
import io
import json
import math
import os
import re
from pathlib import Path

import polars
import pytest
import torch
from PIL import Image
from testbed.brightness import stripes
from testbed.refusals import refused

import drq
from drq.commands import cli, terminal
from drq.serving import predict
from drq.serving.predict import Prediction, Predictor, Refusal, listed

MODEL = "python:testbed.brightness:stripes"


@pytest.fixture
def picture(tmp_path):
    def write(level, name="picture.png"):
        Image.new("RGB", (20, 16), (level,) * 3).save(tmp_path / name)
        return str(tmp_path / name)

    return write


@pytest.fixture
def command(capfd):
    def run(*arguments):
        status = cli.main(["predict", *arguments])
        return status, *capfd.readouterr()

    return run


def test_the_answer_is_that_of_drq(picture):
    found = Predictor(MODEL)(picture(100))
    x = torch.full((1, 3, 8, 8), 100 / 255)
    decision = drq.DRQ(stripes(), "linf", 0.1).decide(x)
    assert found.answer == ("dark", "grey", "bright")[decision.label]
    assert found.standard == "grey"
    assert found.margin == pytest.approx(float(decision.margin))
    assert found.robustness == pytest.approx(float(decision.robustness[0, decision.label]))
    assert found.radius == pytest.approx(0.1)
    assert (found.norm, found.passes) == ("linf", int(decision.passes))
    confidence = {each.name: each.confidence for each in found.classes}
    assert list(confidence.values()) != sorted(confidence.values())
    assert sum(confidence.values()) == pytest.approx(1)
    assert confidence["grey"] == pytest.approx(float(stripes()(x).softmax(1)[0, 1]))


def test_classes_come_in_the_order_of_their_robustness(picture):
    """The answer first; what was pruned lies at or below the second."""
    found = Predictor("cifar10-small")(picture(120))
    values = [each.robustness for each in found.classes]
    assert values == sorted(values, reverse=True)
    assert found.classes[0].name == found.answer
    assert found.classes[0].exact
    assert found.classes[1].exact
    assert found.margin == pytest.approx(values[0] - values[1], abs=1e-6)


@pytest.mark.parametrize(
    ("options", "norm", "radius"),
    [
        ({}, "linf", 0.1),
        ({"radius": 0.2}, "linf", 0.2),
        ({"norm": "linf"}, "linf", 0.1),
        ({"norm": "l2", "radius": 0.5}, "l2", 0.5),
        ({"norm": "l2"}, "l2", None),
    ],
)
def test_the_region_is_that_of_the_training_unless_told_otherwise(options, norm, radius, picture):
    found = Predictor(MODEL, **options)(picture(100))
    assert found.norm == norm
    if radius is None:  # calibrated: the nearest point of another class with this confidence, in l2
        assert found.radius > 0
    else:
        assert found.radius == pytest.approx(radius)


def test_where_no_region_is_found_the_model_answers(picture, command):
    """No image at all is of another class."""
    found = Predictor("python:testbed.brightness:certain")(picture(128))
    assert (found.radius, found.answer, found.standard, found.margin) == (None, "yes", "yes", 0)
    _, output, _ = command(picture(128), "--model", "python:testbed.brightness:certain")
    assert "No region to explore was found, so the model alone answers: yes." in output


def test_one_bad_picture_stops_no_other(picture, command, tmp_path):
    (tmp_path / "broken.jpg").write_bytes(b"not a picture")
    status, output, errors = command(str(tmp_path / "broken.jpg"), picture(100), "--model", MODEL)
    assert status == 2
    assert "DRQ: grey, as the model alone." in output
    _, output, _ = command(str(tmp_path / "broken.jpg"), picture(100), "--model", MODEL, "--json")
    assert [*json.loads(output)[0]] == ["picture", "error"]
    assert re.fullmatch(r"drq: path must hold a picture [^\n]*\n", errors)


def test_what_is_printed(picture, command):
    status, output, errors = command(picture(100), "--model", MODEL)
    assert (status, errors) == (0, "")
    assert "seen by stripes" in output
    assert "Class (3 of 3)" in output
    assert re.search(r"grey +0\.\d{3} +0\.\d{3}", output)
    assert "is no probability" in output
    assert re.search(r"Cost: \d+ passes of the model, \d+\.\d s\. Explored: linf within 0\.1\.", output)


def test_classes_that_were_not_searched_are_named_so(picture, command):
    arguments = [picture(120), "--classes", "2"]
    _, output, _ = command(*arguments)
    assert output.count("not searched") == 3  # of the five that are shown
    (found,) = json.loads(command(*arguments, "--json")[1])
    assert [each["robustness"] is None for each in found["classes"]] == [False] * 2 + [True] * 8


def test_names_are_no_markup_and_no_commands(picture, command):
    name = "p[bold]x\x1b[31m.png"
    status, output, _ = command(picture(100, name), "--model", MODEL)
    assert status == 0
    assert "p[bold]x?[31m.png" in output


def test_abstention(picture, command):
    _, output, _ = command(picture(100), "--model", MODEL, "--abstain-below", "0.999")
    assert "No answer: the margin" in output
    assert "The best guess is grey." in output
    status, output, _ = command(picture(100), "--model", MODEL, "--abstain-below", "0.999", "--json")
    assert status == 0
    (found,) = json.loads(output)
    assert found["answer"] is None
    assert found["standard"] == "grey"
    assert math.isfinite(found["margin"])


def test_json_holds_all_and_nothing_else(picture, command):
    first, second = picture(100, "a.png"), picture(250, "b.png")
    status, output, errors = command(first, second, "--model", MODEL, "--json")
    assert (status, errors) == (0, "")
    found = json.loads(output)
    assert [(each["picture"], each["standard"]) for each in found] == [(first, "grey"), (second, "bright")]
    assert [each["abstained"] for each in found] == [False, False]
    assert set(found[0]["classes"][0]) == {"name", "confidence", "robustness", "exact"}


MISTAKES = {
    ("--model", "cifar10-smal"): "did you mean cifar10-small",
    ("--model", MODEL, "--norm", "l3"): "norm must be one of",
    ("--model", MODEL, "--radius", "-1"): "radius must",
    ("--model", MODEL, "--classes", "1"): "classes must be at least 2",
    ("--model", MODEL, "--device", "meta"): "device must be one that computes",
    ("--model", MODEL, "--abstain-below", "nan"): "--abstain-below must lie between 0 and 1, got nan",
    ("--model", MODEL, "--device", "toaster"): "device must be one that this machine has, got 'toaster'",
    ("--model", "python:testbed.brightness:silent_model"): "say what pictures it takes",
    ("--radius", "wide"): "see drq predict --help",
    ("--csv", "-", "--json"): "--csv must name a file beside --json, got -",
    ("--abstain", "0.5"): "see drq predict --help",
}


@pytest.mark.parametrize("options", MISTAKES, ids=" ".join)
def test_a_mistake_is_one_line(options, picture, command):
    status, output, errors = command(picture(100), *options)
    assert (status, output) == (2, "")
    assert re.fullmatch(r"drq: [^\n]+\n", errors)
    assert MISTAKES[options] in errors


def test_no_picture_is_a_mistake(command):
    status, _, errors = command()
    assert status == 2
    assert "see drq predict --help" in errors


def same(one, other):
    """Two answers, apart from the time they took and the rounding of a batch."""
    if isinstance(one, Refusal):
        return one == other
    values = [(each.name, each.robustness, each.confidence) for each in one.classes]
    others = [(each.name, each.robustness, each.confidence) for each in other.classes]
    exact = ("picture", "answer", "standard", "changed", "norm", "passes")
    close = all(a[0] == b[0] and a[1:] == pytest.approx(b[1:], abs=1e-5) for a, b in zip(values, others, strict=True))
    return close and all(getattr(one, name) == getattr(other, name) for name in exact) and abs(one.margin - other.margin) < 1e-5


@pytest.mark.parametrize("batch", [2, 3, 8])
def test_answers_do_not_depend_on_the_batch(batch, picture, tmp_path):
    levels = [20, 75, 90, 100, 160, 178, 250]
    paths = [picture(level, f"{level}.png") for level in levels]
    paths[3:3] = [str(tmp_path / "missing.png"), paths[0]]
    predictor = Predictor(MODEL)
    alone = [*predictor.stream(paths, batch=1)]
    assert [each.picture for each in alone] == paths
    assert len({each.answer for each in alone if isinstance(each, Prediction)}) == 3
    together = [*predictor.stream(paths, batch=batch)]
    assert all(same(*pair) for pair in zip(together, alone, strict=True))
    assert same(predictor(paths[0]), alone[0])


def test_a_gpu_is_given_several_pictures_at_once(picture, monkeypatch):
    """And a CPU one after another, so that each answer is shown when it is found."""
    paths = [picture(level, f"{level}.png") for level in range(40)]
    sizes = []
    predictor = Predictor(MODEL)
    monkeypatch.setattr(predictor, "_decide", lambda paths, _: sizes.append(len(paths)) or [None] * len(paths))
    monkeypatch.setattr(predictor, "_input", lambda _: torch.zeros(3, 8, 8))
    assert len([*predictor.stream(paths)]) == 40
    assert sizes == [1] * 40
    sizes.clear()
    predictor.device = "cuda"
    assert len([*predictor.stream(paths)]) == 40
    assert sizes == [32, 8]


def test_a_picture_that_the_model_is_lost_on_stops_no_other(picture):
    paths = [picture(100, "a.png"), picture(250, "b.png"), picture(20, "c.png")]
    found = [*Predictor("python:testbed.brightness:fragile").stream(paths, batch=3)]
    assert [getattr(each, "answer", None) for each in found] == ["class 1", None, "class 0"]
    assert found[1].picture == paths[1]
    assert "model must return finite logits" in found[1].error


@pytest.fixture
def album(tmp_path, picture):
    """A folder of pictures and of what should not be looked at."""
    folder = tmp_path / "album"
    (folder / "b").mkdir(parents=True)
    (folder / ".hidden").mkdir()
    (folder / "empty").mkdir()
    for name in ("b/2.png", "b.PNG", "a,b.png", "b/10.jpg", ".secret.png", ".hidden/x.png", "c.webp"):
        picture(100, f"album/{name}")
    (folder / "notes.txt").write_text("no picture")
    (folder / "b" / "again").symlink_to(folder)
    return folder


PICTURES = ["a,b.png", "b/10.jpg", "b/2.png", "b.PNG", "c.webp"]  # the order of their parts


def test_a_folder_stands_for_the_pictures_below_it(album, tmp_path):
    below = [str(album / each) for each in PICTURES]
    note = str(album / "notes.txt")
    assert listed([str(album)]) == below
    assert listed([note, str(album / "b"), str(album) + "/", note]) == [note, *below[1:3], *below, note]
    (tmp_path / "link").symlink_to(album)
    assert listed([str(tmp_path / "link")]) == [str(tmp_path / "link" / each) for each in PICTURES]
    assert listed(["missing.png", "x" * 5000]) == ["missing.png", "x" * 5000]


def test_folders_on_the_command_line(album, command):
    status, output, errors = command(str(album), str(album / "notes.txt"), str(album / "empty"), "--model", MODEL, "--json")
    assert status == 2
    assert [Path(each["picture"]).name for each in json.loads(output)] == [
        *(Path(each).name for each in PICTURES),
        *("notes.txt", "empty"),
    ]
    note, empty = errors.splitlines()
    assert note.startswith("drq: path must hold a picture")
    assert re.fullmatch(r"drq: a folder must have pictures in it, got none in '.*empty': those that end in \.bmp, .*named", empty)


def test_a_folder_that_cannot_be_read_is_named(album, command, monkeypatch):
    """Beside the pictures that can; whoever runs the tests may be allowed to read everything."""
    closed, scan, access = str(album / "b"), os.scandir, os.access

    def scandir(path):
        if str(path) == closed:
            raise PermissionError(13, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", scandir)
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) != closed and access(path, mode))
    status, output, errors = command(str(album), "--model", MODEL, "--json")
    assert status == 2
    assert errors == f"drq: a folder must be one that can be read, got {closed!r}: check its rights\n"
    assert [Path(each["picture"]).name for each in json.loads(output)] == ["a,b.png", "b", "b.PNG", "c.webp"]


def test_many_pictures_have_a_line_each(picture, command, tmp_path):
    paths = [picture(level, f"{level}.png") for level in (20, 75, 90, 100)]
    status, output, errors = command(*paths, str(tmp_path / "none.png"), "--model", MODEL, "--abstain-below", "0.5")
    assert status == 2
    assert errors.count("\n") == 1
    heading, *lines, summary = output.splitlines()
    assert heading.split() == ["Margin", "Robustness", "Picture", "Answer"]
    answers = [*Predictor(MODEL).stream(paths)]
    for line, answer in zip(lines, answers, strict=True):
        margin, robustness, name, words = line.split(maxsplit=3)
        assert (margin, robustness, name) == (f"{answer.margin:.3f}", f"{answer.robustness:.3f}", answer.picture)
        assert words == (f"none, the best guess is {answer.answer}" if answer.margin < 0.5 else answer.answer)
    unsure = sum(answer.margin < 0.5 for answer in answers)
    assert 0 < unsure < 4
    assert summary == (f"5 pictures, 0 answered otherwise than by the model alone, {unsure} left without an answer, 1 refused.")


def test_a_line_says_where_the_model_alone_differs(capfd):
    found = Prediction("p.png", "m", "cat", "dog", True, 0.25, 0.125, 0.1, "linf", 100, 1.0, ())
    terminal.line(8, found, 0.0)
    assert capfd.readouterr().out == " 0.125       0.250  p.png     cat, where the model alone says dog\n"


def rows(text):
    return [*csv.DictReader(io.StringIO(text, newline=""))]


NAMES = [
    "plain.png",
    "comma, and more.png",
    'quo"te.png',
    "new\nline.png",
    "return\rhere.png",
    "'; drop.png",
    "été ☃.png",
    " x .png",
]


def test_csv_holds_what_json_does(picture, command, tmp_path):
    paths = [*(picture(80 + 3 * place, name) for place, name in enumerate(NAMES)), str(tmp_path / "no, such\nfile.png")]
    options = ["--model", MODEL, "--abstain-below", "0.5"]
    target = tmp_path / "new" / "answers.csv"
    status, output, errors = command(*paths, *options, "--csv", str(target))
    assert status == 2
    assert errors.count("\n") == 1
    assert output.startswith(f"{target}: 9 pictures, ")
    found, written = json.loads(command(*paths, *options, "--json")[1]), target.read_bytes().decode()
    assert len({each["answer"] for each in found[:-1]}) == 2  # one of them none
    for row, each in zip(rows(written), found, strict=True):
        assert tuple(row) == terminal.COLUMNS
        for name in set(terminal.COLUMNS) - {"seconds"}:
            value = each.get(name)
            assert row[name] == ("" if value is None else value if isinstance(value, str) else json.dumps(value))
    assert float(rows(written)[0]["seconds"]) >= 0
    frame = polars.read_csv(target)
    assert frame["picture"].to_list() == paths
    assert frame["abstained"].to_list() == [each.get("abstained") for each in found]
    assert frame["margin"].to_list() == [each.get("margin") for each in found]


def test_csv_on_standard_output(picture, command, tmp_path):
    paths = [picture(100, "a.png"), str(tmp_path / "none.png")]
    status, output, errors = command(*paths, "--model", MODEL, "--csv", "-")
    assert status == 2
    assert errors.count("\n") == 1
    first, second = rows(output)
    assert (first["answer"], first["changed"], first["error"]) == ("grey", "false", "")
    assert (second["picture"], second["answer"], second["passes"]) == (paths[1], "", "")
    assert f"drq: {second['error']}\n" == errors
    _, output, _ = command(paths[0], "--model", MODEL, "--csv", str(tmp_path / "a.csv"), "--json")  # both
    assert json.loads(output)[0]["answer"] == rows((tmp_path / "a.csv").read_text())[0]["answer"]


def test_names_that_are_no_text_leave_the_csv_one(picture, command, tmp_path):
    name = os.fsdecode(b"bad\xff.png")
    try:
        path = picture(100, name)
    except OSError:
        pytest.skip("this file system takes only names that are text")
    status, _, _ = command(path, "--model", MODEL, "--csv", str(tmp_path / "a.csv"))
    assert status == 0
    assert rows((tmp_path / "a.csv").read_text("utf-8"))[0]["picture"].endswith("bad\\udcff.png")


def test_a_csv_file_is_there_in_one_piece_or_not_at_all(picture, command, tmp_path, monkeypatch):
    target = tmp_path / "out" / "answers.csv"
    target.parent.mkdir()
    target.write_text("old")

    def interrupted(*_):
        assert target.read_text() == "old"
        raise KeyboardInterrupt

    decide, path = Predictor._decide, picture(100)
    with monkeypatch.context() as patch:
        calls = iter([decide, interrupted])
        patch.setattr(Predictor, "_decide", lambda *arguments: next(calls)(*arguments))
        assert command(path, path, "--model", MODEL, "--csv", str(target))[0] == 130
    assert [each.name for each in target.parent.iterdir()] == ["answers.csv"]
    assert target.read_text() == "old"
    assert command(path, path, "--model", MODEL, "--csv", str(target))[0] == 0
    assert len(rows(target.read_text())) == 2
    assert [each.name for each in target.parent.iterdir()] == ["answers.csv"]


@pytest.mark.parametrize("place", ["", "folder", "file/answers.csv", "pipe", "x" * 300])
def test_where_no_csv_can_be_written(place, picture, command, tmp_path, monkeypatch):
    """It is said at once, before a model is loaded; whatever is there stays."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("in the way")
    os.mkfifo(tmp_path / "pipe")
    path = picture(100)
    monkeypatch.setattr(predict, "load", None)
    status, output, errors = command(path, "--model", MODEL, "--csv", str(tmp_path / place) if place else "")
    assert (status, output) == (2, "")
    assert re.fullmatch(r"drq: --csv must name a file that can be written, got [^\n]+: - is standard output\n", errors)
    assert (tmp_path / "pipe").is_fifo()


def test_a_predictor_in_python_refuses_as_the_command_does(tmp_path):
    (tmp_path / "empty").mkdir()
    refused(Predictor(MODEL), tmp_path / "empty", words=["a folder must have pictures in it"])


def run(capfd, *arguments):
    status = cli.main(arguments)
    return status, *capfd.readouterr()


@pytest.mark.parametrize("kind", ["models", "data"])
def test_what_there_is_has_one_line_on_each(kind, capfd):
    entries = getattr(drq, kind).list()
    status, output, _ = run(capfd, kind)
    assert status == 0
    for entry in entries:
        sign = "+" if entry.present else "-"
        assert f"{sign} {entry.name}\n    {entry.summary}\n" in output
    status, output, _ = run(capfd, kind, "--json")
    assert json.loads(output) == [entry._asdict() for entry in entries]


def test_a_card_is_shown(capfd):
    status, output, _ = run(capfd, "models", "cifar10-small")
    assert status == 0
    assert re.search(r"^norm +linf$", output, re.MULTILINE)
    status, output, _ = run(capfd, "models", "cifar10-small", "--json")
    assert json.loads(output)["sha256"] == drq.load_model("cifar10-small").card.sha256


def test_a_data_set_is_described(capfd):
    status, output, _ = run(capfd, "data", "digits", "--json")
    assert status == 0
    found = json.loads(output)
    assert (found["images"], found["shape"], len(found["classes"])) == (500, [1, 8, 8], 10)
    assert run(capfd, "data", "digits", "--split", "train")[1].count("1297") == 1


def test_missing_data_says_how_to_get_it(capfd, tmp_path, monkeypatch):
    monkeypatch.setenv("DRQ_DATA", str(tmp_path))
    status, output, errors = run(capfd, "data", "cifar10")
    assert (status, output) == (2, "")
    assert "drq data cifar10 --download" in errors
    assert errors.count("\n") == 1
