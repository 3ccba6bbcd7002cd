"""A defence from a file on the image tab: it answers as the file says, for pictures that its model takes."""

import warnings

import pytest
import torch
from PIL import Image
from testbed.brightness import quarters, stripes
from testbed.playing import photograph, playground
from testbed.refusals import refused
from testbed.stored import QUICK

import drq
from drq.playground import image_sources, image_tab
from drq.playground.comparison import compare
from drq.playground.jobs import Job
from drq.playground.offered import OfferedDefence, offer

pytest.importorskip("matplotlib")
NAME = "defence.toml"


def stored(path, robust, model=None, **options):
    robust.save(path / NAME, model, **options)
    return drq.load_defence(path / NAME, allow_code=True)


def test_it_comes_first_with_its_pictures_and_goes_again(tmp_path):
    before = image_sources.sources()
    again = stored(tmp_path, drq.DRQ(quarters(), "linf", 0.1, **QUICK), "python:testbed.brightness:quarters")
    with offer(NAME, again):
        assert image_sources.sources() == (NAME, *before)
        assert image_sources.available_models(NAME) == (NAME,)
        shown = image_sources.images_of(NAME)
        assert {tuple(each.image.shape) for each in shown} == {(3, 6, 6)}
        assert image_tab.default_picture().model == NAME
        assert image_sources.class_names(NAME) == ("a", "b", "c", "d")
        own = image_sources.read_upload(photograph(), NAME)
        assert (own.image.shape, own.model) == ((3, 6, 6), NAME)
        assert image_sources.with_model(shown[0], NAME).model == NAME
        refused(image_sources.with_model, shown[0], "digits", words=["model must be one of defence.toml"])
    assert image_sources.sources() == before
    refused(image_sources.read_upload, photograph(), NAME, words=["model must be one of"])


@pytest.mark.parametrize("name", ["a ball", "views"])
def test_answers_are_those_of_the_file(name, tmp_path):
    settings = {"norm": "linf", "radius": 0.1, **QUICK} if name == "a ball" else {"views": "Rotation(60, 5) + Mirror()"}
    again = stored(tmp_path, drq.DRQ(quarters(), **settings), "python:testbed.brightness:quarters", threshold=1.0)
    with offer(NAME, again):
        picture = image_sources.images_of(NAME)[0]
        found = compare(picture, "nothing", 0.5, 1, Job(), 0 if name == "views" else 3)
    truth = again.decide(picture.image[None])
    assert int(found.decision.label) == int(truth.label)
    assert float(found.decision.margin) == pytest.approx(float(truth.margin), abs=1e-6)
    assert (found.seen is None, found.slice is None) == ((True, False) if name == "a ball" else (False, True))
    assert found.abstains
    assert "DRQ gives no answer" in image_tab.summary(found)
    assert "no answer below margin 1.000, only a best guess: robustness" in image_tab.result(found)
    assert "image/svg+xml" in image_tab.card(found.decision, found.names, found.slice, found.seen)


def test_pictures_like_those_of_its_training(tmp_path):
    pytest.importorskip("sklearn")
    again = stored(tmp_path, drq.DRQ(drq.load_model("digits"), "linf", 0.1, **QUICK))
    with offer(NAME, again):
        shown = image_sources.images_of(NAME)
    assert [each.label for each in shown] == drq.load_data("digits").batch(range(len(shown)))[1].tolist()
    assert not compare(image_sources.images_of(image_sources.DIGITS)[0], "nothing", 0.5, 1, Job()).abstains


def test_an_attack_is_made_on_the_defence_itself(tmp_path):
    again = stored(tmp_path, drq.DRQ(quarters(), "linf", 0.1, **QUICK), "python:testbed.brightness:quarters")
    with offer(NAME, again):
        picture = image_sources.images_of(NAME)[0]
        found = compare(picture, "attack on DRQ itself: Envelope", 1.0, 2, Job())
    assert not torch.equal(found.image, picture.image)


@pytest.mark.slow
def test_the_page_answers_as_the_file_says(tmp_path):
    """Asked through a browser's own requests, in a process of its own."""
    pytest.importorskip("gradio")
    pytest.importorskip("sklearn")
    with warnings.catch_warnings():  # of libraries among themselves
        warnings.simplefilter("ignore")
        from gradio_client import Client, handle_file

        again = stored(tmp_path, drq.DRQ(drq.load_model("digits"), "linf", 0.2, **QUICK), threshold=1.0)
        x = (drq.load_data("digits").batch([3])[0] * 255).round() / 255
        Image.fromarray((x[0, 0] * 255).round().to(torch.uint8).numpy()).save(tmp_path / "three.png")
        with playground(tmp_path, tmp_path, "--defence", str(tmp_path / NAME)) as (address, _):
            client = Client(address, verbose=False)
            client.predict(handle_file(tmp_path / "three.png"), NAME, NAME, "nothing", 0.5, api_name="/upload")
            asked = client.submit("nothing", 0.5, 1, 0, api_name="/ask")
            asked.result(timeout=60)
            said = str(asked.outputs())
    decision = again.decide(x)
    margin = float(decision.margin)
    assert "DRQ gives no answer" in said
    assert f"margin {margin:.3f}" in said
    assert f"{int(decision.passes)} passes of the model" in said


def test_classes_without_names_are_numbered_and_models_without_pictures_refused(tmp_path):
    nameless = stored(tmp_path, drq.DRQ(drq.load_model("python:testbed.brightness:fragile"), "linf", 0.01, **QUICK))
    assert OfferedDefence(nameless).names == ("class 0", "class 1", "class 2")
    bare = drq.DRQ(stripes().model, "linf", 0.01, **QUICK)
    other = stored(tmp_path, bare, "python:testbed.brightness:silent_model")
    refused(OfferedDefence, other, words=["--defence must have a model that says what pictures it takes"])
