"""Images of the playground: shifts of them, answers about them, and what is loaded."""

import math

import pytest
import torch
from testbed.playing import png

import drq
from drq.errors import InputError
from drq.playground import image_sources, image_tab, sample_html, shifts
from drq.playground.comparison import compare, preview
from drq.playground.jobs import CountedModel, Job
from drq.playground.shifts import all_shifts, apply_shift


@pytest.mark.parametrize(
    "name", [name for name, each in all_shifts().items() if each.attack is None and name not in ("nothing", "frost")]
)
def test_shifts_change_a_picture_within_its_bounds(name):
    picture = image_sources.images_of(image_sources.DIGITS if name in ("rotation", "translation") else image_sources.DRAWN)[0]
    found = preview(picture, name, all_shifts()[name].start)
    assert found.image.shape == picture.image.shape
    assert 0 <= found.image.min() <= found.image.max() <= 1
    assert not torch.equal(found.image, picture.image)
    assert found.decision is None


def test_strength_matters_and_has_limits():
    picture = image_sources.images_of(image_sources.DRAWN)[0]
    far = [(preview(picture, "gaussian noise", severity).image - picture.image).norm() for severity in (1, 5)]
    assert far[0] < far[1]
    for name, strength in (("gaussian noise", 9.0), ("rotation", float("nan")), ("white noise", -1.0)):
        with pytest.raises(InputError, match="strength must lie between"):
            preview(picture, name, strength)
    with pytest.raises(InputError, match="steps must lie between"):
        compare(picture, "attack: PGD, linf", 1.0, 10**9, Job())
    with pytest.raises(InputError, match="shift must be one of the list"):
        preview(picture, "rm -rf", 1.0)


@pytest.mark.parametrize("name", [name for name, each in all_shifts().items() if each.attack is not None])
def test_attacks_lower_the_confidence_and_count_their_passes(name):
    picture, job = image_sources.images_of(image_sources.DIGITS)[0], Job()
    model, card = image_sources.classifier("digits"), image_sources.model_card("digits")
    robust = drq.DRQ(CountedModel(model, job), **card.explored)
    x, y = picture.image[None], torch.tensor([picture.label])
    changed = apply_shift(name, robust, card, x, y, 1.0, 5, job)
    assert job.passes > 0
    before, after = (model(each).softmax(1)[0, picture.label] for each in (x, changed))
    assert after < before or "DRQ" in name
    if "l2" not in name:
        assert (changed - x).abs().max() <= card.radius + 1e-6


def test_the_answers_are_those_of_the_model_and_of_drq():
    picture = image_sources.images_of(image_sources.DIGITS)[3]
    found = compare(picture, "nothing", 0.5, 1, Job())
    model, x = image_sources.classifier("digits"), picture.image[None]
    truth = drq.DRQ(model, **image_sources.model_card("digits").explored).decide(x)
    assert found.standard == int(model(x).argmax())
    assert int(found.decision.label) == int(truth.label)
    shown = image_tab.result(found)
    assert f"{int(truth.passes)} passes of the model" in shown
    assert shown.count('class="answer"') == 2


def test_a_slice_is_asked_for_and_drawn_in_the_card():
    picture, job = image_sources.images_of(image_sources.DIGITS)[3], Job()
    found = compare(picture, "nothing", 0.5, 1, job, 4)
    assert found.slice.label.shape == (4, 4)
    assert job.passes > 16  # every point was decided on
    assert "4 x 4 images" in job.part
    assert len(sample_html.card(found.decision, found.names, found.slice)) > len(sample_html.card(found.decision, found.names))
    for wrong in (1, 10**6):
        with pytest.raises(InputError, match="slice must be 0, or lie between"):
            compare(picture, "nothing", 0.5, 1, Job(), wrong)


def test_only_models_that_are_offered_are_loaded():
    picture = image_sources.images_of(image_sources.DRAWN)[0]
    assert image_sources.available_models(image_sources.DRAWN)[0] == picture.model == "cifar10-small"
    assert image_sources.with_model(picture, "cifar10-linf").model == "cifar10-linf"
    for name in ("digits", "python:os:system", "file:/etc/passwd", ""):
        with pytest.raises(InputError, match="model must be one of cifar10-augment"):
            image_sources.with_model(picture, name)
    with pytest.raises(InputError, match="model must be one of"):
        image_sources.read_upload(png(4, 4, b"\0" * 52), "python:os:system")


@pytest.mark.parametrize(("norm", "radius"), [("linf", 8 / 255), ("l2", 0.5), (None, None)])
def test_the_strength_of_an_attack_counts_radii_of_the_training(norm, radius):
    """In the norm of the training it is that radius; in the other one, balls have the same volume, by Stirling's formula."""
    card, x = drq.models.Card("mine", norm=norm, radius=radius), torch.zeros(1, 3, 32, 32)
    found = {each: shifts._radius(card, x, 2.0, each) for each in ("linf", "l2")}
    assert found[norm or "linf"] == pytest.approx(2 * (radius or 8 / 255))
    size = x.numel()
    volume = size / 2 * math.log(math.pi) - math.lgamma(size / 2 + 1) + size * math.log(found["l2"])
    assert volume / size == pytest.approx(math.log(2 * found["linf"]), abs=0.01)


def test_the_drawn_pictures_are_what_they_say():
    found = [preview(each, "nothing", 0.5) for each in image_sources.images_of(image_sources.DRAWN)]
    right = [each.standard == each.picture.label for each in found]
    assert sum(right) >= 4  # of five: the model in the box is unsure about the frog
