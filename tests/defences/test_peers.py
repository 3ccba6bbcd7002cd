"""Test-time defences of other authors: their recipes in closed form, and what all of them promise."""

import copy
import json
import math
import pickle
from dataclasses import fields, replace

import pytest
import torch
from scipy.stats import binomtest, norm
from testbed.classifiers import inputs, linear
from testbed.refusals import refused
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad

from drq.defences import AntiAdversary, Augmentation, Hedge, NormalisedLikelihood, Smoothing
from drq.defences.answers import answered
from drq.defences.defence import Peer
from drq.defences.smoothing import even_odds
from drq.models import Card, Classifier, WrongRange
from drq.threats.pursuit import aimed_at

W = torch.tensor([1.5, -2.0, 0.5], dtype=torch.float64)
X = 0.2 + 0.6 * inputs(0, 20, 3)  # far from the box
LENGTH = W.abs().sum()
CLASSES = 5


class Network(nn.Module):
    """A small network for images, with parameters that could be trained; it remembers what it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(2, 6, 3), nn.BatchNorm2d(6), nn.Tanh(), nn.Flatten(), nn.Linear(6 * 48, CLASSES))
        generator = torch.Generator().manual_seed(0)
        for parameter in self.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator) * 0.6
        self.double().eval()
        self.seen: list[Tensor] = []
        self.recorded = False  # whether the last look can be differentiated

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(x.detach())
        self.recorded = torch.is_grad_enabled()
        return self.layers(x)


IMAGES = inputs(1, 9, 2, 8, 10)


@pytest.fixture
def model() -> Network:
    return Network()


def binary(bias: float = -0.1) -> tuple[nn.Module, Tensor]:
    """A linear model of two classes, and the log-odds of class 1."""
    model = linear(W, bias)
    return model, (X @ W + bias)


def test_anti_adversary_moves_by_its_steps_towards_its_own_label():
    model, odds = binary()
    scores = AntiAdversary().around(model)(X)
    torch.testing.assert_close(scores[:, 1] - scores[:, 0], odds + odds.sign() * 2 * 0.15 * LENGTH)
    assert len(set(odds.sign().tolist())) == 2
    longer = AntiAdversary(steps=3, step=0.7).around(model)(X)  # nothing is projected on the box
    torch.testing.assert_close(longer[:, 1], odds + odds.sign() * 2.1 * LENGTH)


def test_anti_adversary_keeps_the_label_that_it_moves_to(model):
    """Also where a step makes another class the likeliest."""
    own = model(IMAGES).argmax(1)
    AntiAdversary().around(model)(IMAGES)
    start, first, last = model.seen[-3:]
    for here, there in ((start, first), (first, last)):
        point = here.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(cross_entropy(model(point), own, reduction="sum"), point)
        torch.testing.assert_close(there, here - 0.15 * gradient.sign())


def test_pnml_compares_every_class_after_a_step_towards_it():
    model, odds = binary()
    share = torch.stack([-odds, odds], 1).add(0.03 * LENGTH).sigmoid()
    expected = (share / share.sum(1, keepdim=True)).log()
    torch.testing.assert_close(NormalisedLikelihood().around(model)(X), expected)
    assert torch.equal(NormalisedLikelihood().around(model).decide(X).label, expected.argmax(1))


def test_pnml_stays_in_its_ball_and_box():
    model, _ = binary()
    x = torch.tensor([[0.0, 1.0, 0.99]], dtype=torch.float64)
    up, down = torch.tensor([[0.05, 0.95, 1.0]]).double(), torch.tensor([[0.0, 1.0, 0.94]]).double()  # along W and against it
    share = torch.stack([model(down).softmax(1)[:, 0], model(up).softmax(1)[:, 1]], 1)
    expected = (share / share.sum(1, keepdim=True)).log()
    torch.testing.assert_close(NormalisedLikelihood(steps=3, step=0.03, radius=0.05).around(model)(x), expected)


def test_pnml_tells_certain_classes_apart():
    """Both probabilities are 1 in float32."""
    model, x = linear(torch.tensor([2000.0]), bias=-999.0).float(), torch.tensor([[0.5], [0.499]])
    assert NormalisedLikelihood().around(model)(x).diff(dim=1).flatten().tolist() == [0, 0]
    assert NormalisedLikelihood().around(model).decide(x).label.tolist() == [1, 0]


def test_hedge_goes_to_the_corner_of_the_surer_side():
    """The sum of both cross-entropies is -log f_0 f_1, which grows away from the boundary."""
    model, odds = binary(-0.4)
    sure = odds.abs() > 8 / 255 * LENGTH  # then the start is on the same side
    scores = Hedge().around(model)(X)
    torch.testing.assert_close(scores[sure, 1], (odds + odds.sign() * 8 / 255 * LENGTH)[sure])
    assert len(set(odds[sure].sign().tolist())) == 2
    corner = torch.tensor([[1.0, 0.0, 0.2]], dtype=torch.float64)  # the box stops what the ball would not
    reached = torch.tensor([[1.0, 0.0, 0.2 + 8 / 255]], dtype=torch.float64)
    torch.testing.assert_close(Hedge().around(model)(corner), model(reached))


def test_hedge_steps_up_the_sum_of_all_losses(model):
    x = IMAGES * 0.8 + 0.1
    Hedge(steps=1).around(model)(x)
    start, end = model.seen
    point = start.clone().requires_grad_()
    losses = [cross_entropy(model(point), torch.full((len(x),), label), reduction="sum") for label in range(CLASSES)]
    (gradient,) = torch.autograd.grad(sum(losses), point)
    expected = (start + 4 / 255 * gradient.sign() - x).clamp(-8 / 255, 8 / 255) + x
    torch.testing.assert_close(end, expected)


def test_hedge_starts_at_one_random_offset(model):
    x, starts = IMAGES * 0.8 + 0.1, []
    for seed in (0, 1):
        Hedge(seed=seed).around(model)(x)
        starts.append((model.seen[0] - x) * 255 / 8)
        model.seen.clear()
    torch.testing.assert_close(starts[0], starts[0][:1].expand_as(x))
    assert 0.9 < starts[0].abs().max() <= 1 + 1e-9
    assert starts[0].abs().mean() == pytest.approx(0.5, abs=0.1)
    assert (starts[0] - starts[1]).abs().mean() > 0.3


def test_smoothing_votes_as_the_normal_distribution_says():
    """Of a linear model the share of class 1 is Phi(odds / (deviation * |w|_2)), so that the majority is its own label."""
    model, odds = binary()
    vote = Smoothing(samples=2000, deviation=0.3).around(model).decide(X)
    share = torch.tensor(norm.cdf(odds.detach() / (0.3 * W.norm())))
    torch.testing.assert_close(vote.scores.exp()[:, 1], share, rtol=0, atol=0.04)
    clear = (share - 0.5).abs() > 0.05
    assert torch.equal(vote.label[clear], (odds > 0).long()[clear])
    assert torch.equal(vote.label, vote.scores.argmax(1))
    assert (clear & ~vote.abstains).sum() > 10


class Chooses(nn.Module):
    """Says class 2 or 0 in turn, whatever it sees."""

    looks = 0

    def forward(self, x: Tensor) -> Tensor:
        self.looks += 1
        return torch.eye(3)[2 * (self.looks % 2)].expand(len(x), 3)


@pytest.mark.parametrize(("samples", "alpha", "abstains"), [(10, 0.9, True), (11, 0.9, True), (1, 0.9, True), (10, 1.0, False)])
def test_smoothing_abstains_where_votes_are_even(samples, alpha, abstains):
    vote = Smoothing(samples=samples, alpha=alpha).around(Chooses().eval()).decide(torch.zeros(2, 3))
    assert vote.abstains.tolist() == [abstains] * 2
    assert vote.label.tolist() == [2 * (samples % 2)] * 2  # the majority all the same, the lower class where there is none
    expected = [samples // 2 / samples, 0, (samples + 1) // 2 / samples]
    torch.testing.assert_close(vote.scores.exp()[0], torch.tensor(expected), rtol=0, atol=2e-6)


@pytest.mark.parametrize(("samples", "abstains"), [(10, True), (11, False)])  # 2 / 2^10 > 0.001 > 2 / 2^11
def test_smoothing_abstains_where_there_are_few_votes(samples, abstains):
    model, odds = binary()
    assert odds[0].abs() > 0.05
    assert bool(Smoothing(samples=samples, deviation=0.001).around(model).decide(X[:1]).abstains) == abstains


def test_the_binomial_test_is_that_of_scipy():
    pairs = torch.tensor([(a, b) for a in range(13) for b in range(13)] + [(600, 400), (5000, 4800), (1000, 0)])
    expected = [binomtest(a, a + b, 0.5).pvalue if a + b else 1.0 for a, b in pairs.tolist()]
    torch.testing.assert_close(even_odds(pairs), torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=0)


def test_noise_is_gaussian_and_shared_by_all_samples(model):
    Smoothing(samples=3, deviation=0.5).around(model).decide(IMAGES)
    noise = torch.stack(model.seen) - IMAGES
    torch.testing.assert_close(noise, noise[:, :1].expand_as(noise))
    assert noise[:, 0].std().item() == pytest.approx(0.5, rel=0.1)
    assert (noise[0] - noise[1]).abs().mean() > 0.3
    scores = Smoothing(samples=3, deviation=0.5).around(model)(IMAGES)  # what attackers follow: the mean in the same noise
    expected = torch.stack([model(IMAGES + each).softmax(1) for each in noise]).mean(0)
    torch.testing.assert_close(scores.exp(), expected)


def test_augmentation_begins_with_the_image_and_its_mirror_image(model):
    alone, mirrored = (model(x).softmax(1) for x in (IMAGES, IMAGES.flip(3)))
    torch.testing.assert_close(Augmentation(samples=1).around(model)(IMAGES).exp(), alone)
    torch.testing.assert_close(Augmentation(samples=2).around(model)(IMAGES).exp(), (alone + mirrored) / 2)


def test_views_are_crops_of_the_padded_image(model):
    Augmentation(samples=40, pixels=3).around(model)(IMAGES)
    padded = pad(IMAGES, (3, 3, 3, 3), mode="reflect")
    crops = {(i, j, 0): padded[:, :, i : i + 8, j : j + 10] for i in range(7) for j in range(7)}
    crops |= {(i, j, 1): crop.flip(3) for (i, j, _), crop in crops.items()}
    found = [next((place for place, crop in crops.items() if torch.equal(view, crop)), None) for view in model.seen]
    assert found[:2] == [(3, 3, 0), (3, 3, 1)]
    assert None not in found
    for axis, values in enumerate((range(7), range(7), range(2))):
        assert {place[axis] for place in found[2:]} == {*values}
    scores = [Augmentation(samples=4, seed=seed).around(model)(IMAGES) for seed in (0, 1)]
    assert (scores[0] - scores[1]).abs().max() > 1e-3


PEERS = [Augmentation(), Smoothing(), NormalisedLikelihood(), AntiAdversary(), Hedge()]
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
    target = aimed_at(defended)
    assert target.static is model
    assert target.has_slopes(IMAGES)
    label = defended.decide(IMAGES).label
    assert not target.judge(IMAGES, label).fooled.any()
    if peer.name != "smoothing":  # whose scores are not its votes
        assert torch.equal(label, defended(IMAGES).argmax(1))
    most, fewer = target.scores_cost(IMAGES), target.scores_cost(IMAGES, 1)
    assert fewer < most or peer.name == "pnml"  # that has one step
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


@pytest.mark.parametrize("peer", PEERS[3:], ids=lambda peer: peer.name)
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
        changed = replace(peer, **{each.name: None if isinstance(value, tuple) else value + 1 if value != 0.001 else 0.5})
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
    ],
)
def test_bad_settings_are_refused_in_one_line(kind: type[Peer], setting: str, value: object):
    refused(kind, **{setting: value}, words=[f"{setting} must ", "got "])


def test_samples_that_do_not_fit_are_refused_in_one_line(model):
    refused(Augmentation().around(linear(W)), X, words=["x must be images of shape (N, C, H, W), got shape (20, 3)"])
    refused(Augmentation(pixels=8).around(model), IMAGES, words=["pixels must be below the size of the image, 8, got 8"])
    for peer in (NormalisedLikelihood(), Hedge()):
        refused(peer.around(model), 255 * IMAGES, words=["x must lie within bounds=(0.0, 1.0)"])
    assert Hedge(bounds=None).around(model)(255 * IMAGES).isfinite().all()
