"""DRQ over views under attack: what attackers follow tells the answer, and their slopes are those of it."""

import math

import pytest
import torch

import drq
from drq.threats import RedTeam
from drq.threats.pursuit import as_target
from drq.threats.views_target import ViewsTarget, nearest_lead
from drq.views import Contrast, Gate, Mirror, Rotation

VIEWS = Rotation(90, 5) + Mirror() * Contrast()


def network(classes: int) -> torch.nn.Module:
    torch.manual_seed(classes)
    layers = torch.nn.Linear(3 * 8 * 8, 24), torch.nn.Tanh(), torch.nn.Linear(24, classes)
    return torch.nn.Sequential(torch.nn.Flatten(), *layers).double().eval()


def gate(threshold: float, standardised: bool) -> Gate:
    others = len(VIEWS) - 1
    mean, deviation = ([0.1 * number for number in range(others)], [0.5 + 0.2 * number for number in range(others)])
    return Gate(threshold, mean if standardised else (), deviation if standardised else ())


@pytest.mark.parametrize("standardised", [False, True])
@pytest.mark.parametrize("threshold", [-math.inf, -0.1, 0.0, 0.05, 0.3, math.inf])
def test_the_lead_tells_the_answer_between_two_classes(threshold, standardised):
    model, x = network(2), torch.rand(200, 3, 8, 8, dtype=torch.float64)
    robust = drq.DRQ(model, views=VIEWS, gate=gate(threshold, standardised))
    found = robust.decide(x)
    for label in (torch.zeros(200).long(), torch.ones(200).long()):
        lead = nearest_lead(robust, model, x, label, 1 - label)
        assert ((lead > 0) == (found.label == label)).all()
    if 0 < threshold < 1 and not standardised:
        assert 0 < int(found.kept.sum()) < 200  # both sides of the gate were tried


def test_its_slopes_are_those_of_differences():
    model, x = network(4), torch.rand(5, 3, 8, 8, dtype=torch.float64)
    robust = drq.DRQ(model, views=Rotation(90, 5), gate=Gate(0.2))
    label, rival = torch.zeros(5).long(), torch.ones(5).long()
    assert torch.autograd.gradcheck(lambda x: nearest_lead(robust, model, x, label, rival), x.requires_grad_(), atol=1e-6)


def test_the_red_team_finds_its_way_through_a_gate():
    """A model that is always right at the input itself, and wrong at a view: only who follows views fools it."""

    class Corner(torch.nn.Module):
        def forward(self, x):
            return torch.stack([1 + 0 * x[:, 0, 0, 0], 40 * x[:, 0, 0, -1] - 10], 1)  # wrong where a corner is bright

    x = torch.full((6, 1, 4, 4), 0.2)
    y = torch.zeros(6).long()
    robust = drq.DRQ(Corner().eval(), views=Mirror(), gate=Gate(0.5))
    assert isinstance(as_target(robust), ViewsTarget)
    assert (robust.decide(x).label == y).all()
    standing = RedTeam("linf", 0.2).run(robust, x, y)
    assert standing.fooled.all()
    assert (robust.decide(standing.x).label != y).all()


def test_queries_are_for_views_alone():
    model, x, y = network(3).float(), torch.rand(3, 3, 8, 8), torch.tensor([0, 1, 2])
    team = RedTeam("linf", 0.01)
    queries = next(number for number, member in enumerate(team.members) if member.for_views)
    y = model(x).argmax(1)
    assert team.run(drq.DRQ(model, views=Mirror()), x, y).tried[:, queries].any()
    in_balls = team.run(drq.DRQ(model, "linf", 0.01), x, y)
    assert not in_balls.tried[:, queries].any()
    assert team.members[queries].title not in team.summary(in_balls)


def test_views_in_balls_are_attacked_through_their_scores():
    model, x = network(3).float(), torch.rand(4, 3, 8, 8)
    robust = drq.DRQ(model, "linf", 0.05, views=Mirror())
    y = robust.decide(x).label
    standing = RedTeam("linf", 0.2).run(robust, x, y)
    assert standing.fooled.any()
