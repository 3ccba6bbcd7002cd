"""What all defences of other authors promise."""

import copy
import json
import math
import pickle
from dataclasses import fields, replace

import pytest
import torch
from testbed.classifiers import linear
from testbed.refusals import refused
from testbed.watched import CLASSES, IMAGES, Network, W, X

from drq.defences import (
    AntiAdversary,
    Augmentation,
    Hedge,
    InverseTransformation,
    NormalisedLikelihood,
    Smoothing,
    ViewMean,
    Zero,
)
from drq.defences.answers import answered
from drq.defences.defence import Peer
from drq.models import Card, Classifier, WrongRange
from drq.threats.pursuit import as_target


@pytest.fixture
def model() -> Network:
    return Network()


MOVING = [AntiAdversary(), Hedge()]
AT_VIEWS = [ViewMean("Mirror() * Contrast()"), InverseTransformation(), InverseTransformation(by="entropy"), Zero(share=0.5)]
PEERS = [Augmentation(), Smoothing(), NormalisedLikelihood(), *MOVING, *AT_VIEWS]
OTHERS = {"views": ["Mirror()"], "by": ["energy", "entropy"], "share": [0.25], "bounds": [None], "alpha": [0.5]}  # are no counts
every = pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)


@every
def test_a_sample_is_answered_alike_in_every_batch(peer: Peer, model):
    defended = peer.around(model)
    scores, label = defended(IMAGES), defended.decide(IMAGES).label
    for rows in ([3], [8, 0], [*reversed(range(9))]):
        torch.testing.assert_close(defended(IMAGES[rows]), scores[rows], rtol=0, atol=1e-9)
        assert torch.equal(defended.decide(IMAGES[rows]).label, label[rows])
    assert defended(IMAGES[:0]).shape == (0, CLASSES)
    assert defended.decide(IMAGES[:0]).label.shape == (0,)


@every
def test_a_repetition_is_the_same_in_every_mode_and_changes_nothing(peer: Peer, model):
    defended, last = peer.around(model), model.layers[-1].weight
    last.grad = torch.full_like(last, 7.0)
    state, kept = torch.get_rng_state(), copy.deepcopy(model.state_dict())
    scores, label, given = defended(IMAGES), defended.decide(IMAGES).label, IMAGES.clone()
    with torch.no_grad():
        assert torch.equal(defended(IMAGES), scores)
    with torch.inference_mode():
        assert torch.equal(defended(IMAGES.clone()), scores)
        assert torch.equal(defended.decide(IMAGES.clone()).label, label)
    defended.decide(IMAGES)
    assert not model.recorded  # a graph would be kept for nothing
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(IMAGES, given)
    assert all(torch.equal(value, kept[name]) for name, value in model.state_dict().items())
    assert all(each.requires_grad for each in model.parameters())
    assert [each.grad is None for each in model.parameters()] == [each is not last for each in model.parameters()]
    assert (last.grad == 7).all()
    for again in (copy.deepcopy(defended), pickle.loads(pickle.dumps(defended))):
        assert torch.equal(again(IMAGES), scores)


@every
def test_attackers_find_what_they_ask_for(peer: Peer, model):
    defended = peer.around(model)
    target = as_target(defended)
    assert target.static is model
    assert target.has_gradients(IMAGES)
    label = defended.decide(IMAGES).label
    assert not target.judge(IMAGES, label).fooled.any()
    if peer.name != "smoothing":  # whose scores are not its votes
        assert torch.equal(label, defended(IMAGES).argmax(1))
    most, fewer = target.scores_cost(IMAGES), target.scores_cost(IMAGES, 1)
    assert fewer < most or peer.name == "pnml" or peer in AT_VIEWS  # which have one step, or none
    assert torch.equal(defended.shortened(1000)(IMAGES), defended(IMAGES))
    assert defended.shortened(1).model is model


@every
def test_models_do_not_complain_of_where_they_are_looked_at(peer: Peer, model):
    """They warn of images that leave [0, 1], which a defence may do on purpose; warnings are errors here."""
    defended = peer.around(Classifier(model, Card("warns")).eval())
    assert torch.equal(defended(IMAGES), peer.around(model)(IMAGES))
    defended.decide(IMAGES)
    with pytest.warns(WrongRange):
        AntiAdversary().around(defended.model)(3 * IMAGES - 1)  # the caller's own mistake


