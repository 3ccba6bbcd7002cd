"""Appendix A on lattices, where its propositions hold without tolerance, and what gradient searches make of them."""

import doctest
import math
import re
import runpy
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from testbed.repository import ROOT

import drq
from drq import theory
from drq.norms import as_norm
from drq.system.threads import threads

BENCHMARK = runpy.run_path(str(ROOT / "benchmarks" / "propositions.py"))
PAGE = ROOT / "docs" / "theory.md"
NORMS = ("l1", "l2", "linf")
ALPHAS = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)
ROUNDING = 1e-12  # of a few operations on numbers in [0, 1]
STEPS = {1: 20, 2: 8}  # lattice steps a radius, by dimension


@pytest.fixture(autouse=True, scope="module")
def alone():
    with threads(1):
        yield


def random_classifier(kind, dimension, seed):
    random = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=random, dtype=torch.float64)

    slope, shift, height = 3 * normal(dimension, 6), normal(6), 2 * normal(6)
    center, mix = normal(6, dimension), normal(6, 6)

    def bumps(x):
        return (torch.exp(-3 * (x[:, None] - center).square().sum(2)) @ height).sigmoid()

    def sigmoids(x):
        return (x @ slope + shift).sigmoid() @ height.softmax(0)

    def network(x):
        return (((x @ slope + shift).tanh() @ mix).tanh() @ height).sigmoid()

    return {"bumps": bumps, "sigmoids": sigmoids, "network": network}[kind]


