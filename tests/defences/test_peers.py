"""Test-time defences of other authors: their recipes in closed form."""

import pytest
import torch
from scipy.stats import binomtest, norm
from testbed.classifiers import linear
from testbed.watched import CLASSES, IMAGES, LENGTH, Network, W, X, binary
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad

from drq.defences import AntiAdversary, Augmentation, Hedge, NormalisedLikelihood, Smoothing
from drq.defences.smoothing import fair_coin_p_value


@pytest.fixture
def model() -> Network:
    return Network()


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
    torch.testing.assert_close(fair_coin_p_value(pairs), torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=0)


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