@pytest.mark.parametrize("peer", MOVING, ids=lambda peer: peer.name)
def test_movements_are_held_constant(peer: Peer, model):
    x = IMAGES.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(peer.around(model)(x)[:, 0].sum(), x)
    point = model.seen[-1].clone().requires_grad_()
    (expected,) = torch.autograd.grad(model(point)[:, 0].sum(), point)
    torch.testing.assert_close(gradient, expected)
    assert (point - x).abs().max() > 0.01


@pytest.mark.parametrize(
    ("peer", "passes"),
    [
        (Augmentation(), 10),
        (Smoothing(), 100),
        (NormalisedLikelihood(), 2 * CLASSES),
        (NormalisedLikelihood(steps=4), 5 * CLASSES),
        (AntiAdversary(), 4),
        (AntiAdversary(steps=7), 9),
        (Hedge(), 21),
        (Hedge(steps=5), 6),
        (ViewMean(), 13),
        (InverseTransformation("Mirror() * Contrast()"), 4),
        (Zero("Rotation(180, 4) + Mirror()"), 5),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_costs_are_those_that_are_documented(peer: Peer, passes: int, model):
    found = answered(peer.around(model), IMAGES, torch.zeros(9).long())
    assert found.passes.tolist() == [passes] * 9
    assert torch.equal(found.prediction, peer.around(model).decide(IMAGES).label)


@every
def test_records_are_json_and_hold_every_setting(peer: Peer):
    assert json.loads(json.dumps(peer.record)) == peer.record
    assert peer.record["defence"] == peer.name
    assert peer.summary
    for each in fields(peer):
        value = getattr(peer, each.name)
        other = next((other for other in OTHERS.get(each.name, ()) if other != value), None)
        changed = replace(peer, **{each.name: other if each.name in OTHERS else value + 1})
        differing = {key for key in peer.record if changed.record[key] != peer.record[key]}
        assert differing == {each.name}


@every
def test_a_model_in_training_mode_is_refused(peer: Peer, model):
    model.layers[1].train()
    refused(peer.around, model, words=["model must be in evaluation mode"])


@pytest.mark.parametrize(
    ("kind", "setting", "value"),
    [
        *((kind, "samples", value) for kind in (Augmentation, Smoothing) for value in (0, 1.5, True, "many")),
        *((Augmentation, "pixels", value) for value in (-1, 0.5)),
        *((kind, "seed", value) for kind in (Augmentation, Smoothing, Hedge) for value in (None, 0.5)),
        *((Smoothing, "deviation", value) for value in (-0.1, math.inf, math.nan, "0.1", True)),
        *((Smoothing, "alpha", value) for value in (0, 1.5, math.nan, "0.1")),
        *((kind, "steps", value) for kind in (NormalisedLikelihood, AntiAdversary, Hedge) for value in (0, 2.0)),
        *((kind, "step", value) for kind in (NormalisedLikelihood, AntiAdversary, Hedge) for value in (-1, "1", math.nan)),
        *((kind, "radius", value) for kind in (NormalisedLikelihood, Hedge) for value in (-1, None, math.inf)),
        *((kind, "bounds", value) for kind in (NormalisedLikelihood, Hedge) for value in (1.0, (1.0, 0.0))),
        *((kind, "views", value) for kind in (ViewMean, InverseTransformation, Zero) for value in ("Rotate(3)", 13, None)),
        *((InverseTransformation, "by", value) for value in ("certainty", None, 1)),
        *((Zero, "share", value) for value in (0, 1.5, math.nan, "0.1", True)),
    ],
)
def test_bad_settings_are_refused_in_one_line(kind: type[Peer], setting: str, value: object):
    refused(kind, **{setting: value}, words=[f"{setting} must ", "got "])


def test_samples_that_do_not_fit_are_refused_in_one_line(model):
    refused(Augmentation().around(linear(W)), X, words=["x must be images of shape (N, C, H, W), got shape (20, 3)"])
    for peer in AT_VIEWS:
        refused(peer.around(linear(W)), X, words=["x must be pictures (N, C, H, W) for ", "leave ", "out of the views"])
    refused(Augmentation(pixels=8).around(model), IMAGES, words=["pixels must be below the size of the image, 8, got 8"])
    for peer in (NormalisedLikelihood(), Hedge()):
        refused(peer.around(model), 255 * IMAGES, words=["x must lie within bounds=(0.0, 1.0)"])
    assert Hedge(bounds=None).around(model)(255 * IMAGES).isfinite().all()