@st.composite
def neighbourhoods(draw, count=8, descents=0):
    """Some points of a random classifier, on lattices that their balls do and do not touch; after some descents on them."""
    dimension, seed = draw(st.integers(1, 2)), draw(st.integers(0, 2**31))
    u = random_classifier(draw(st.sampled_from(["bumps", "sigmoids", "network"])), dimension, seed)
    x = torch.randn(count, dimension, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    radius, norm = draw(st.floats(0.1, 2)), draw(st.sampled_from(NORMS))
    spacing = radius / (STEPS[dimension] + draw(st.sampled_from([0, 0.4])))
    for _ in range(descents):
        around = theory.look_around(u, x, norm, radius, spacing)
        x = x + around.offset[around.value.masked_fill(~around.ball(2), torch.inf).argmin(1)]
    return theory.look_around(u, x, norm, radius, spacing)


def many_examples(test):
    return settings(deadline=None, derandomize=True, max_examples=50)(test)


def chain_holds(decisions):
    """Eq. 7, the monotonicity in alpha of Proposition A.1; decisions with growing alpha."""
    values = [each.quantified_value for each in decisions]
    return all(bool((low[:, 0] <= high[:, 0]).all() & (low[:, 1] >= high[:, 1]).all()) for low, high in pairwise(values))


def ends_hold(none, full):
    """Eq. 8, the extreme cases alpha = 0 and alpha = 1 of Proposition A.1."""
    u, (low, high) = none.value, (none.quantified_value, full.quantified_value)
    return bool(((low[:, 0] <= u) & (u <= high[:, 0]) & (low[:, 1] >= u) & (u >= high[:, 1])).all())


def minimum_holds(decision):
    """Eq. 9 and 10, the conclusion of Proposition A.3."""
    u = decision.value
    return bool(((decision.quantified_value >= u[:, None]).all(1) & (decision.score >= u)).all())


# Proposition A.1


@many_examples
@given(neighbourhoods())
def test_larger_alpha_lowers_both_confidences_from_bolder_than_u_to_more_cautious(around):
    decisions = [around.decide(alpha) for alpha in ALPHAS]
    assert chain_holds(decisions)
    assert ends_hold(decisions[0], decisions[-1])


@dataclass(frozen=True)
class Shells(theory.Neighbourhood):
    """A wrong quantification: shells instead of balls, which are not nested."""

    def ball(self, share):
        return super().ball(share) & (self.length >= 0.8 * share * self.radius)


def swapped(decision):
    """A wrong quantification: argmin and argmax are exchanged."""
    return replace(decision, quantified_value=decision.quantified_value.flip(1))


def wavy():
    x = torch.linspace(-3, 3, 25, dtype=torch.float64)[:, None]
    return theory.look_around(lambda x: (2 * torch.sin(5 * x[:, 0]) + x[:, 0]).sigmoid(), x, "l2", 1.0, 0.02)


def test_the_checks_of_monotonicity_can_fail():
    around = wavy()
    shells = Shells(around.x, around.offset, around.length, around.value, around.radius)
    right, wrong = ([each.decide(alpha) for alpha in ALPHAS] for each in (around, shells))
    assert chain_holds(right)
    assert not chain_holds(wrong)
    assert not chain_holds([swapped(each) for each in right])
    assert ends_hold(right[0], right[-1])
    assert not ends_hold(wrong[0], wrong[-1])
    assert not ends_hold(right[-1], right[0])
    assert not ends_hold(swapped(right[0]), swapped(right[-1]))


# Proposition A.3


@many_examples
@given(neighbourhoods(descents=4))
def test_a_wide_minimum_is_not_lowered(around):
    wide = around.is_minimum()
    assume(wide.any())
    assert all(minimum_holds(around.decide(alpha)[wide]) for alpha in ALPHAS)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("dimension", [1, 2])
def test_wide_minima_among_other_minima(norm, dimension):
    def ripples(x):  # the minimum at 0 is the lowest of many
        return 0.3 + 0.02 * x.square().sum(1) - 0.1 * torch.cos(9 * x).mean(1)

    around = theory.look_around(ripples, torch.zeros(1, dimension, dtype=torch.float64), norm, 1.0, 1 / STEPS[dimension])
    assert around.is_minimum()
    assert all(minimum_holds(around.decide(alpha)) for alpha in ALPHAS)


def test_a_minimum_must_be_twice_as_wide_as_the_radius():
    def well_on_a_hill(x):  # a minimum of the ball of radius 1, but not of the ball of radius 2
        distance = x[:, 0].abs()
        return torch.where(distance <= 1, 0.8 + 0.15 * distance**2, 0.95 - 0.7 * (distance - 1))

    around = theory.look_around(well_on_a_hill, torch.zeros(1, 1, dtype=torch.float64), "l2", 1.0, 0.05)
    assert around.is_minimum(width=1)
    assert not around.is_minimum()
    assert not minimum_holds(around.decide(0.5))
    assert around.decide(0.5).score < around.decide(0.5).value


# Proposition A.4 and Corollary A.5


def bowl(matrix, bottom, quartic=0.0):
    """bottom + v'Av + quartic |v|^4 around 0; strongly convex with the constant of v'Av, since the rest is convex."""

    def u(x):
        square = x.square().sum(1)
        return (bottom + torch.einsum("ni,ij,nj->n", x, matrix, x) + quartic * square**2).clamp(max=1)

    return u


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
    convexity = BENCHMARK["extremes"](matrix[None], norm)[0].item()
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
    least, largest = BENCHMARK["extremes"](matrix, norm)
    torch.testing.assert_close(values.amin(1), least, rtol=1e-4, atol=1e-8)
    torch.testing.assert_close(values.amax(1), largest, rtol=1e-4, atol=1e-8)


# Labels


@many_examples
@given(neighbourhoods(count=40), st.sampled_from(ALPHAS))
def test_rounding_contradicts_eq_3_exactly_where_both_robustnesses_are_below_one_half(around, alpha):
    decision = around.decide(alpha)
    both_low = decision.robustness.amax(1) < 0.5
    clear = decision.robustness[:, 0] != decision.robustness[:, 1]
    assert torch.equal((decision.rounded != decision.label)[clear], both_low[clear])


def test_an_example_where_rounding_contradicts_eq_3():
    x = torch.zeros(1, 1, dtype=torch.float64)
    decision = theory.look_around(lambda x: 0.4 + 0.3 * torch.sin(2 * math.pi * x[:, 0]), x, "l2", 1.0, 0.05).decide(0.5)
    torch.testing.assert_close(decision.robustness, torch.tensor([[0.3, 0.1]], dtype=torch.float64))
    assert decision.label == 0
    torch.testing.assert_close(decision.score, torch.tensor([0.7], dtype=torch.float64))
    assert decision.rounded == 1


def hidden_peak(x):
    """Class 0 everywhere in the ball of radius 1 around 0, with a peak of class 1 just outside."""
    return (-1 + 0.4 * x[:, 0] + 8 * torch.exp(-(((x[:, 0] + 1.8) / 0.3) ** 2))).sigmoid()


def test_an_example_where_the_whole_ball_elects_a_class_that_is_not_in_it():
    x = torch.zeros(1, 1, dtype=torch.float64)
    decision = theory.look_around(hidden_peak, x, "l2", 1.0, 0.01).decide(0.5)
    assert decision.reached.tolist() == [[True, False]]
    assert decision.label == 1
    assert decision.label_among_reached == 0
    searched = drq.DRQ(theory.TwoLogits(hidden_peak), "l2", 1.0, bounds=None).decide(x)
    assert searched.reached.tolist() == [[True, False]]
    assert searched.label == 0


def test_ties_go_to_the_base_label():
    x = torch.tensor([[-0.2], [0.2]])
    decision = theory.look_around(lambda x: 0.5 + 0.25 * x[:, 0].sign() * (x[:, 0].abs() < 0.5), x, "l2", 0.5, 0.1).decide(0)
    assert torch.equal(decision.robustness[:, 0], decision.robustness[:, 1])
    assert torch.equal(decision.label, decision.base_label)
    assert decision.base_label.tolist() == [0, 1]


# Gradient searches on the same functions


MONOTONE = {
    "sigmoid": lambda t: torch.sigmoid(2 * t - 0.3),
    "falling": lambda t: torch.sigmoid(-0.7 * t + 0.1),
    "arctan": lambda t: 0.5 + torch.atan(3 * t) / math.pi,
    "stairs": lambda t: torch.sigmoid(3 * t + 0.9 * torch.sin(3 * t)),
}


@pytest.mark.parametrize("name", MONOTONE)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_gradient_search_equals_lattice_equals_closed_form_on_monotone_functions(name, norm, alpha):
    """Up the slope by the radius, back down by its share alpha: u(x -+ (1 - alpha) radius)."""
    u, radius = MONOTONE[name], 0.75
    x = torch.linspace(-1.49, 1.53, 41, dtype=torch.float64)[:, None]
    exact = theory.look_around(lambda x: u(x[:, 0]), x, norm, radius, radius / 40).decide(alpha)
    both = exact.reached.all(1)
    assert both.sum() >= 15
    shift = (1 - alpha) * radius
    lower, upper = u(torch.cat([x - shift, x + shift], 1)).aminmax(dim=1)
    closed_form = torch.stack([1 - lower, upper], 1)
    robust = drq.DRQ(theory.TwoLogits(lambda x: u(x[:, 0])), norm, radius, alpha=alpha, bounds=None, prune="none")
    searched = robust.decide(x)
    torch.testing.assert_close(u(exact.explored[:, :, 0]), exact.explored_value, rtol=0, atol=ROUNDING)
    torch.testing.assert_close(exact.robustness, closed_form, rtol=0, atol=ROUNDING)
    torch.testing.assert_close(searched.robustness[both], closed_form[both], rtol=0, atol=1e-9)
    assert torch.equal(searched.reached, exact.reached)
    clear = (closed_form[:, 0] - closed_form[:, 1]).abs() > 1e-9
    assert torch.equal(searched.label[clear], exact.label_among_reached[clear])


def test_a_gradient_search_stays_at_an_exact_minimum():
    u = bowl(torch.tensor([[0.12]], dtype=torch.float64), 0.45)
    x = torch.zeros(1, 1, dtype=torch.float64)
    around = theory.look_around(u, x, "l2", 1.0, 0.05)
    robust = drq.DRQ(theory.TwoLogits(u), "l2", 1.0, bounds=None, prune="none")
    stuck, moved = robust.decide(x), robust.decide(x + 1e-9)
    assert stuck.stalled == 3 * 20  # two explorations and the quantification of class 0
    assert 1 - stuck.robustness[0, 0] < around.lower_bound(0.5, 0.12)
    torch.testing.assert_close(moved.robustness, around.decide(0.5).robustness)


# Interface


def test_lattice_balls_have_the_expected_points():
    x = torch.zeros(1, 2, dtype=torch.float64)
    for norm, count in (("l1", 25), ("l2", 29), ("linf", 49)):
        around = theory.look_around(lambda x: x[:, 0].sigmoid(), x, norm, 0.3, 0.1)
        assert around.ball(1).sum() == count
        assert around.ball(0).sum() == 1


def test_samples_do_not_influence_each_other():
    around, decision = wavy(), wavy().decide(0.5)
    alone = theory.look_around(lambda x: (2 * torch.sin(5 * x[:, 0]) + x[:, 0]).sigmoid(), around.x[3:4], "l2", 1.0, 0.02)
    torch.testing.assert_close(alone.decide(0.5).quantified_value, decision[3:4].quantified_value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"x": torch.zeros(3)}, "x must be a batch of vectors"),
        ({"radius": -1.0}, "radius must be at least 0"),
        ({"spacing": 0.0}, "spacing must be above 0"),
        ({"spacing": 1e-9}, "spacing must give at most"),
        ({"u": lambda x: 2 + x[:, 0]}, r"u must return values in \[0, 1\]"),
        ({"norm": "l3"}, "norm must be one of"),
    ],
)
def test_mistakes_are_named(changes, words):
    arguments = {"u": lambda x: x[:, 0].sigmoid(), "x": torch.zeros(1, 1), "norm": "l2", "radius": 1.0, "spacing": 0.1}
    with pytest.raises(drq.InputError, match=words):
        theory.look_around(**(arguments | changes))


