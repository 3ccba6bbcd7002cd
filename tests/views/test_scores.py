"""Scores of DRQ over views: the label is their argmax, they are finite, and their slopes are those of the view that spoke."""

import math

import pytest
import torch
from testbed.classifiers import inputs
from testbed.every_view import EVERY, SHAPES, batch, each_set, flat
from torch import nn

import drq
from drq.objectives import log_odds
from drq.views import Gate, Mirror, Rotation, Shift

VIEWS = Rotation(90, 5) + Mirror()
SHAPE = (3, 6, 6)


def gate(standardised: bool, threshold: float = 0.2) -> Gate:
    others = len(VIEWS) - 1
    habits = ([0.1 * each - 0.2 for each in range(others)], [0.7 + 0.2 * each for each in range(others)])
    return Gate(threshold, *(habits if standardised else ((), ())))


GATES = {"none": None, "plain": gate(False), "standardised": gate(True)}
each_gate = pytest.mark.parametrize("gated", GATES)


@each_set
def test_the_argmax_is_the_label(name):
    x, shape = batch(SHAPES[name], 30), SHAPES[name]
    for held in (None, Gate(0.5)):
        robust = drq.DRQ(flat(shape), views=EVERY[name], gate=held)
        found, scores = robust.decide(x), robust(x)
        assert torch.equal(scores.argmax(1), found.label)
        torch.testing.assert_close(scores, found.robustness.log())
        assert scores.isfinite().all()
        differentiable = robust(x.clone().requires_grad_())
        assert differentiable.requires_grad
        torch.testing.assert_close(differentiable.detach(), scores, rtol=0, atol=1e-9)


@each_gate
@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_slopes_are_those_of_the_view_that_spoke(gated, alpha):
    """Of every class by itself: the view by which it counts, as autograd differentiates it; at the input where the gate held."""
    model, x, held = flat(SHAPE), batch(SHAPE, 20), GATES[gated]
    robust = drq.DRQ(model, views=VIEWS, gate=held, alpha=alpha, keep_points=True)
    found = robust.decide(x)
    assert held is None or 0 < int(found.kept.sum()) < 20
    points = x.clone().requires_grad_()
    scores = robust(points)
    slopes = [torch.autograd.grad(scores[:, each].sum(), points, retain_graph=True)[0] for each in range(5)]
    for number in range(20):
        here = x[number : number + 1].clone().requires_grad_()
        base = int(found.base_label[number])
        for each in range(5):
            seen = [view for view in range(len(VIEWS)) if torch.equal(VIEWS[view](here)[0], found.quantified[number, each])]
            view = 0 if found.kept[number] else seen[0]
            value = log_odds(model(VIEWS[view](here)))[0, each]
            if view and held is not None and held.mean:
                own = log_odds(model(here))[0, base]
                value = own + (value - own - held.mean[view - 1]) / held.deviation[view - 1]
            torch.testing.assert_close(scores[number, each], value.sigmoid().log())
            (expected,) = torch.autograd.grad(value.sigmoid().log(), here)
            torch.testing.assert_close(slopes[each][number : number + 1], expected, rtol=0, atol=1e-9)


@each_gate
def test_slopes_are_those_of_differences(gated):
    x = batch(SHAPE, 3)
    robust = drq.DRQ(flat(SHAPE), views=VIEWS, gate=GATES[gated], chunk=4)
    assert torch.autograd.gradcheck(robust, x.requires_grad_(), eps=1e-6, atol=1e-5)


def test_slopes_reach_through_a_front_and_functions_of_your_own():
    front = drq.Restoration()
    robust = drq.DRQ(flat(SHAPE), views=Mirror() * torch.sqrt + drq.views.Detail(), front=front)
    assert torch.autograd.gradcheck(robust, (0.1 + 0.8 * batch(SHAPE, 2)).requires_grad_(), eps=1e-7, atol=1e-4)
    inner = drq.DRQ(flat(SHAPE), views=robust.views)
    x = batch(SHAPE, 5)
    torch.testing.assert_close(robust(x), inner(front(x)))
    assert torch.equal(robust.decide(x).label, inner.decide(front(x)).label)


class Sure(nn.Module):
    """Logits far beyond what confidences can tell."""

    def forward(self, x):
        mean = x.mean((1, 2, 3))
        return torch.stack([1e4 * mean, 1e4 * x[:, 0, 0, 0], 0 * mean], 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_they_are_finite_and_tell_classes_apart(dtype):
    x = inputs(0, 20, *SHAPE).to(dtype)
    robust = drq.DRQ(Sure().eval(), views=VIEWS, classes=2)
    found, scores = robust.decide(x), robust(x.requires_grad_())
    assert scores.isfinite().all()
    assert torch.equal(scores.argmax(1), found.label)
    assert (scores[~found.reached] == -1e4).all()
    assert (scores[found.reached] >= -9e3).all()
    (slope,) = torch.autograd.grad(scores.sum(), x)
    assert slope.isfinite().all()


@pytest.mark.parametrize("chunk", [None, 1, 3])
def test_passes_are_those_that_the_model_saw(chunk):
    model, rows = flat(SHAPE), []
    model.register_forward_hook(lambda _module, given, _output: rows.append(len(given[0])))
    robust = drq.DRQ(model, views=VIEWS, chunk=chunk)
    x = batch(SHAPE, 9)
    robust.decide(x)
    for call in (lambda: robust.decide(x).passes, lambda: robust.scored(x)[1]):
        rows.clear()
        assert sum(call().tolist()) == sum(rows) == 9 * len(VIEWS)
        assert max(rows) <= (chunk or math.inf)
    rows.clear()
    passes = robust.scored(x.clone().requires_grad_())[1]
    assert sum(rows) == int(passes.sum()) <= 9 * (2 * len(VIEWS))
    assert (passes > len(VIEWS)).all()
    assert robust.most_passes(5) == len(VIEWS)


def test_memory_is_bounded_by_chunk():
    """No tensor that a view makes, or that the model sees, has more rows; progress counts every pass."""
    most, told = [], []

    def watched(x):
        most.append(len(x))
        return x.flip(3)

    robust = drq.DRQ(flat(SHAPE), views=Shift(1) * watched, chunk=6, progress=lambda done, total: told.append((done, total)))
    found = robust.decide(batch(SHAPE, 40))
    assert max(most) == 6
    assert told[-1] == (400, 400)
    assert found.passes.tolist() == [10] * 40
