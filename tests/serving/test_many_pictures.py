"""Many pictures: folders of them, a line on each, and answers as CSV."""

import csv
import io
import json
import os
import re
from pathlib import Path

import polars
import pytest

from drq.commands import terminal
from drq.serving import predict
from drq.serving.listing import listed
from drq.serving.predict import Predictor
from drq.serving.prediction import Prediction

MODEL = "python:testbed.brightness:stripes"


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
    heading, *lines, summary, cost = output.splitlines()
    assert heading.split() == ["Margin", "Robustness", "Picture", "Answer"]
    answers = [*Predictor(MODEL).stream(paths)]
    for line, answer in zip(lines, answers, strict=True):
        margin, robustness, name, words = line.split(maxsplit=3)
        assert (margin, robustness, name) == (f"{answer.margin:.3f}", f"{answer.robustness:.3f}", answer.picture)
        assert words == (f"none, the best guess is {answer.answer}" if answer.margin < 0.5 else answer.answer)
    unsure = sum(answer.margin < 0.5 for answer in answers)
    assert 0 < unsure < 4
    assert summary == (f"5 pictures, 0 answered otherwise than by the model alone, {unsure} left without an answer, 1 refused.")
    assert re.fullmatch(rf"Cost: {sum(answer.passes for answer in answers):,} passes of the model, \d+\.\d s\.", cost)


def test_a_line_says_where_the_model_alone_differs(capfd):
    found = Prediction("p.png", "m", "cat", "dog", True, 0.25, 0.125, 0.1, "linf", 100, 1.0, ())
    terminal.show_prediction_line(8, found, 0.0)
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
