"""Points in the plane and a machine that separates them: the first figure of the paper."""

import sys

import numpy as np
import pytest
import torch
from refusals import refused
from scipy.integrate import quad
from scipy.ndimage import label
from scipy.stats import norm as gaussian

import drq
from drq import models
from drq.data.plane import COUNTS, DEVIATION, MEANS, points
from drq.models import plane


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
