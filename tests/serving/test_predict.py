"""Pictures in files: the answer, the reason to abstain, and the cost, in Python and on the command line."""

import json
import math
import re

import pytest
import torch
from testbed.brightness import stripes
from testbed.refusals import refused

import drq
from drq.serving.predict import Predictor
from drq.serving.prediction import Prediction, Refusal

MODEL = "python:testbed.brightness:stripes"


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
    arguments = [picture(120), "--model", "cifar10-small", "--classes", "2"]
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
    ("--radius", "wide"): "--radius must be a number or a fraction, got 'wide'",
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
    monkeypatch.setattr(predictor, "_decide", lambda paths, *_: sizes.append(len(paths)) or [None] * len(paths))
    monkeypatch.setattr(predictor, "_input", lambda _: torch.zeros(3, 8, 8))
    assert len([*predictor.stream(paths)]) == 40
    assert sizes == [1] * 40
    sizes.clear()
    predictor.device = "cuda"
    assert len([*predictor.stream(paths)]) == 40
    assert sizes == [32, 8]


@pytest.mark.parametrize("batch", [1, 3])
def test_progress_counts_pictures_in_part(batch, picture, tmp_path):
    paths = [picture(level, f"{level}.png") for level in (20, 100, 250, 160)]
    paths[2:2] = [str(tmp_path / "missing.png")]
    told, answered = [], []
    for answer in Predictor(MODEL).stream(paths, batch, tell=told.append):
        answered.append((len(told), answer))
    assert told == sorted(told)
    assert told[-1] == len(paths)
    whole = [each for each in told if each == int(each)]
    assert set(whole) >= {each for each in range(1, 6) if each % batch == 0 or each == 5}
    assert len(told) > 40
    assert [answer.picture for _, answer in answered] == paths
    assert answered[0][0] < len(told) / 2  # each is shown when it is found


def test_a_picture_that_the_model_is_lost_on_stops_no_other(picture):
    paths = [picture(100, "a.png"), picture(250, "b.png"), picture(20, "c.png")]
    found = [*Predictor("python:testbed.brightness:fragile").stream(paths, batch=3)]
    assert [getattr(each, "answer", None) for each in found] == ["class 1", None, "class 0"]
    assert found[1].picture == paths[1]
    assert "model must return finite logits" in found[1].error


def test_a_predictor_in_python_refuses_as_the_command_does(tmp_path):
    (tmp_path / "empty").mkdir()
    refused(Predictor(MODEL), tmp_path / "empty", words=["a folder must have pictures in it"])
