"""Compute intervals and tests for shares of samples. Shares are in percent, differences in points.

Everything is vectorised over the cells of a table. Intervals accept counts that are not whole, since dependent samples count as
fewer independent ones.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Numbers = NDArray[np.float64]

Z = 1.959963984540054  # 95 % of a normal distribution lie within so many standard deviations
TINY = 1e-300  # least divisor, so that 0 / 0 is 0
BISECTIONS = 60  # halve an interval of length 1 below the last digit


def student(freedom: int) -> float:
    """Return Student's t for a 95 % interval with this many degrees of freedom, accurate to 1 % from 4 on.

    It uses the expansion of Cornish and Fisher (1937).

    >>> round(student(9), 2)
    2.26
    """
    first = (Z**3 + Z) / 4
    second = (5 * Z**5 + 16 * Z**3 + 3 * Z) / 96
    third = (3 * Z**7 + 19 * Z**5 + 17 * Z**3 - 15 * Z) / 384
    return Z + first / freedom + second / freedom**2 + third / freedom**3


def wilson(correct: ArrayLike, total: ArrayLike) -> tuple[Numbers, Numbers]:
    """Return the 95 % interval of a share, in percent: Wilson's score interval (1927). Without samples it is 0 to 100.

    >>> low, high = wilson([10, 0], [10, 0])
    >>> low.round(1).tolist(), high.round(1).tolist()
    ([72.2, 0.0], [100.0, 100.0])
    """
    right, number = np.broadcast_arrays(np.asarray(correct, float), np.asarray(total, float))
    spread = right * (number - right) / np.maximum(number, TINY)
    center, half = right + Z**2 / 2, Z * np.sqrt(np.maximum(spread, 0) + Z**2 / 4)
    low = (center - half) / (number + Z**2)
    high = np.where(right >= number, 1, (center + half) / (number + Z**2))
    return 100 * low, 100 * high


class Paired(NamedTuple):
    """The difference between two shares of the same samples, with its interval and p-value."""

    difference: Numbers  # points
    low: Numbers
    high: Numbers  # ends of the 95 % interval
    p_value: Numbers  # of the exact test of McNemar, in [0, 1]


def paired(fixed: ArrayLike, spoiled: ArrayLike, total: ArrayLike) -> Paired:
    """Compare two shares of the same samples: difference in points, interval, and the exact test of McNemar.

    ``fixed`` samples are right only in the first share, ``spoiled`` ones only in the second. Without samples the difference is
    NaN. The p-value is exact and the interval is not quite: close to 0.05 they may disagree on whether 0 is possible.

    >>> [each.round(3).item() for each in paired(12, 2, 50)]
    [20.0, 6.111, 34.471, 0.013]
    """
    first, second, number = np.broadcast_arrays(*(np.asarray(each, float) for each in (fixed, spoiled, total)))
    difference = (first - second) / np.where(number > 0, number, np.nan)
    return Paired(100 * difference, *tango(first, second, number), sign_test(first, second))


def tango(fixed: ArrayLike, spoiled: ArrayLike, total: ArrayLike) -> tuple[Numbers, Numbers]:
    """Return the 95 % interval of the difference between two shares of the same samples, in points.

    It is the score interval of Tango (1998, Statistics in Medicine 17, 891-908). Unlike the textbook's it has a length where
    no sample differs, and stays within -100 and 100.
    """
    first, second, number = np.broadcast_arrays(*(np.asarray(each, float) for each in (fixed, spoiled, total)))
    return -100 * _score_limit(second, first, number), 100 * _score_limit(first, second, number)


def _score_limit(fixed: Numbers, spoiled: Numbers, number: Numbers) -> Numbers:
    """Return the largest difference that the score test does not reject."""
    low = np.where(number > 0, (fixed - spoiled) / np.maximum(number, TINY), 1.0)
    high = np.ones_like(low)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        distance = fixed - spoiled - number * middle
        spread = number * (2 * _spoiled_share(fixed, spoiled, number, middle) + middle * (1 - middle))
        inside = distance**2 <= Z**2 * spread
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return (low + high) / 2


def _spoiled_share(fixed: Numbers, spoiled: Numbers, number: Numbers, difference: Numbers) -> Numbers:
    """Return the most likely share of spoiled samples, given the difference: the larger root of a quadratic equation."""
    a = 2 * np.maximum(number, TINY)
    b = (2 * number - fixed + spoiled) * difference - fixed - spoiled
    c = -spoiled * difference * (1 - difference)
    return np.asarray((np.sqrt(np.maximum(b**2 - 4 * a * c, 0)) - b) / (2 * a))


def sign_test(more: ArrayLike, less: ArrayLike) -> Numbers:
    """Return the two-sided p-value of the sign test, which on pairs is the exact test of McNemar.

    It is the probability that fair coins fall at least as unevenly as the samples that differ.

    >>> sign_test([5, 3, 0], [0, 3, 0]).round(9).tolist()
    [0.0625, 1.0, 1.0]
    """
    first, second = np.broadcast_arrays(np.asarray(more, float), np.asarray(less, float))
    tails = [
        min(1.0, 2 * binomial_below(int(min(pair)), int(sum(pair)), 0.5))
        for pair in zip(first.ravel().tolist(), second.ravel().tolist(), strict=True)
    ]
    return np.array(tails).reshape(first.shape)


def score_test(more: ArrayLike, less: ArrayLike) -> Numbers:
    """Return the two-sided p-value of McNemar's score test, for counts that need not be whole; 1 where both are 0.

    >>> score_test([10, 0], [0, 0]).round(4).tolist()  # 10 ** 0.5 standard deviations
    [0.0016, 1.0]
    """
    first, second = np.asarray(more, float), np.asarray(less, float)
    deviations = np.abs(first - second) / np.sqrt(np.maximum(first + second, np.finfo(float).tiny))
    chance: Numbers = np.vectorize(math.erfc, otypes=[float])(deviations / math.sqrt(2))
    return chance


def binomial_below(count: int, total: int, share: float) -> float:
    """Return the probability of at most ``count`` successes in ``total`` trials that succeed with probability ``share``.

    >>> round(binomial_below(1, 3, 0.5), 9)
    0.5
    """
    if count < 0 or count >= total or not 0 < share < 1:
        return float(count >= total or (count >= 0 and share <= 0))
    if count > total * share:  # sum the shorter tail
        return 1 - binomial_below(total - count - 1, total, 1 - share)
    # Each term is a fraction of the one before, from the largest down; far beyond the standard deviation they vanish.
    terms = np.arange(count, max(0, count - 20 * math.isqrt(total) - 50), -1, dtype=float)
    ratios = terms / (total - terms + 1) * ((1 - share) / share)
    return math.exp(_log_binomial(count, total, share)) * (1 + float(np.cumprod(ratios).sum()))


def _log_binomial(count: int, total: int, share: float) -> float:
    ways = math.lgamma(total + 1) - math.lgamma(count + 1) - math.lgamma(total - count + 1)
    return ways + count * math.log(share) + (total - count) * math.log1p(-share)
