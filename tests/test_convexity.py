"""The bound of Appendix A for strongly convex functions, on lattices."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from testbed.neighbourhoods import NORMS, ROUNDING, bowl, many_examples

from drq import theory
from drq.norms import as_norm
from drq.system.threads import threads
from tools.benchmarks import propositions


@pytest.fixture(autouse=True, scope="module")
def alone():
    with threads(1):
        yield


@st.composite
def bowls(draw, dimension):
    """A bowl that stays below 1 in the box that holds all balls of twice the radius, and the radius."""
    random = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    root = torch.randn(dimension, dimension, generator=random, dtype=torch.float64)
    matrix = root @ root.T + draw(st.floats(0.01, 1)) * torch.eye(dimension)
    radius, bottom, share = draw(st.floats(0.1, 3)), draw(st.floats(0, 0.9)), draw(st.floats(0, 0.9))
    farthest = dimension * (2 * radius) ** 2  # squared Euclidean length of the corners of that box
    rise = 1 - bottom
    matrix = matrix * (1 - share) * rise / (torch.linalg.eigvalsh(matrix)[-1] * farthest)
    return matrix, bottom, share * rise / farthest**2, radius


def check_bound(matrix, bottom, quartic, radius, norm, steps, slack):
    """Eq. 13, 16 and 17, for all alpha that are multiples of 1/steps; slack: how far extrema may be inside their spheres."""
    x = torch.zeros(1, len(matrix), dtype=torch.float64)
    around = theory.look_around(bowl(matrix, bottom, quartic), x, norm, radius, radius / steps)
    assert around.is_minimum()
    convexity = propositions.extremes(matrix[None], norm)[0].item()
    for alpha in (step / steps for step in range(steps + 1)):
        decision = around.decide(alpha)
        distance = as_norm(norm).length(decision.explored[:, 1])
        assert distance >= radius - slack - ROUNDING
        near, far = (max(0, share * radius - slack) ** 2 * convexity for share in (alpha, 1 - alpha))
        assert around.sharpness(alpha) >= near - ROUNDING
        assert decision.score >= decision.value + around.sharpness(alpha).clamp(max=far) - ROUNDING
        assert decision.score >= decision.value + min(near, far) - ROUNDING
        if slack == 0:
            assert decision.score >= around.lower_bound(alpha, convexity) - ROUNDING


@many_examples
@given(bowls(1), st.sampled_from(NORMS), st.integers(2, 20))
def test_bound_on_a_line(given_bowl, norm, steps):
    check_bound(*given_bowl, norm, steps, slack=0)


@many_examples
@given(bowls(2), st.sampled_from(["l1", "linf"]), st.integers(2, 8))
def test_bound_in_a_plane_where_corners_are_lattice_points(given_bowl, norm, steps):
    """A strictly convex function is largest at a corner of these balls, and all corners belong to the lattice."""
    check_bound(*given_bowl, norm, steps, slack=0)


@many_examples
@given(bowls(2), st.integers(4, 10))
def test_bound_in_a_plane_with_round_balls(given_bowl, steps):
    """The largest lattice point v is not midway between v - he and v + he, so one of them is outside the ball.

    Hence v is less than the spacing h inside its sphere.
    """
    *_, radius = given_bowl
    check_bound(*given_bowl, "l2", steps, slack=radius / steps)


def test_the_bound_is_tight_and_its_check_can_fail():
    x, matrix = torch.zeros(1, 1, dtype=torch.float64), torch.tensor([[0.1]], dtype=torch.float64)
    around = theory.look_around(bowl(matrix, 0.6), x, "l2", 1.0, 0.05)
    for alpha in (0.5, 0.75):
        decision = around.decide(alpha)
        torch.testing.assert_close(decision.score, 0.6 + torch.tensor([0.1 * (1 - alpha) ** 2], dtype=torch.float64))
        torch.testing.assert_close(decision.score, around.lower_bound(alpha, convexity=0.1))
    assert decision.score < around.lower_bound(0.75, convexity=0.101) - ROUNDING


@pytest.mark.parametrize("norm", NORMS)
def test_constant_of_strong_convexity(norm):
    root = torch.randn(20, 2, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    matrix = root @ root.mT
    angle = torch.linspace(0, math.pi, 100_001, dtype=torch.float64)
    sphere = torch.stack([angle.cos(), angle.sin()], 1)
    sphere = sphere / as_norm(norm).length(sphere)[:, None]
    values = torch.einsum("vi,nij,vj->nv", sphere, matrix, sphere)
    least, largest = propositions.extremes(matrix, norm)
    torch.testing.assert_close(values.amin(1), least, rtol=1e-4, atol=1e-8)
    torch.testing.assert_close(values.amax(1), largest, rtol=1e-4, atol=1e-8)
