"""Evaluate selective prediction: answer where a score is high, and abstain elsewhere.

Coverage is the share of samples that are answered, risk the share of errors among those answers; both lie in [0, 1].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from drq.errors import require
from drq.evaluation.records import require_polars
from drq.report.statistics import Numbers, binomial_below

if TYPE_CHECKING:
    import polars

GROUP = ("model", "data", "suite", "threat", "victim", "defence")
RANKINGS = {
    "aurc": ("prediction", "margin"),
    "aurc_by_confidence": ("prediction", "confidence"),
    "base_aurc_by_confidence": ("base_prediction", "confidence"),
    "base_aurc_by_logit_margin": ("base_prediction", "logit_margin"),
}  # columns of the answers and of the score that ranks them
STEPS = 1000  # coverages at which a guarantee is tried
STARTS = 5  # coverages from which the search proceeds to lower thresholds, evenly from the least that can pass to all
BLOCK = 1_000_000  # numbers that the bootstrap holds at a time


class Curve(NamedTuple):
    """Risk against coverage, one point for each distinct score, from the highest down."""

    coverage: Numbers
    risk: Numbers
    threshold: Numbers  # samples with at least this score are answered


def risk_coverage(correct: ArrayLike, score: ArrayLike) -> Curve:
    """Return the curve over all thresholds. Samples with equal scores are answered together, since no threshold separates them.

    >>> curve = risk_coverage([True, False, True, False], [0.9, 0.5, 0.5, 0.1])
    >>> curve.coverage.tolist(), curve.risk.round(2).tolist()
    ([0.25, 0.75, 1.0], [0.0, 0.33, 0.5])
    """
    right, scores = _checked(correct, score)
    order = np.argsort(-scores, kind="stable")
    ends = _ends(scores[order])
    answered = ends + 1
    return Curve(answered / len(right), np.cumsum(~right[order])[ends] / answered, scores[order][ends])


def aurc(correct: ArrayLike, score: ArrayLike) -> float:
    """Return the area under the risk-coverage curve: the mean over samples of the risk at the sample's own score as threshold.

    Lower is better; an uninformative score has the error rate as its area.
    """
    curve = risk_coverage(correct, score)
    return float(np.diff(curve.coverage, prepend=0) @ curve.risk)


def excess_aurc(correct: ArrayLike, score: ArrayLike) -> float:
    """Return the area in excess of that of the best score, which ranks every error last; 0 is perfect (Geifman et al., 2019)."""
    return aurc(correct, score) - least_aurc(correct)


def least_aurc(correct: ArrayLike) -> float:
    """Return the area of the best score, which makes no errors until all correct samples are answered.

    >>> least_aurc([True, True, False])  # errors among 1, 2 and 3 answers: none, none, one
    0.1111111111111111
    """
    right = np.asarray(correct, bool)
    wrong = np.arange(1, np.count_nonzero(~right) + 1)
    return float((wrong / (np.count_nonzero(right) + wrong)).sum() / len(right))


@dataclass(frozen=True)
class Threshold:
    """A rule: answer where the score is at least ``value``, else abstain; None where no threshold reaches the target."""

    value: float | None  # minus infinity answers always
    coverage: float  # share of the samples that are answered
    risk: float | None  # share of errors among them
    bound: float | None  # upper bound of the risk on new samples, at the requested confidence; None without one


def threshold_for(correct: ArrayLike, score: ArrayLike, risk: float, confidence: float | None = 0.95) -> Threshold:
    """Return the lowest threshold that keeps the share of errors among answers at most ``risk``.

    With ``confidence=None`` that holds on these very samples: the choice favours luck, and on new ones the risk is higher more
    often than not. Otherwise it holds with that probability on new samples of the same kind (and only of the same kind: after a
    shift, or under an attack, it says nothing): of all samples of this size that could have been drawn, at least that share leads
    to a threshold from which on the risk is at most the target, whatever the scores are worth. The idea is that of Geifman and
    El-Yaniv (2017): a threshold is taken only if so few errors would be unlikely, had the risk been above the target (the exact
    bound of Clopper and Pearson). Looking at many thresholds gives chance many tries, so the search starts at five coverages set
    beforehand, each with a fifth of the allowed probability of error, and goes from there to ever lower thresholds for as long as
    every one passes; where it comes to the next start, it has the fifths of both. A threshold lies just above the highest score
    that is not answered: given that score, those above it are independent draws.

    Args:
        correct: (N,) whether the answer is right.
        score: (N,) how far each answer is trusted.
        risk: the target, between 0 and 1.
        confidence: the confidence of the guarantee, between 0 and 1; None for no guarantee.
    """
    check_promise(risk, confidence)
    curve = risk_coverage(correct, score)
    answered = np.rint(curve.coverage * len(np.asarray(correct))).astype(int)
    errors = np.rint(curve.risk * answered).astype(int)
    level: float | None = None
    if confidence is None:
        place = int(np.max(np.flatnonzero(curve.risk <= risk), initial=-1))
    else:
        place, level = _guaranteed(answered, errors, risk, 1 - confidence)
    if place < 0:
        return Threshold(None, 0.0, None, None)
    bound = None if level is None else upper_bound(int(errors[place]), int(answered[place]), 1 - level)
    value = float(curve.threshold[place]) if level is None else _above(curve.threshold[place + 1 :], score)
    return Threshold(value, float(curve.coverage[place]), float(curve.risk[place]), bound)


def check_promise(risk: float, confidence: float | None) -> None:
    """Check that a risk and a confidence are what they should be."""
    require(0 < risk < 1, "risk", "lie between 0 and 1", risk, "0.05 allows one error in twenty answers")
    if confidence is not None:
        require(0 < confidence < 1, "confidence", "lie between 0 and 1", confidence, "0.95 is usual; None asks for no guarantee")


def _guaranteed(answered: NDArray[Any], errors: NDArray[Any], risk: float, allowed: float) -> tuple[int, float]:
    """Return the last position on the curve that the search reaches, -1 for none, and the probability of error spent on it.

    The search takes steps down the curve with a share of the allowed probability, which it loses where a step fails.
    """
    total = int(answered[-1])
    least = math.ceil(math.log(allowed / STARTS) / math.log1p(-risk))  # answers that are enough if all of them are right
    counts = np.unique(np.linspace(min(least, total), total, STARTS).astype(int))
    starts = set(_places(answered, counts).tolist())
    reached, spent, carried = -1, allowed, 0.0
    for place in _places(answered, np.r_[counts, -(np.arange(1, STEPS + 1) * -total // STEPS)]).tolist():
        carried += allowed / len(counts) if place in starts else 0.0
        passes = carried > 0 and binomial_below(int(errors[place]), int(answered[place]), risk) <= carried
        reached, spent, carried = (place, carried, carried) if passes else (reached, spent, 0.0)
    return reached, spent


def _places(answered: NDArray[Any], counts: NDArray[Any]) -> NDArray[Any]:
    """Return the positions on the curve up to which these counts of samples are answered, at most.

    Samples with equal scores are answered together or not at all, so ties make for fewer answers.
    """
    places = np.unique(np.searchsorted(answered, counts, side="right") - 1)
    return places[places >= 0]


def _above(rest: Numbers, score: ArrayLike) -> float:
    """Return the lowest number above the scores in ``rest``, falling ones, in the precision of ``score``; -inf where none is."""
    kind = np.asarray(score).dtype
    precise = kind.type if np.issubdtype(kind, np.floating) else np.float64
    return float(np.nextafter(precise(rest[0]), precise(np.inf))) if len(rest) else -np.inf


def upper_bound(errors: int, total: int, confidence: float = 0.95) -> float:
    """Return the bound of Clopper and Pearson (1934): above it, so few errors have a probability below ``1 - confidence``.

    >>> round(upper_bound(0, 10), 4)  # 1 - 0.05 ** (1 / 10)
    0.2589
    """
    low, high = errors / max(total, 1), 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if binomial_below(errors, total, middle) > 1 - confidence else (low, middle)
    return high


def abstention(records: polars.DataFrame, defence: str, threshold: float) -> polars.DataFrame:
    """Return the share of samples that a defence answers with at least this margin, and the share of errors among these answers.

    One row for each model, data set and threat; ``wrong`` is null where nothing was answered.
    """
    pl = require_polars()
    above = pl.col("margin") >= threshold
    wrong = (pl.col("prediction") != pl.col("label")).filter(above).mean()
    own = records.filter(pl.col("defence") == defence)
    found: polars.DataFrame = own.group_by(*GROUP[:-1], maintain_order=True).agg(
        images=pl.len(), answered=above.mean(), wrong=wrong
    )
    return found


def compare(records: polars.DataFrame, by: Sequence[str] = GROUP, *, bootstrap: int = 0, seed: int = 0) -> polars.DataFrame:
    """Return the areas under risk-coverage curves for every group of records that has margins.

    ``aurc`` ranks the answers of the defence by its margin. Beside it those answers are ranked by the confidence of the
    undefended model, and that model's own answers by its confidence and by its logit margin. ``excess_...`` are excess areas:
    what a ranking loses to the best one of the same answers. ``difference`` is ``aurc`` minus ``base_aurc_by_confidence``, so
    negative is good; with ``bootstrap`` resamplings of the samples it has a 95 % interval, ``difference_low`` to
    ``difference_high``. Images are drawn, each with all its rows of the group: one under several corruptions counts as one.
    """
    pl = require_polars()
    require(bootstrap >= 0, "bootstrap", "be a number of resamplings", bootstrap, "0 for none, 1000 for an interval")
    needed = dict.fromkeys((*by, "index", "label", "prediction", "base_prediction", "margin", "confidence", "logit_margin"))
    known = records.select(*needed).filter(pl.col("margin").is_not_null())
    parts = known.group_by(by, maintain_order=True)
    rows = [dict(zip(by, name, strict=True)) | _compared(part, bootstrap, seed) for name, part in parts]
    schema = {**known.select(by).with_columns(pl.selectors.categorical().cast(pl.String)).schema, "images": pl.Int64}
    numbers = ("risk", "base_risk", *RANKINGS, *(f"excess_{name}" for name in RANKINGS))
    schema |= dict.fromkeys((*numbers, "difference", "difference_low", "difference_high"), pl.Float64)
    table: polars.DataFrame = pl.DataFrame(rows, schema=schema)
    return table


def _compared(part: polars.DataFrame, bootstrap: int, seed: int) -> dict[str, float | None]:
    label = part["label"].to_numpy()
    ranked = {name: (part[answer].to_numpy() == label, part[score].to_numpy()) for name, (answer, score) in RANKINGS.items()}
    mine, base = ranked["aurc"], ranked["base_aurc_by_confidence"]
    areas = {name: aurc(*each) for name, each in ranked.items()}
    excess = {f"excess_{name}": area - least_aurc(ranked[name][0]) for name, area in areas.items()}
    low, high = bootstrapped(mine, base, bootstrap, seed, part["index"].to_numpy()) if bootstrap else (None, None)
    interval = {"difference_low": low, "difference_high": high}
    difference = areas["aurc"] - areas["base_aurc_by_confidence"]
    risks = {"risk": 1 - mine[0].mean(), "base_risk": 1 - base[0].mean()}
    return {"images": len(label), **risks, **areas, **excess, "difference": difference, **interval}


def bootstrapped(
    first: tuple[ArrayLike, ArrayLike], second: tuple[ArrayLike, ArrayLike], times: int, seed: int, units: ArrayLike | None = None
) -> tuple[float, float]:
    """Return the 95 % interval of the area of the first minus that of the second, both (correct, score) of the same samples.

    ``units`` (N,) names the unit of each sample; units are resampled as a whole. None makes each sample a unit.
    """
    samples = len(np.asarray(first[0]))
    unit = np.arange(samples) if units is None else np.unique(units, return_inverse=True)[1]
    total = int(unit.max()) + 1
    random = np.random.default_rng(seed)
    block = max(1, BLOCK // samples)
    differences = []
    for start in range(0, times, block):
        rows = min(block, times - start)
        drawn = random.integers(total, size=(rows, total)) + total * np.arange(rows)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=rows * total).reshape(rows, total)
        differences.append(_areas(*first, counts[:, unit]) - _areas(*second, counts[:, unit]))
    low, high = np.quantile(np.concatenate(differences), [0.025, 0.975])
    return float(low), float(high)


def _areas(correct: ArrayLike, score: ArrayLike, counts: NDArray[np.int64]) -> Numbers:
    """Return the areas (B,) where sample i occurs ``counts[:, i]`` times."""
    right, scores = _checked(correct, score)
    order = np.argsort(-scores, kind="stable")
    ends, drawn = _ends(scores[order]), counts[:, order]
    answered = np.cumsum(drawn, 1)[:, ends]
    errors = np.cumsum(drawn * ~right[order], 1)[:, ends]
    new = np.diff(answered, axis=1, prepend=0)
    return np.asarray((new * errors / np.maximum(answered, 1)).sum(1) / np.maximum(answered[:, -1], 1))


def _ends(scores: Numbers) -> NDArray[np.int64]:
    """Return the position of the last sample of every distinct score, for falling scores."""
    return np.flatnonzero(np.append(scores[1:] != scores[:-1], True))


def _checked(correct: ArrayLike, score: ArrayLike) -> tuple[NDArray[np.bool_], Numbers]:
    right, scores = np.asarray(correct, bool), np.asarray(score, float)
    fits = right.ndim == 1 and right.shape == scores.shape and right.size > 0
    require(
        fits,
        "correct and score",
        "have the same shape (N,), N at least 1",
        f"{right.shape} and {scores.shape}",
        "one score a sample",
    )
    require(not np.isnan(scores).any(), "score", "be numbers", "NaN", "leave out samples without a score, or score them lowest")
    return right, scores
