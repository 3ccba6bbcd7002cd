"""Points in the plane and a machine that separates them, and planes through any input: the first figure of the paper."""

import sys
import time
from dataclasses import replace
from threading import Lock, get_ident

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from scipy.integrate import quad
from scipy.ndimage import label
from scipy.stats import norm as gaussian
from testbed.refusals import refused
from torch import nn

import drq
from drq import models
from drq.data.plane import COUNTS, DEVIATION, MEANS, points
from drq.models import plane
from drq.report import plots


def test_points_lie_in_the_square_and_are_always_the_same():
    for split, count in COUNTS.items():
        data = drq.load_data("gaussians", split)
        x, y = data.batch(range(len(data)))
        assert x.shape == (count, 2)
        assert 0 <= x.min() < x.max() <= 1
        assert torch.equal(torch.bincount(y), torch.tensor([count // 2] * 2))
        assert torch.equal(x, points(split)[0])
    assert not set(map(tuple, points("train")[0].tolist())) & set(map(tuple, points("test")[0].tolist()))


def test_they_are_of_two_gaussians():
    """The mean and the share beyond the straight line x + y = 1, with the square's edges counted."""
    x, y = (each.double() for each in points("test"))
    edges = [(side - MEANS[0][0]) / DEVIATION for side in (0, 1)]
    inside = gaussian.cdf(edges[1]) - gaussian.cdf(edges[0])
    mean = MEANS[0][0] + DEVIATION * (gaussian.pdf(edges[0]) - gaussian.pdf(edges[1])) / inside
    below, _ = quad(
        lambda a: gaussian.pdf(a) * (gaussian.cdf((1 - 2 * MEANS[0][0]) / DEVIATION - a) - gaussian.cdf(edges[0])), *edges
    )
    turned = torch.where(y[:, None] == 1, 1 - x, x)  # the second is the first, turned about the centre
    assert turned.mean(0).tolist() == pytest.approx([mean, mean], abs=4 * DEVIATION / 1000**0.5)
    share, exact = (turned.sum(1) < 1).double().mean().item(), below / inside**2
    assert share == pytest.approx(exact, abs=4 * (exact * (1 - exact) / 1000) ** 0.5)
    assert exact == pytest.approx(0.92, abs=0.01)


def test_the_machine_is_that_of_scikit_learn():
    grid = torch.cartesian_prod(*[torch.linspace(0, 1, 15)] * 2)
    model = drq.load_model("gaussians-svm")
    np.testing.assert_allclose(model(grid).softmax(1), plane.fitted().predict_proba(grid.numpy()), atol=1e-6)
    assert torch.equal(model(grid), drq.load_model("gaussians-svm")(grid))
    assert not model.training
    assert model.card.classes == drq.load_data("gaussians").classes


def test_drq_removes_pockets():
    """Figure 1 (d): fewer connected pieces of the plane, and more points that are right."""
    model, side = drq.load_model("gaussians-svm"), 40
    robust = drq.DRQ(model, "l2", 0.1)
    middles = (torch.arange(side) + 0.5) / side
    grid = torch.cartesian_prod(middles, middles)

    def pieces(labels: torch.Tensor) -> int:
        return sum(label((labels == each).view(side, side).numpy())[1] for each in (0, 1))

    assert pieces(model(grid).argmax(1)) > pieces(robust.decide(grid).label)
    x, y = drq.load_data("gaussians", limit=500).batch(range(500))
    assert (robust.decide(x).label == y).sum() > (model(x).argmax(1) == y).sum()


def test_they_are_listed():
    assert {entry.name: entry.present for entry in drq.data.list()}["gaussians"]
    assert {entry.name: entry.present for entry in models.list()}["gaussians-svm"]


def test_without_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    refused(drq.load_model, "gaussians-svm", words=["sklearn must be installed for gaussians-svm", "[demo]"])
    assert len(drq.load_data("gaussians")) == 1000


def test_a_view_is_refused():
    refused(drq.load_data, "gaussians", view=drq.models.View(8, 8), words=["view must be None"])


def linear(weight, bias=None):
    """Logits w x + b, one row of weights for each class."""
    model = nn.Linear(len(weight[0]), len(weight))
    with torch.no_grad():
        model.weight.copy_(torch.tensor(weight))
        model.bias.copy_(torch.tensor(bias or [0.0] * len(weight)))
    return model.eval()


@pytest.fixture(scope="module")
def machine():
    return drq.DRQ(drq.load_model("gaussians-svm"), "l2", drq.Calibrated(0.9))


@pytest.fixture(scope="module")
def sample():
    """A test point that is corrected."""
    return drq.load_data("gaussians").batch([40])[0]


@pytest.fixture(scope="module")
def seen(machine, sample):
    return machine.plane(sample, pixels=24)


def test_a_grid_point_has_the_answer_that_it_has_alone(machine, sample, seen):
    """The radius is that of the input, for all of them."""
    assert seen.extent == (0, 1, 0, 1)
    assert seen.radius == machine.decide(sample).radius.item() > 0
    alone = machine.variant(radius=seen.radius)
    for row, column in [(0, 0), (7, 20), (12, 11), (23, 23), *torch.nonzero(seen.label != seen.base_label)[:3].tolist()]:
        x = torch.tensor([[(column + 0.5) / 24, (row + 0.5) / 24]])
        found, logits = alone.decide(x), machine.model(x)
        assert seen.across[column] == pytest.approx(x[0, 0].item())
        assert seen.up[row] == pytest.approx(x[0, 1].item())
        assert seen.label[row, column] == found.label
        assert seen.robustness[row, column] == pytest.approx(found.robustness[0, found.label].item(), abs=1e-5)
        assert seen.margin[row, column] == pytest.approx(found.margin.item(), abs=1e-5)
        assert seen.base_label[row, column] == logits.argmax()
        assert seen.base_confidence[row, column] == pytest.approx(logits.softmax(1).max().item(), abs=1e-6)
    assert seen.inside.all()
    assert (seen.label != seen.base_label).any()


def test_what_was_done_at_the_input(machine, sample, seen):
    decision = machine.variant(keep_points=True).decide(sample)
    assert torch.equal(seen.decision.label, decision.label)
    torch.testing.assert_close(seen.point, sample[0].double())
    torch.testing.assert_close(seen.explored, decision.explored[0].double())
    torch.testing.assert_close(seen.quantified, decision.quantified[0].double())
    assert (seen.nearest - seen.point).norm().item() == pytest.approx(seen.radius, rel=1e-5)
    confidence = machine.model(seen.calibrated).softmax(1)[0]
    assert seen.calibrated_label == confidence.argmax() != decision.base_label
    assert confidence.max() >= 0.9


def test_calibration_everywhere(machine, sample, seen):
    every = machine.plane(sample, pixels=24, everywhere=True)
    at = torch.cartesian_prod(seen.up, seen.across).flip(1)
    assert torch.equal(every.label.flatten(), machine.decide(at).label)
    assert not torch.equal(every.label, seen.label)


def test_all_points_are_decided_in_one_call(machine, sample, monkeypatch):
    sizes, decide = [], drq.DRQ.decide
    monkeypatch.setattr(drq.DRQ, "decide", lambda self, x: sizes.append(len(x)) or decide(self, x))
    machine.plane(sample, pixels=10)
    assert sizes == [1, 100]


class Forgetful(nn.Module):
    """Notes something in itself between its layers: another thread in the same module would change its answers."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([[3.0, -1.0], [-1.0, 2.0]]))

    def forward(self, x):
        self.noted = x
        time.sleep(1e-4)
        return (self.noted @ self.weight).tanh() * 4


def test_threads_change_nothing(monkeypatch):
    """A small model on a CPU is asked in as many threads as torch has, each with a copy of its own."""
    robust, x = drq.DRQ(Forgetful().eval(), "l2", 0.1), torch.tensor([[0.4, 0.6]])
    alone = robust.plane(x, pixels=24)
    monkeypatch.setattr("drq.planes.plane.LEAST_POINTS", 100)
    workers, decide = set(), drq.DRQ.decide
    monkeypatch.setattr(drq.DRQ, "decide", lambda self, x: workers.add((get_ident(), id(self.model))) or decide(self, x))
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        shared = robust.plane(x, pixels=24)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    pool = {each for each in workers if each[0] != get_ident()}
    assert len(pool) == len({model for _, model in pool}) == 3
    for name in ("label", "base_label", "robustness", "margin", "inside"):
        torch.testing.assert_close(getattr(shared, name), getattr(alone, name), msg=name)


def test_a_model_that_cannot_be_copied_is_asked_in_one_thread(monkeypatch):
    model = Forgetful().eval()
    model.locked = Lock()  # which cannot be copied
    robust, x = drq.DRQ(model, "l2", 0.1), torch.tensor([[0.4, 0.6]])
    monkeypatch.setattr("drq.planes.plane.LEAST_POINTS", 100)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    sizes, decide = [], drq.DRQ.decide
    monkeypatch.setattr(drq.DRQ, "decide", lambda self, x: sizes.append(len(x)) or decide(self, x))
    robust.plane(x, pixels=24)
    assert sizes == [1, 576]


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_the_boundary_of_a_linear_classifier_stays(norm):
    """Classes 1 and 2 meet on 3 a + b = 2: from there both are explored, and quantified, equally far."""
    model = linear([[-3.0, -1.0], [3.0, 1.0]], [2.0, -2.0])
    found = drq.DRQ(model, norm, 0.2, bounds=None).plane(torch.tensor([[0.4, 0.4]]), extent=(0, 1, -1, 1), pixels=30)
    beyond = 3 * found.across[None, :] + found.up[:, None] - 2
    clear = beyond.abs() > 1e-4
    assert clear.float().mean() > 0.9
    assert torch.equal(found.label[clear], (beyond > 0).long()[clear])
    steps = {"l2": 10**0.5, "linf": 4.0}  # how much 3 a + b gains by a step of length 1
    best = 2 * (beyond.abs() + (1 - 0.5) * 0.2 * steps[norm])  # explored by the radius, quantified back by half of it
    torch.testing.assert_close(found.robustness, best.sigmoid(), rtol=0, atol=1e-5)


SKEW = (torch.tensor([2.0, 0.0, 0.0]), torch.tensor([1.0, 0.5, 0.0]))  # neither orthogonal nor of length 1


def test_coordinates_are_of_the_given_vectors():
    """Three features: what leaves the box is left out, and points off the plane are seen from above."""
    u, v = SKEW
    x, model = torch.tensor([[0.5, 0.5, 0.5]]), linear([[1.0, 0.0, 2.0], [0.0, 1.0, 0.0]])
    robust = drq.DRQ(model, "l2", 0.1)
    found = robust.plane(x, u, v[None], extent=(-0.5, 0.5, -1, 1), pixels=20)
    assert found.point.tolist() == [0, 0]
    torch.testing.assert_close(found.axes.coordinates(x + 0.3 * u - 2 * v)[0], torch.tensor([0.3, -2.0]).double())
    above = torch.tensor([0.0, 0.0, 7.0])
    torch.testing.assert_close(found.axes.coordinates(x + 0.3 * u - 2 * v + above)[0], torch.tensor([0.3, -2.0]).double())
    points = x[0] + found.across[None, :, None] * u + found.up[:, None, None] * v
    inside = ((points > -1e-6) & (points < 1 + 1e-6)).all(2)  # some are on the edge, but for rounding
    assert 0 < inside.sum() < inside.numel()
    assert torch.equal(found.inside, inside)
    assert torch.equal(found.label[inside], robust.decide(points[inside]).label)
    assert (found.label[~inside] == -1).all()
    assert found.robustness[~inside].isnan().all()
    ax = plots.plane(found, show="base")
    assert ax.get_xlim() == (-0.5, 0.5)


def test_balls_have_the_form_of_their_norm():
    """In coordinates of skew vectors every corner of the outline is a point at the distance of the radius."""
    model, x = linear([[1.0, 0.0, 2.0], [0.0, 1.0, 0.0]]), torch.tensor([[0.5, 0.5, 0.5]])
    u, v = SKEW
    for norm in (drq.L2(), drq.Linf(), drq.L1()):
        found = drq.DRQ(model, norm, 0.1).plane(x, u, v, pixels=2)
        outline = found.outline(found.point, 0.25)
        offset = outline[:, :1] * u.double() + outline[:, 1:] * v.double()
        torch.testing.assert_close(norm.length(offset), torch.full((361,), 0.25).double())
        assert outline[0].tolist() == pytest.approx(outline[-1].tolist())


def test_images():
    model = nn.Sequential(nn.Flatten(), linear([[1.0] * 12, [0.0] * 12, [-1.0] * 12], [0.0, 6.5, 12.0])).eval()
    x = torch.full((1, 3, 2, 2), 0.5)
    u, v = torch.zeros(2, 3, 2, 2)
    u[0], v[1:] = 0.4, 0.4
    found = drq.DRQ(model, "linf", 0.1).plane(x, u, v, pixels=12)
    assert found.label.shape == (12, 12)
    assert found.explored.shape == (3, 2)
    assert set(found.base_label.flatten().tolist()) == {0, 1, 2}
    assert found.nearest is None


def test_refusals():
    robust, x = drq.DRQ(linear([[1.0, 0.0], [0.0, 1.0]]), "l2", 0.1), torch.tensor([[0.2, 0.6]])
    one, other = torch.eye(2)
    refused(robust.plane, x[0], words=["x must be a batch of one sample, got shape (2,)", "x[None]"])
    refused(robust.plane, x.expand(3, 2), words=["x must be a batch of one sample, got shape (3, 2)"])
    refused(robust.plane, [0.2, 0.6], words=["x must be a batch of one sample, got list"])
    refused(robust.plane, x, one, words=["v must have the shape (2,)", "NoneType", "both directions"])
    refused(robust.plane, x, one, torch.ones(3), words=["v must have the shape (2,) of a sample, got shape (3,)"])
    refused(robust.plane, x, one, -2 * one, words=["v must point in another direction than u"])
    refused(robust.plane, x, 0 * one, other, words=["neither be 0"])
    refused(robust.plane, x, extent=(1, 0, 0, 1), words=["extent must be finite (lowest a, highest a"])
    refused(robust.plane, x, pixels=1, words=["pixels must be a whole number of at least 2"])
    refused(robust.variant(bounds=None).plane, x, words=["extent must be given where inputs have no bounds"])
    wide = drq.DRQ(linear([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]), "l2", 0.1)
    refused(wide.plane, torch.rand(1, 3), words=["x must have two features where there are no u and v", "(3,)"])
    lost = drq.DRQ(linear([[0.0, 0.0], [1.0, 1.0]], [9.0, 0.0]), "l2")
    refused(lost.plane, x, words=["x must have a radius", "everywhere=True"])
    refused(plots.plane, robust.plane(x, pixels=2), show="both", words=["show must be 'drq' or 'base', got 'both'"])


def test_figure1_has_four_panels(seen):
    figure = plots.figure1(seen, drq.load_data("gaussians", "train").batch(range(200)))
    assert [ax.get_title("left")[:3] for ax in figure.axes] == ["(a)", "(b)", "(c)", "(d)"]
    markers = [{line.get_marker() for line in ax.get_lines()} - {"None"} for ax in figure.axes]
    assert markers == [{"o", "^", "D"}, {"o", "^", "X"}, {"o", "^", "X", "s"}, {"o", "^"}]
    forms = [sum(line.get_label().startswith("radius") for line in ax.get_lines()) for ax in figure.axes]
    assert forms == [1, 1, 2, 0]
    names = [each.get_text() for each in figure.legends[0].get_texts()]
    assert len(names) == len(set(names)) == 11
    assert "sample of class 1, taken for 2" in names


def test_pictures_ask_no_model_and_show_what_the_plane_holds(seen):
    """A plane whose labels were exchanged is drawn so, in axes of the caller."""
    ax = Figure().subplots()
    assert plots.plane(seen, ax) is ax
    tints = [each.get_facecolor()[0] for each in ax.collections if len(each.get_facecolor())]
    alone = replace(seen, label=torch.ones_like(seen.label))
    only = [each.get_facecolor()[0] for each in plots.plane(alone).collections if len(each.get_facecolor())]
    assert len(tints) == 2
    np.testing.assert_array_equal(only, tints[1:])