def test_alpha_and_shares_have_limits():
    with pytest.raises(drq.InputError, match="alpha must lie in"):
        wavy().decide(1.1)
    with pytest.raises(drq.InputError, match="share of the radius must lie in"):
        wavy().sharpness(2.1)


# The page


def test_examples_of_the_page():
    failed, tried = doctest.testfile(str(PAGE), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert tried > 0
    assert failed == 0


def numbers(cell):
    """Share in percent, number of cases, median and largest departure."""
    return [float(each) for each in re.findall(r"[\d.]+(?:e-?\d+)?", cell)]


@pytest.mark.slow
def test_table_of_the_page_is_what_the_script_measures():
    published = re.search(r"<!-- propositions:begin -->\n(.*)\n<!-- propositions:end -->", PAGE.read_text(), re.DOTALL)[1]
    measured = BENCHMARK["table"]()
    old, new = ([line.split("|")[1:-1] for line in text.strip().splitlines()] for text in (published, measured))
    assert [row[0] for row in old] == [row[0] for row in new]
    assert old[0] == new[0]
    for before, after in zip(old[2:], new[2:], strict=True):
        for one, other in zip(before[1:], after[1:], strict=True):
            share, cases, *amounts = numbers(one)
            assert numbers(other)[:1] == pytest.approx([share], abs=0.3)  # other processors round differently
            assert numbers(other)[1:2] == pytest.approx([cases], rel=0.01)
            assert numbers(other)[2:] == pytest.approx(amounts, rel=0.3)
