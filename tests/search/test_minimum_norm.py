"""Calibration against exact distances, brute force and laws."""

import pytest
import torch
from testbed.classifiers import inputs, linear, network

import drq
from drq.objectives import confident_elsewhere, log_odds

every_norm = pytest.mark.parametrize("norm", [drq.L1(), drq.L2(), drq.Linf()], ids=repr)


def gaussian(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@every_norm
@pytest.mark.parametrize("confidence", [0.5, 0.7, 0.9, None])
@pytest.mark.parametrize("dimension", [2, 10, 60, 200])
def test_distance_to_the_confident_half_space(norm, confidence, dimension):
    """Class j is predicted with confidence c where its log-odds are at least logit(c): a half-space at a known distance."""
    weight, x = gaussian(dimension, dimension), gaussian(dimension + 1, 40, dimension)
    margin = (x @ weight + 0.3).abs()
    goal = margin if confidence is None else torch.tensor(confidence, dtype=torch.float64).logit().clamp(min=0)
    exact = (margin + goal) / norm.dual_length(weight[None])
    radius, found = drq.calibrate(linear(weight, 0.3), x, norm, confidence, bounds=None)
    excess = radius / exact - 1
    assert found.all()
    assert (excess > -1e-9).all()  # no point nearer than the exact distance can be confident
    if norm == drq.L1():
        assert excess.median() < 0.02
        assert excess.max() < 0.10
    else:
        assert excess.max() < 0.02


@every_norm
@pytest.mark.parametrize("confidence", [0.5, 0.8])
def test_brute_force_grid_on_a_network(norm, confidence):
    spacing = 1 / 400
    axis = torch.arange(401, dtype=torch.float64) * spacing
    grid = torch.cartesian_prod(axis, axis)
    ours, brute = [], []
    for seed in range(8):
        model, x = network(seed, features=2, classes=3, gain=4), inputs(seed, 25, 2)
        with torch.no_grad():
            share, label = model(grid).softmax(1), model(x).argmax(1)
        radius, _ = drq.calibrate(model, x, norm, confidence)
        for own, row in zip(label, range(25), strict=True):
            elsewhere = grid[(share.amax(1) >= confidence) & (share.argmax(1) != own)]
            if len(elsewhere):
                ours.append(radius[row])
                brute.append(norm.length(elsewhere - x[row]).min())
    ours, brute = torch.stack(ours), torch.stack(brute)
    assert len(ours) > 100
    assert abs((ours / brute).median() - 1) < 0.05
    assert (ours < torch.inf).double().mean() > 0.7  # one local search from one start: not every corner of a box is left
    cell = norm.length(torch.full((1, 2), spacing, dtype=torch.float64))
    assert (ours >= brute - cell).all()  # what the grid misses is at most a cell away


@every_norm
def test_scaling_the_input_scales_the_radius(norm):
    model, x = network(4), inputs(4, 10, 4)
    plain, _ = drq.calibrate(model, x, norm, 0.6, bounds=None)
    for scale in (2.0**-10, 2.0**10):  # powers of 2 do not round
        scaled, _ = drq.calibrate(lambda z, s=scale: model(z / s), x * scale, norm, 0.6, bounds=None)
        torch.testing.assert_close(scaled, plain * scale, rtol=1e-9, atol=0)


@every_norm
def test_nearest_returns_the_point_at_its_distance_in_the_box(norm):
    model, x = network(5, gain=5), inputs(5, 30, 4)
    label = model(x).argmax(1)
    objective = confident_elsewhere(model, label, 0.6)
    found = drq.nearest(objective, x, norm)
    assert found.admitted.double().mean() > 0.9
    assert ((found.point >= 0) & (found.point <= 1)).all()
    found, x, label = found[found.admitted], x[found.admitted], label[found.admitted]
    torch.testing.assert_close(norm.length(found.point - x), found.merit)
    share = model(found.point).softmax(1)
    assert (share.argmax(1) != label).all()
    assert (share.amax(1) >= 0.6 - 1e-12).all()


def test_projection_is_really_made_in_l2():
    """A point that lies on the far side of the ball is pulled back to it: some ports never project, or always rescale."""
    weight, x = torch.tensor([3.0, 4.0], dtype=torch.float64), torch.zeros(1, 2, dtype=torch.float64)
    objective = confident_elsewhere(linear(weight, -1.0), torch.tensor([0]), 0.0)
    found = drq.nearest(objective, x, "l2", bounds=None, steps=200)
    torch.testing.assert_close(found.point, weight[None] / 25, rtol=1e-4, atol=1e-4)


def test_more_confidence_needs_a_larger_radius():
    model, x = network(6, gain=5), inputs(6, 20, 4)
    radii = [drq.calibrate(model, x, "l2", c)[0] for c in (0.3, 0.6, 0.9)]
    assert (radii[0] <= radii[1] * 1.02).all()
    assert (radii[1] <= radii[2] * 1.02).all()


def test_no_point_found():
    bias = torch.tensor([5.0, 0.0])
    radius, found = drq.calibrate(lambda x: bias + 0 * x[:, :1], torch.rand(3, 2), "l2", 0.5)
    assert not found.any()
    assert radius.isinf().all()


def test_search_goes_on_along_the_edge_of_the_box():
    """The gradient points out of the box in the first feature; the way is along the second."""
    model = torch.nn.Linear(2, 2).double().eval()
    model.weight.data = torch.tensor([[10.0, 10.0], [0.0, 0.0]], dtype=torch.float64)
    model.bias.data = torch.tensor([-3.0, 0.0], dtype=torch.float64)
    radius, _ = drq.calibrate(model, torch.tensor([[0.0, 0.5]], dtype=torch.float64), "l2", 0.5)
    assert radius.item() == pytest.approx(0.2, rel=1e-3)


@every_norm
def test_features_of_very_different_scales_in_a_box(norm):
    """A table: small features reach their bounds at once, and the ball must not pull them back again and again."""
    scale = torch.logspace(-3, 3, 30, dtype=torch.float64)
    weight, x = 2 * gaussian(0, 30), inputs(3, 60, 30)
    _, found = drq.calibrate(linear(weight / scale, -weight.sum().item() / 2), x * scale, norm, bounds=(0 * scale, scale))
    assert found.all()


def test_frozen_features_lengthen_the_way():
    weight = torch.tensor([4.0, 1.0], dtype=torch.float64)
    x = torch.tensor([[0.5, 0.2]], dtype=torch.float64)
    frozen = torch.tensor([True, False])
    model = linear(weight, -2.5)
    free, _ = drq.calibrate(model, x, "l2", 0.5, bounds=None)
    held, _ = drq.calibrate(model, x, "l2", 0.5, bounds=None, frozen=frozen)
    torch.testing.assert_close(free, torch.tensor([0.3 / 17**0.5], dtype=torch.float64), rtol=0.01, atol=0)
    torch.testing.assert_close(held, torch.tensor([0.3], dtype=torch.float64), rtol=0.01, atol=0)


def test_saturated_confidence_calibrates():
    """In float32 both confidences are exactly 1, yet the distance is that of equal log-odds on the other side."""
    weight, x = torch.tensor([400.0, 300.0]), torch.tensor([[0.6, 0.4], [0.9, 0.2]])
    model = linear(weight.double(), -200.0).float()
    margin = (x @ weight - 200).abs()
    assert (model(x).softmax(1).amax(1) == 1).all()
    assert (log_odds(model(x)).amax(1) > 17).all()
    radius, found = drq.calibrate(model, x, "l2", bounds=None)
    assert found.all()
    torch.testing.assert_close(radius, 2 * margin / 500, rtol=0.02, atol=0)
