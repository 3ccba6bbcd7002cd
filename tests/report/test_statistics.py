"""Intervals and tests against scipy, brute force, closed forms and how often they hold."""

import math

import numpy as np
import pytest
from scipy import optimize, stats

from drq.report.statistics import Z, binomial_below, paired, score_test, sign_test, student, tango, wilson

COUNTS = [(0, 1), (1, 1), (0, 10), (3, 10), (10, 10), (834, 1000), (1, 10_000), (999_999, 1_000_000)]


@pytest.mark.parametrize(("correct", "total"), COUNTS)
def test_wilson_is_that_of_scipy(correct, total):
    truth = stats.binomtest(correct, total).proportion_ci(method="wilson")
    assert wilson(correct, total) == pytest.approx((100 * truth.low, 100 * truth.high), abs=1e-9)


@pytest.mark.parametrize("freedom", [4, 9, 29, 119, 100_000])
def test_student_is_that_of_scipy(freedom):
    assert student(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=0.01 if freedom < 9 else 5e-4)


def test_wilson_takes_whole_tables():
    low, high = wilson(*np.transpose(COUNTS))
    assert low.shape == high.shape == (len(COUNTS),)
    assert [*zip(low, high, strict=True)] == [pytest.approx(wilson(*each)) for each in COUNTS]
    assert wilson(np.zeros((0,)), np.zeros((0,)))[0].shape == (0,)


def test_without_samples_anything_is_possible():
    assert wilson(0, 0) == (0, 100)
    assert math.isnan(paired(0, 0, 0).difference)
    assert paired(0, 0, 0)[1:] == (-100, 100, 1)


def test_ends_that_are_certain_are_exact():
    assert wilson(0, 7)[0] == 0
    assert wilson(7, 7)[1] == 100


def score_statistic(fixed, spoiled, number, difference):
    """How far the difference is from what was counted, in its standard deviations, by numerical maximum likelihood."""

    def loss(share):  # of spoiled samples
        shares = np.array([share + difference, share, 1 - difference - 2 * share])
        counts = np.array([fixed, spoiled, number - fixed - spoiled])
        return -(counts * np.log(np.maximum(shares, 1e-300))).sum()

    ends = max(0.0, -difference), (1 - difference) / 2
    share = optimize.minimize_scalar(loss, bounds=ends, method="bounded", options={"xatol": 1e-12}).x
    return (fixed - spoiled - number * difference) / math.sqrt(number * (2 * share + difference * (1 - difference)))


@pytest.mark.parametrize(("fixed", "spoiled", "number"), [(12, 2, 50), (1, 7, 21), (5, 5, 20), (300, 200, 1000), (3, 1, 10_000)])
def test_tango_inverts_the_score_test(fixed, spoiled, number):
    middle = (fixed - spoiled) / number
    low = optimize.brentq(lambda each: score_statistic(fixed, spoiled, number, each) - Z, -0.99, middle - 1e-9)
    high = optimize.brentq(lambda each: score_statistic(fixed, spoiled, number, each) + Z, middle + 1e-9, 0.99)
    assert tango(fixed, spoiled, number) == pytest.approx((100 * low, 100 * high), abs=1e-4)


def test_tango_has_the_published_value():
    """Fagerland, Lydersen and Laake (2014), airway reactivity before and after stem cell transplantation."""
    assert tango(1, 7, 21) == pytest.approx((-51.7, -2.6), abs=0.05)


@pytest.mark.parametrize("number", [1, 30, 10_000, 10**8])
def test_tango_at_its_edges(number):
    """Solved by hand: without differing samples the end is z^2 / (n + z^2), with all of one kind (n - z^2) / (n + z^2)."""
    end = 100 * Z**2 / (number + Z**2)
    assert tango(0, 0, number) == pytest.approx((-end, end))
    assert tango(number, 0, number) == pytest.approx((100 * (number - Z**2) / (number + Z**2), 100))
    assert tango(0, number, number) == pytest.approx((-100, -100 * (number - Z**2) / (number + Z**2)))


def test_the_interval_of_a_difference_holds_as_often_as_it_says():
    """The exact probability, over all outcomes of 30 samples, that it contains the truth."""
    number = 30
    fixed, spoiled = (each.ravel() for each in np.indices((number + 1, number + 1)))
    possible = fixed + spoiled <= number
    fixed, spoiled = fixed[possible], spoiled[possible]
    low, high = tango(fixed, spoiled, number)
    held = []
    for shares in [(0.05, 0.05), (0.1, 0.02), (0.3, 0.1), (0.2, 0.2), (0.02, 0.01), (0.6, 0.1)]:
        counts = np.stack([fixed, spoiled, number - fixed - spoiled], 1)
        probability = stats.multinomial.pmf(counts, number, [*shares, 1 - sum(shares)])
        difference = 100 * (shares[0] - shares[1])
        held.append(probability[(low <= difference) & (difference <= high)].sum())
    assert min(held) > 0.93
    assert 0.94 < np.mean(held) < 0.98


def test_swapping_the_two_mirrors_the_interval():
    first, second = paired([12, 0, 40], [2, 3, 40], 100), paired([2, 3, 40], [12, 0, 40], 100)
    assert first.difference == pytest.approx(-second.difference)
    assert first.low == pytest.approx(-second.high)
    assert first.p_value == pytest.approx(second.p_value)
    assert first.difference == pytest.approx([10, -3, 0])
    assert (first.low < first.difference).all()
    assert (first.difference < first.high).all()


@pytest.mark.parametrize(("more", "less"), [(0, 0), (1, 0), (5, 0), (7, 7), (8, 7), (60, 40), (2000, 1900), (500_600, 499_400)])
def test_the_sign_test_is_that_of_scipy(more, less):
    truth = stats.binomtest(more, more + less).pvalue if more + less else 1.0
    assert sign_test(more, less) == pytest.approx(truth, rel=1e-7)
    assert sign_test(less, more) == sign_test(more, less)


@pytest.mark.parametrize(("more", "less"), [(9, 3), (2.5, 0.5), (40, 41), (0, 7)])
def test_the_score_test_is_that_of_a_normal_deviate(more, less):
    truth = 2 * stats.norm.sf(abs(more - less) / math.sqrt(more + less))
    assert score_test(more, less) == pytest.approx(truth)
    assert score_test(less, more) == score_test(more, less)
    low, high = tango(more, less, 100)
    assert (score_test(more, less) < 0.05) == (low > 0 or high < 0)


def test_the_sign_test_survives_large_counts():
    assert sign_test(10**7, 10**7) == 1
    assert 0 <= sign_test(10**7, 10**6) < 1e-300
    assert sign_test(50_010_000, 50_000_000) == pytest.approx(2 * stats.norm.sf(1e4 / math.sqrt(1.0001e8)), rel=1e-3)


@pytest.mark.parametrize("total", [1, 2, 17, 1000, 10**6])
@pytest.mark.parametrize("share", [0.5, 0.05, 0.9, 1e-4])
def test_binomial_probabilities_are_those_of_scipy(total, share):
    for count in {-1, 0, 1, total // 3, int(total * share), int(total * share) + 1, total - 1, total}:
        assert binomial_below(count, total, share) == pytest.approx(stats.binom.cdf(count, total, share), rel=1e-6, abs=1e-300)


def test_binomial_probabilities_without_chance():
    assert [binomial_below(0, 0, 0.5), binomial_below(2, 5, 0.0), binomial_below(2, 5, 1.0)] == [1, 1, 0]
