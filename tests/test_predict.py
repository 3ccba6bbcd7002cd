"""Pictures in files: the answer, the reason to abstain, and the cost, in Python and on the command line."""

import json
import math
import re

import pytest
import torch
from PIL import Image

import drq
from drq import cli
from drq.predict import Predictor


class Stripes(torch.nn.Module):
    """Three classes of 8 x 8 images by their brightness: dark, grey, bright. Linear in the mean, so DRQ is known."""

    def forward(self, x):
        mean = x.mean((1, 2, 3))
        return 20 * torch.stack([0.3 - mean, torch.full_like(mean, 0.0), mean - 0.7], 1)


def stripes(norm="linf", radius=0.05, **_):
    card = drq.models.Card("stripes", "", ("dark", "grey", "bright"), drq.models.View(8, 8), norm, radius)
    return drq.models.Classifier(Stripes(), card).eval()


class Certain(torch.nn.Module):
    def forward(self, x):
        mean = x.mean((1, 2, 3))
        return torch.stack([5 + mean, mean.square()], 1)


def certain():
    return drq.models.Classifier(Certain(), drq.models.Card("certain", "", ("yes", "no"), drq.models.View(8, 8))).eval()


def silent_model():
    return Stripes().eval()


MODEL = "python:test_predict:stripes"


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
    found = Predictor("python:test_predict:certain")(picture(128))
    assert (found.radius, found.answer, found.standard, found.margin) == (None, "yes", "yes", 0)
    _, output, _ = command(picture(128), "--model", "python:test_predict:certain")
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
    _, output, _ = command(picture(100), "--model", MODEL, "--abstain", "0.999")
    assert "No answer: the margin" in output
    assert "The best guess is grey." in output
    status, output, _ = command(picture(100), "--model", MODEL, "--abstain", "0.999", "--json")
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
    assert set(found[0]["classes"][0]) == {"name", "confidence", "robustness", "exact"}


MISTAKES = {
    ("--model", "cifar10-smal"): "did you mean cifar10-small",
    ("--model", MODEL, "--norm", "l3"): "norm must be one of",
    ("--model", MODEL, "--radius", "-1"): "radius must",
    ("--model", MODEL, "--classes", "1"): "classes must be at least 2",
    ("--model", MODEL, "--device", "meta"): "device must be one that computes",
    ("--model", MODEL, "--abstain", "nan"): "abstain must",
    ("--model", MODEL, "--device", "toaster"): "device must be one that this machine has, got 'toaster'",
    ("--model", "python:test_predict:silent_model"): "say what pictures it takes",
    ("--radius", "wide"): "see drq predict --help",
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
