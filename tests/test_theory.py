"""Appendix A on lattices, where its propositions hold without tolerance, and what gradient searches make of them."""

import doctest
import math
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from testbed.neighbourhoods import ALPHAS, NORMS, ROUNDING, STEPS, bowl, many_examples, neighbourhoods
from testbed.repository import ROOT

import drq
from drq import theory
from drq.system.threads import threads


@pytest.fixture(autouse=True, scope="module")
def alone():
    with threads(1):
        yield


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


def test_examples_of_the_page():
    failed, tried = doctest.testfile(
        str(ROOT / "docs" / "theory.md"), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE
    )
    assert tried > 0
    assert failed == 0
