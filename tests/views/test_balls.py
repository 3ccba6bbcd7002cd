"""Balls around views: every class counts by the view around which its ball is best, as DRQ around every view by itself says."""

import pytest
import torch
from testbed.classifiers import inputs, linear, network
from testbed.every_view import batch, flat
from testbed.refusals import refused
from torch import nn

import drq
from drq.views import Gain, Mirror, Monotone, Rotation

STEPS = {"explore": drq.Gradient(6), "quantify": drq.Gradient(6)}


def around_each(robust: drq.DRQ, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """By a DRQ without views around every view: log-odds (N, C), explored ones, and where each class was explored best."""
    alone = robust.variant(views=None, gate=None, prune="none")
    radius = robust.radius if not isinstance(robust.radius, drq.Calibrated) else alone.decide(x).radius
    each = [alone.variant(radius=radius).decide(view.inside(x, robust.bounds)) for view in robust.views]
    explored = torch.stack([one.explored_log_odds for one in each])
    at = (explored == explored.amax(0)).int().argmax(0)
    odds = torch.stack([one.log_odds for one in each]).gather(0, at[None])[0]
    return odds, explored.amax(0), at


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
@pytest.mark.parametrize("prune", ["none", "exact"])
@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_it_is_drq_around_every_view(norm, prune, alpha):
    x, model = batch((3, 6, 6), 12), flat((3, 6, 6))
    radius = {"linf": 0.05, "l2": 0.4, "l1": 2.0}[norm]
    robust = drq.DRQ(model, norm, radius, views=Rotation(90, 3) + Mirror(), alpha=alpha, prune=prune, **STEPS)
    found = robust.decide(x)
    odds, explored, at = around_each(robust, x)
    exact = found.exact & found.reached
    torch.testing.assert_close(found.log_odds[exact], odds[exact], rtol=0, atol=1e-9)
    torch.testing.assert_close(found.explored_log_odds, explored, rtol=0, atol=1e-9)
    assert torch.equal(found.label, odds.argmax(1))
    assert torch.equal(found.view, at.gather(1, found.label[:, None])[:, 0])
    assert prune == "exact" or exact.all() or not found.reached.all()
    assert int((found.view > 0).sum()) > 2
    assert (found.radius == radius).all()
    assert found.nonfinite.tolist() == [0] * 12
    assert torch.equal(robust(x).argmax(1), found.label)
    assert (found.passes > found.forward_passes).all()
    assert (found.passes <= robust.most_passes(5)).all()


def test_closed_form_of_a_linear_classifier():
    """Two views of a row, three times as large and a third, and a ball of linf around each: (1 - alpha) eps |w|_1 is won."""
    weight, x = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64), inputs(1, 40, 3) - 0.5
    robust = drq.DRQ(linear(weight, 0.1), "linf", 0.1, views=Gain(3, 3), bounds=None, alpha=0.4)
    found = robust.decide(x)
    score = torch.stack([scale * (x @ weight) + 0.1 for scale in (1, 1 / 3, 3)])
    gain = 0.1 * weight.abs().sum()
    best = torch.stack([(-score).amax(0), score.amax(0)], 1)
    reached = best + gain > 0
    expected = torch.where(reached, (best + 0.6 * gain).sigmoid(), 0)
    torch.testing.assert_close(found.robustness, expected, rtol=0, atol=1e-6)
    assert torch.equal(found.reached, reached)
    assert torch.equal(found.label, expected.argmax(1))


def test_a_radius_of_0_leaves_the_views():
    x, model = batch((3, 6, 6), 20), flat((3, 6, 6))
    views = Rotation(90, 5) + Mirror()
    ball, alone = drq.DRQ(model, "linf", 0.0, views=views, **STEPS), drq.DRQ(model, views=views)
    assert ball.ball_searched
    assert not alone.ball_searched
    found, expected = ball.decide(x), alone.decide(x)
    reached = found.reached & found.exact
    assert torch.equal(found.label, expected.label)
    torch.testing.assert_close(found.log_odds[reached], expected.log_odds[reached], rtol=0, atol=1e-9)


def test_calibrated_balls_have_the_radius_of_the_input():
    x, model = inputs(0, 12, 4), network(3)
    radius = drq.Calibrated(steps=30)
    robust = drq.DRQ(model, "l2", radius, views=Monotone(0.5, 2), prune="none", **STEPS)
    found = robust.decide(x)
    assert torch.equal(found.radius, robust.variant(views=None).decide(x).radius)
    odds, _, _ = around_each(robust, x)
    both = found.reached & found.found[:, None]
    torch.testing.assert_close(found.log_odds[both], odds[both], rtol=0, atol=1e-9)
    assert robust.ball_searched
    assert not drq.DRQ(model, "l2", views=Monotone(0.5, 2)).ball_searched  # no radius was given


@pytest.mark.parametrize("chunk", [1, 5, 64])
def test_chunks_and_company_do_not_matter(chunk):
    x, model = batch((3, 6, 6), 8), flat((3, 6, 6))
    robust = drq.DRQ(model, "linf", 0.05, views=Rotation(90, 3), keep_points=True, **STEPS)
    found, other = robust.decide(x), robust.variant(chunk=chunk).decide(x)
    apart = [robust.decide(x[each : each + 1]) for each in range(8)]
    for one in (other, apart[0].joined(apart[1:])):
        assert torch.equal(one.label, found.label)
        assert torch.equal(one.view, found.view)
        torch.testing.assert_close(one.explored_log_odds, found.explored_log_odds, rtol=0, atol=1e-9)
        torch.testing.assert_close(one.explored, found.explored, rtol=0, atol=1e-9, equal_nan=True)


def test_scores_are_differentiable_through_the_view():
    x, model = batch((3, 6, 6), 6), flat((3, 6, 6))
    robust = drq.DRQ(model, "linf", 0.05, views=Rotation(90, 3) + Mirror(), keep_points=True, prune="none", **STEPS)
    found, points = robust.decide(x), x.clone().requires_grad_()
    scores = robust(points)
    torch.testing.assert_close(scores.detach()[found.reached], found.robustness.log()[found.reached])
    for number in range(6):
        label = int(found.label[number])
        here = x[number : number + 1].clone().requires_grad_()
        seen = robust.views[int(found.view[number])](here)
        point = found.quantified[number : number + 1, label] + (seen - seen.detach())
        expected = torch.autograd.grad(model(point).log_softmax(1)[0, label], here)[0]
        (slope,) = torch.autograd.grad(scores[number, label], points, retain_graph=True)
        torch.testing.assert_close(slope[number : number + 1], expected, rtol=0, atol=1e-9)


def test_the_race_answers_nearly_alike():
    x, model = batch((3, 6, 6), 40), flat((3, 6, 6))
    robust = drq.DRQ(model, "linf", 0.05, views=Rotation(90, 3))
    race, exact = robust.variant(prune="race").decide(x), robust.decide(x)
    assert (race.label == exact.label).double().mean() >= 0.9
    assert race.passes.sum() < exact.passes.sum()
    assert not race.exact.all()


def test_lower_precision_is_for_views_or_balls_alone():
    model = nn.Sequential(nn.Flatten(), nn.Linear(108, 3)).eval()
    words = ["precision must be float32 where a ball is searched around views, got a lower one: leave out radius or precision"]
    refused(drq.DRQ, model, "linf", 0.1, views=Mirror(), precision="bfloat16", words=words)
    assert drq.DRQ(model, views=Mirror(), precision="bfloat16").precision == "bfloat16"
