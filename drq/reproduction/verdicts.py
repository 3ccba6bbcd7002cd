"""Reach a verdict on a claim of the paper from comparisons in records.

A claim is measured by comparisons, each of which has a 95 % interval and the range in which the claim wants it. It holds where
all intervals lie in their ranges, for every model in the records; it does not hold where one lies outside; else it is
undecided. A model whose records lack one of the comparisons can refute it, and no more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Literal, NamedTuple

from drq.reproduction.intervals import Estimate

if TYPE_CHECKING:
    import polars

Verdict = Literal["holds", "does not hold", "undecided"]


class Finding(NamedTuple):
    """The verdict on a claim, and the numbers behind it in one line of Markdown."""

    verdict: Verdict
    measured: str


class Comparison(NamedTuple):
    """One measured value, and the range in which the claim expects it; without a range it is only shown.

    Where ``fails`` is given, the claim fails only if the whole interval lies below it.
    """

    model: str
    what: str
    value: Estimate
    least: float = -math.inf
    most: float = math.inf
    fails: float | None = None

    @property
    def verdict(self) -> Verdict:
        """The verdict by this interval alone."""
        below = self.value.high <= self.least if self.fails is None else self.value.high < self.fails
        if below or self.value.low >= self.most:
            return "does not hold"
        return "holds" if self.value.low > self.least and self.value.high < self.most else "undecided"

    @property
    def shown_only(self) -> bool:
        """Whether this value has no influence on the verdict."""
        return math.isinf(self.least) and math.isinf(self.most)


Measure = Callable[["polars.DataFrame"], Finding | None]
Comparisons = Callable[["polars.DataFrame"], Iterator[Comparison]]


def registering(measures: dict[str, Measure]) -> Callable[[Comparisons], Measure]:
    """Return a decorator that turns a function that yields comparisons into a measure, and adds it to ``measures``."""

    def measure(comparisons: Comparisons) -> Measure:
        @wraps(comparisons)
        def judge(records: polars.DataFrame) -> Finding | None:
            return _combine([*comparisons(records)])

        measures[comparisons.__name__] = judge
        return judge

    return measure


def _combine(parts: Sequence[Comparison]) -> Finding | None:
    """Return the verdict over all models: one comparison can refute a claim; a model that lacks some cannot support it."""
    measured = [part for part in parts if part.value.samples]
    incomplete = {part.model for part in parts if not part.value.samples and not part.shown_only}
    deciding = [part for part in measured if not part.shown_only]
    verdicts = {part.verdict for part in deciding if part.model not in incomplete or part.verdict == "does not hold"}
    if not verdicts:
        return None
    verdict: Verdict = next((each for each in ("does not hold", "undecided") if each in verdicts), "holds")
    lines = []
    for name in dict.fromkeys(part.model for part in measured):
        numbers = "; ".join(f"{each.what} {each.value}" for each in measured if each.model == name)
        lines.append(f"`{name}`: {numbers}{'; the rest was not measured' if name in incomplete else ''}")
    return Finding(verdict, ". ".join(lines))
