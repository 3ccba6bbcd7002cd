"""Rules of other authors over declared views, against loops over views and samples in plain Python."""

import math

import pytest
import torch
from testbed.classifiers import inputs
from torch import Tensor, nn

from drq.defences import InverseTransformation, ViewMean, Zero
from drq.views import Gamma, Mirror, Rotation

IMAGES = inputs(2, 40, 2, 8, 10)
VIEWS, CLASSES = Rotation(90, 5) + Mirror() * Gamma(0.5), 5
WEIGHT = inputs(3, CLASSES, 2 * 8 * 10) - 0.5


class Centred(nn.Module):
    """A linear model of what pixels are above grey, which prefers no class."""

    def forward(self, x: Tensor) -> Tensor:
        return (x - 0.5).flatten(1) @ WEIGHT.T


@pytest.fixture
def looks() -> list[list[list[float]]]:
    """The logits of all classes at every view of every sample."""
    model = Centred().eval()
    with torch.no_grad():
        found = [[model(view(IMAGES[row : row + 1]))[0].tolist() for view in VIEWS] for row in range(len(IMAGES))]
    assert len(found[0]) == len(VIEWS) == 8
    return found


def probabilities(logits: list[float]) -> list[float]:
    whole = sum(math.exp(each) for each in logits)
    return [math.exp(each) / whole for each in logits]


def entropy(logits: list[float]) -> float:
    return -sum(each * math.log(each) for each in probabilities(logits))


def energy(logits: list[float]) -> float:
    return -math.log(sum(math.exp(each) for each in logits))


def scores(peer: ViewMean | InverseTransformation | Zero) -> list[list[float]]:
    return peer.around(Centred().eval())(IMAGES).tolist()


def test_the_mean_of_probabilities(looks) -> None:
    for found, at_views in zip(scores(ViewMean(VIEWS)), looks, strict=True):
        whole = [probabilities(each) for each in at_views]
        expected = [math.log(sum(each[label] for each in whole) / len(whole)) for label in range(CLASSES)]
        assert found == pytest.approx(expected)


@pytest.mark.parametrize(("by", "cost"), [("energy", energy), ("entropy", entropy)])
def test_its_answers_at_the_view_of_the_lowest(by, cost, looks) -> None:
    chosen = []
    for found, at_views in zip(scores(InverseTransformation(VIEWS, by)), looks, strict=True):
        costs = [cost(each) for each in at_views]
        chosen.append(costs.index(min(costs)))
        assert found == pytest.approx([math.log(each) for each in probabilities(at_views[chosen[-1]])])
    assert len(set(chosen)) > 2


def test_energy_and_entropy_choose_differently(looks) -> None:
    first, second = ([min(range(8), key=lambda view: cost(row[view])) for row in looks] for cost in (energy, entropy))
    assert first != second


@pytest.mark.parametrize(("share", "voting"), [(0.3, 2), (0.1, 1), (0.5, 4), (1.0, 8), (1e-9, 1)])
def test_zero_lets_the_views_of_the_lowest_entropy_vote(share, voting, looks) -> None:
    contested = 0
    for found, at_views in zip(scores(Zero(VIEWS, share)), looks, strict=True):
        sure = sorted(at_views, key=entropy)[:voting]
        votes = [each.index(max(each)) for each in sure]
        means = [sum(probabilities(each)[label] for each in sure) / voting for label in range(CLASSES)]
        expected = max(range(CLASSES), key=lambda label: (votes.count(label), means[label]))
        assert found.index(max(found)) == expected
        assert [math.floor(each + 1e-9) for each in found] == [votes.count(label) for label in range(CLASSES)]
        contested += len(set(votes)) > 1
    assert contested > 0 or voting == 1


class Alternating(nn.Module):
    """Three kinds of view vote for three classes: the first pixel tells which."""

    def forward(self, x: Tensor) -> Tensor:
        return 10 * torch.nn.functional.one_hot((x[:, 0, 0, 0] * 2.5).long(), 3).double()


def test_even_votes_go_to_the_higher_mean_then_to_the_lower_class() -> None:
    x = torch.zeros(1, 1, 2, 2, dtype=torch.float64)
    x[0, 0, 0, 1] = 0.9  # the mirror image begins with it
    assert Zero(Mirror(), 1.0).around(Alternating().eval()).decide(x).label.tolist() == [0]
    surer = Zero(Mirror(), 1.0).scores(torch.tensor([[[4.0, 0.0, 0.0]], [[0.0, 0.0, 5.0]]]))
    assert surer.argmax(1).tolist() == [2]


def test_huge_logits_and_one_view_are_no_trouble() -> None:
    logits = torch.tensor([[[500.0, -500.0, 0.0]], [[0.0, 900.0, -900.0]]])
    for peer in (ViewMean(Mirror()), InverseTransformation(Mirror()), InverseTransformation(Mirror(), "entropy"), Zero(Mirror())):
        assert peer.scores(logits).isfinite().all()
        torch.testing.assert_close(peer.scores(logits[:1]).argmax(1), logits[0].argmax(1))
    assert InverseTransformation(Mirror()).scores(logits).argmax(1).tolist() == [1]  # the lowest energy, -900
