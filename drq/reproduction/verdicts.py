"""Judge claims of the paper by comparisons in records.

A claim is measured by comparisons, each of which has a 95 % interval and the range in which the claim wants it. It holds where
all intervals lie in their ranges, for every model in the records; it does not hold where one lies outside; else it is
undecided. A model whose records lack one of the comparisons can refute it, and no more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Literal, NamedTuple

from drq.reproduction.intervals import Value

if TYPE_CHECKING:
    import polars

Verdict = Literal["holds", "does not hold", "undecided"]


class Finding(NamedTuple):
    """What came of a claim: its verdict, and the numbers behind it in one line of Markdown."""

    verdict: Verdict
    measured: str


class Part(NamedTuple):
    """One comparison, and the range in which the claim wants it; without a range it is only shown.

    Where ``fails`` is given, the claim fails where the whole interval is below that, and only there.
    """

    model: str
    what: str
    value: Value
    least: float = -math.inf
    most: float = math.inf
    fails: float | None = None

    @property
    def verdict(self) -> Verdict:
        """By its own interval alone."""
        below = self.value.high <= self.least if self.fails is None else self.value.high < self.fails
        if below or self.value.low >= self.most:
            return "does not hold"
        return "holds" if self.value.low > self.least and self.value.high < self.most else "undecided"

    @property
    def shown_only(self) -> bool:
        """Whether it decides nothing."""
        return math.isinf(self.least) and math.isinf(self.most)


Measure = Callable[["polars.DataFrame"], Finding | None]
Comparisons = Callable[["polars.DataFrame"], Iterator[Part]]


def registering(measures: dict[str, Measure]) -> Callable[[Comparisons], Measure]:
    """Return a decorator that makes a measure of a function that yields comparisons, and adds it to ``measures``."""

    def measure(parts: Comparisons) -> Measure:
        @wraps(parts)
        def found(records: polars.DataFrame) -> Finding | None:
            return _merged([*parts(records)])

        measures[parts.__name__] = found
        return found

    return measure


def _merged(parts: Sequence[Part]) -> Finding | None:
    """The verdict over all models: one comparison refutes a claim, and a model that lacks some can only refute it."""
    there = [part for part in parts if part.value.samples]
    lacking = {part.model for part in parts if not part.value.samples and not part.shown_only}
    deciding = [part for part in there if not part.shown_only]
    verdicts = {part.verdict for part in deciding if part.model not in lacking or part.verdict == "does not hold"}
    if not verdicts:
        return None
    verdict: Verdict = next((each for each in ("does not hold", "undecided") if each in verdicts), "holds")
    lines = []
    for name in dict.fromkeys(part.model for part in there):
        numbers = "; ".join(f"{each.what} {each.value}" for each in there if each.model == name)
        lines.append(f"`{name}`: {numbers}{'; the rest was not measured' if name in lacking else ''}")
    return Finding(verdict, ". ".join(lines))
