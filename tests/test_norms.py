"""Laws of the geometry, for every norm."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from testbed.classifiers import inputs
from torch import Tensor

import drq

NORMS = [drq.L1(), drq.L2(), drq.Linf()]
ORDER = {drq.L1(): 1, drq.L2(): 2, drq.Linf(): float("inf")}
every_norm = pytest.mark.parametrize("norm", NORMS, ids=repr)
steady = settings(deadline=None, derandomize=True, max_examples=60)


def gaussian(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@every_norm
def test_length_is_the_norm_of_torch(norm):
    vector = gaussian(0, 7, 3, 4)
    expected = torch.linalg.vector_norm(vector.flatten(1), ORDER[norm], dim=1)
    torch.testing.assert_close(norm.length(vector), expected)


@every_norm
def test_dual_length_is_the_largest_inner_product(norm):
    gradient = gaussian(1, 6, 5)
    steepest = norm.steepest(gradient)
    torch.testing.assert_close(norm.length(steepest), torch.ones(6, dtype=torch.float64))
    torch.testing.assert_close((steepest * gradient).sum(1), norm.dual_length(gradient))
    others = norm.sample((4000, 5), torch.Generator().manual_seed(0))
    assert ((others @ gradient.T) <= norm.dual_length(gradient) + 1e-12).all()


@every_norm
def test_steepest_of_zero_is_zero(norm):
    assert (norm.steepest(torch.zeros(2, 3)) == 0).all()


def test_l1_spends_its_step_on_a_movable_feature():
    gradient = torch.tensor([[3.0, -2.0, 1.0]])
    movable = torch.tensor([[False, True, True]])
    assert drq.L1().steepest(gradient, movable).tolist() == [[0.0, -1.0, 0.0]]
    ball = drq.Ball(torch.tensor([[0.0, 0.5, 0.5]]), 1.0, "l1", bounds=(0, 1))
    assert ball.steepest_descent(ball.center, gradient).tolist() == [[0.0, 1.0, 0.0]]


@every_norm
@steady
@given(seed=st.integers(0, 10_000), radius=st.floats(0.0, 3.0), scale=st.floats(0.01, 10.0))
def test_projection_is_the_nearest_point_of_the_ball(norm, seed, radius, scale):
    vector = gaussian(seed, 4, 6) * scale
    limit = torch.full((4,), radius, dtype=torch.float64)
    projected = norm.project(vector, limit)
    assert (norm.length(projected) <= limit * (1 + 1e-9) + 1e-12).all()
    torch.testing.assert_close(norm.project(projected, limit), projected, rtol=1e-9, atol=1e-12)  # idempotence
    # The obtuse angle criterion characterises the Euclidean projection on a convex set: <v - Pv, q - Pv> <= 0 for all q in it.
    inside = norm.sample((200, 6), torch.Generator().manual_seed(seed)) * radius
    angle = torch.einsum("nd,nmd->nm", vector - projected, inside[None] - projected[:, None])
    assert (angle <= 1e-9 * (1 + scale**2)).all()


@every_norm
def test_projection_leaves_inner_points_and_reaches_the_boundary_from_outside(norm):
    vector = gaussian(3, 50, 8)
    length = norm.length(vector)
    assert torch.equal(norm.project(vector, length * 1.01), vector)
    torch.testing.assert_close(norm.length(norm.project(vector, length * 0.4)), length * 0.4)


@every_norm
def test_samples_are_uniform_in_the_ball(norm):
    dimension, share = 3, 0.7
    samples = norm.sample((20_000, dimension), torch.Generator().manual_seed(0))
    length = norm.length(samples)
    assert length.max() <= 1 + 1e-12
    # Uniform: a ball of radius r holds r^d of the volume, and every orthant the same share.
    assert (length < share).double().mean().item() == pytest.approx(share**dimension, abs=0.012)
    orthants = ((samples > 0).long() * torch.tensor([1, 2, 4])).sum(1).bincount() / len(samples)
    assert (orthants - 1 / 8).abs().max() < 0.012
    assert samples.mean(0).abs().max() < 0.012


def test_l1_samples_are_uniform_among_features():
    samples = drq.L1().sample((20_000, 3), torch.Generator().manual_seed(1)).abs()
    exact = torch.tensor([1 / 4] * 3, dtype=torch.float64)  # E|x_k| in the l1 ball of d dimensions is 1 / (d + 1)
    torch.testing.assert_close(samples.mean(0), exact, rtol=0, atol=0.01)


@every_norm
@steady
@given(seed=st.integers(0, 10_000), radius=st.floats(0.0, 2.0))
def test_ball_projection_stays_in_ball_and_box_and_keeps_frozen_features(norm, seed, radius):
    center = inputs(seed, 5, 2, 3)
    frozen = torch.tensor([True, False, False])
    low, high = torch.tensor([[0.0], [-0.5]]), torch.tensor([[1.0], [1.5]])
    ball = drq.Ball(center, radius, norm, (low, high), frozen)
    point = center + gaussian(seed + 1, 5, 2, 3) * 2
    projected = ball.project(point)
    assert ball.contains(projected).all()
    assert torch.equal(projected[..., 0], center[..., 0])
    assert (projected >= low).all()
    assert (projected <= high).all()
    torch.testing.assert_close(ball.project(projected), projected, rtol=0, atol=1e-12)
    drawn = ball.sample(torch.Generator().manual_seed(seed))
    assert ball.contains(drawn).all()
    assert not ball.contains(center + radius + 0.1).any()


@every_norm
def test_samples_share_one_draw_scaled_by_the_radius(norm):
    center = inputs(0, 3, 4)
    ball = drq.Ball(center, torch.tensor([1.0, 2.0, 0.0]), norm)
    offset = ball.sample(torch.Generator().manual_seed(5)) - center
    torch.testing.assert_close(offset[1], 2 * offset[0])
    assert (offset[2] == 0).all()


@every_norm
def test_farthest_point_of_the_box(norm):
    ball = drq.Ball(torch.tensor([[0.2, 0.5]]), 1.0, norm, bounds=(0, 1))
    corner = torch.tensor([[0.8, 0.5]])
    torch.testing.assert_close(ball.farthest(), norm.length(corner))
    assert drq.Ball(corner, 1.0, norm).farthest().isinf().all()


@every_norm
def test_frozen_features_and_infinite_bounds_mix(norm):
    frozen = torch.tensor([True, False])
    ball = drq.Ball(torch.tensor([[0.5, 0.2]]), 1.0, norm, (0.0, float("inf")), frozen)
    assert ball.farthest().isinf().all()
    boxed = drq.Ball(torch.tensor([[0.5, 0.2]]), 1.0, norm, (0.0, 1.0), frozen)
    torch.testing.assert_close(boxed.farthest(), torch.tensor([0.8]))  # the frozen feature does not count
    assert boxed.movable(boxed.center, torch.ones(1, 2)).tolist() == [[False, True]]


@every_norm
def test_samples_are_uniform_among_free_features(norm):
    frozen = torch.ones(1000, dtype=torch.bool)
    frozen[:2] = False
    ball = drq.Ball(torch.zeros(1, 1000), 1.0, norm, None, frozen)
    lengths = [ball.sample(torch.Generator().manual_seed(seed)) for seed in range(100)]
    assert norm.length(torch.cat(lengths)).max() > 0.85


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e25])
def test_steepest_direction_of_tiny_and_huge_gradients(scale):
    direction = drq.L2().steepest(torch.tensor([[3.0, 4.0]]) * scale)
    torch.testing.assert_close(direction, torch.tensor([[0.6, 0.8]]))


def test_rows_of_a_ball_share_its_box_and_its_frozen_features():
    low, high, frozen = torch.tensor([0.0, 0.1]), torch.tensor([1.0, 0.9]), torch.tensor([True, False])
    ball = drq.Ball(torch.tensor([[0.2, 0.3], [0.4, 0.5]]), torch.tensor([0.1, 0.2]), "l2", (low, high), frozen)
    second, twice = ball[torch.tensor([1])], ball[:1].joined([ball[1:]])
    assert second.center.tolist() == ball.center[1:].tolist()
    assert second.radius.tolist() == ball.radius[1:].tolist()
    assert twice.center.tolist() == ball.center.tolist()
    for each in (second, twice):
        assert [torch.equal(mine, whole) for mine, whole in zip(each.bounds, (low, high), strict=True)] == [True, True]
        assert torch.equal(each.frozen, frozen)
