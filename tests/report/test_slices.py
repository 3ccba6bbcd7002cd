"""Slices on the card: the plane through the input and both explored points, with the regions that lie there."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from testbed.brightness import Quarters
from testbed.explained import about, images, titled
from testbed.refusals import refused
from torch import nn

import drq
from drq.planes import slices
from drq.report import plane_plots, plots


def test_a_slice_goes_through_the_input_and_both_explored_points():
    robust, decision = about()
    plane = robust.slice(decision, pixels=8)
    torch.testing.assert_close(plane.point, torch.zeros(2, dtype=torch.float64))
    u, v = plane.axes.u.flatten(), plane.axes.v.flatten()
    torch.testing.assert_close(torch.stack([u, v]) @ torch.stack([u, v]).T, torch.eye(2), atol=1e-6, rtol=0)
    for place, label in enumerate((decision.label, decision.runner_up)):
        (point,) = decision.points_of(label)[0]
        at = plane.axes.coordinates(point[None])
        back = plane.axes.points(at[0, :1], at[0, 1:])
        torch.testing.assert_close(back[0], point, atol=1e-5, rtol=0)  # it lies in the plane
        assert at.norm().item() == pytest.approx((point - decision.x[0]).norm().item(), rel=1e-4)
        assert plane.extent[0] < at[0, 0] < plane.extent[1]
        assert plane.extent[2] < at[0, 1] < plane.extent[3]
        if place == 0:
            assert at[0, 1].item() == pytest.approx(0, abs=1e-5)
    figure = plots.card(decision, plane)
    for title in ("the model alone", "DRQ"):
        ax = titled(figure, title)
        marks = {each.get_label(): each.get_xydata()[0] for each in ax.lines if not each.get_label().startswith("_")}
        np.testing.assert_allclose(marks["input"], [0, 0], atol=1e-6)
        for role, label in (("winner", decision.label), ("runner-up", decision.runner_up)):
            expected = plane.axes.coordinates(decision.points_of(label)[0])[0]
            np.testing.assert_allclose(marks[f"explored, {role}"], expected, atol=1e-6)
        assert ax.get_xlim() == pytest.approx(plane.extent[:2])


def test_regions_of_a_slice_are_those_of_the_plane(monkeypatch):
    """Both are drawn by drq.report.plots.plane; the winner is the first class there, and no class is lost."""
    robust, decision = about()
    plane, drawn = robust.plane(decision.x, *slices.directions(decision), (-1, 4, -1, 4), 8), {}
    assert 0 < plane.inside.sum() < 64
    monkeypatch.setattr(plane_plots, "plane", lambda plane, _, show: drawn.update({show: plane}))
    plots.card(decision, plane)
    assert set(drawn) == {"base", "drq"}
    for name in ("label", "base_label"):
        before, after = getattr(plane, name), getattr(drawn["drq"], name)
        assert torch.equal(after == 0, before == decision.label)
        assert torch.equal(after == 1, before == decision.runner_up)
        assert torch.equal(after == -1, before == -1)


def test_a_slice_keeps_the_points_of_its_input_alone(monkeypatch):
    """Two points for every class at every place of a slice of photographs would fill the memory."""
    robust, decision = about()
    kept, decide = [], drq.DRQ.decide
    monkeypatch.setattr(drq.DRQ, "decide", lambda self, x, *_: kept.append((len(x), self.keep_points)) or decide(self, x))
    robust.slice(decision, 6)
    assert kept == [(1, True), (36, False)]


def test_a_slice_tells_how_far_it_is():
    """In passes of the model for all of its points; without it, nobody is told."""
    robust, decision = about()
    told = []
    robust.slice(decision, 6, lambda done, total: told.append((done, total)))
    assert told[-1][0] == told[-1][1]
    assert told == sorted(told, key=lambda each: each[0] / each[1])
    assert 36 < told[-1][0] <= 36 * robust.most_passes(4)
    told.clear()
    robust.variant(progress=lambda *each: told.append(each)).slice(decision, 6)
    assert told == []


def test_a_slice_answers_beyond_the_input_box_at_its_edge():
    robust = drq.DRQ(Quarters().eval(), "linf", 0.1, keep_points=True)
    x = images(1)[:1].round()  # black and white: every direction but towards the explored points leaves the box
    decision = robust.decide(x)
    plane = robust.slice(decision, pixels=6)
    assert plane.inside.all()
    points = plane.axes.points(plane.across, plane.up).clamp(0, 1)
    assert torch.equal(plane.label.flatten(), robust.decide(points).label)
    assert not robust.plane(x, plane.axes.u, plane.axes.v, plane.extent, 6).inside.all()


@pytest.mark.parametrize("case", ["no radius", "parallel", "one of them is the input", "no runner-up"])
def test_directions_that_add_nothing(case):
    """A random direction stands in: always the same, orthogonal to the other and of length 1."""
    decision = about()[1]
    explored, label, second = decision.explored.clone(), int(decision.label), int(decision.runner_up)
    if case == "no radius":
        explored[:] = decision.x[:, None]
    if case == "parallel":
        explored[0, second] = decision.x[0] - 2 * (explored[0, label] - decision.x[0])
    if case == "one of them is the input":
        explored[0, label] = decision.x[0]
    if case == "no runner-up":
        explored[0, second] = torch.nan
    changed = replace(decision, explored=explored)
    u, v = (each.flatten() for each in slices.directions(changed))
    torch.testing.assert_close(torch.stack([u @ u, v @ v, u @ v]), torch.tensor([1.0, 1, 0], dtype=torch.float64))
    assert torch.equal(v, slices.directions(changed)[1].flatten())
    kept = {"parallel": label, "no runner-up": label, "one of them is the input": second}
    if case in kept:
        offset = (explored[0, kept[case]] - decision.x[0]).flatten().double()
        along = torch.stack([u @ offset, v @ offset])
        assert along.norm().item() == pytest.approx(offset.norm().item(), rel=1e-5)


def test_a_line_has_no_slices():
    robust = drq.DRQ(nn.Linear(1, 2).eval(), "l2", 0.1, keep_points=True)
    refused(robust.slice, robust.decide(torch.tensor([[0.5]])), words=["decision must be about at least 2 features, got 1"])
