"""Compute what defences gain over a reference on the same shifted images, and whether the gain counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from drq.evaluation.records import require_polars
from drq.report.statistics import student
from drq.report.typesetting import number, text_table
from drq.reproduction.overview import ALONE

if TYPE_CHECKING:
    import polars

PAPER, RESTORED, FRONTED, CHOSEN_ON = "DRQ", "restored", "DRQ shift", "cifar10-linf"
SHIFTS = 17  # fifteen corruptions, one rotation, one translation
COLUMNS = {"clean": "clean", "corruptions": "corrupted", "rotated": "rotation", "moved": "translation"}
HEADINGS = ("model", "defence", *COLUMNS, "all shifts", "gain", "passes", "images")
FEW = 40  # a defence with at most this many passes is cheap

COUNTS = "`{name}` counts as better: its interval on `{model}` lies above 0, and its gain has the same sign on every other model."
COUNTS_NOT = "`{name}` does not count as better than the paper's: {why}."
BEST_HELD = (
    "At {few} passes or fewer, `{name}` is the most accurate on shifted images around `{model}`: "
    "{shifts} %, {gain} over the paper's DRQ."
)
OVER_FRONT = "Over its front alone `{name}` gains {gains}{words}."
ADDS_NOT = ": nowhere beyond chance, so that it is the front that helps, in one pass"


class Gain(NamedTuple):
    """The gain of a defence over a reference, in points, with its interval."""

    middle: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{number('difference', self.middle)} [{number('difference', self.low)}, {number('difference', self.high)}]"


class ShiftResult(NamedTuple):
    """The accuracy of a defence of a model under every kind of shift."""

    model: str
    defence: str
    by_shift: dict[str, float]  # accuracy by kind of shift
    shifts: float | None  # mean accuracy over all shifts
    gain: Gain | None  # over the reference; None unless both were run under every shift on the same images
    passes: float
    images: int

    @property
    def cells(self) -> list[object]:
        """The cells of the table's row."""
        values = [number("accuracy", self.by_shift.get(each)) for each in COLUMNS.values()]
        cost = (f"{self.passes:,.0f}", f"{self.images:,}")
        return [self.model, self.defence, *values, number("accuracy", self.shifts), self.gain or "", *cost]


def with_shift(rows: polars.DataFrame) -> polars.DataFrame:
    """Add a column ``shift``: clean, corrupted, rotation or translation."""
    pl = require_polars()
    corrupted = pl.col("data").cast(pl.String).str.contains("-c/")
    return rows.with_columns(shift=pl.when(corrupted).then(pl.lit("corrupted")).otherwise(pl.col("threat").cast(pl.String)))


def gain(rows: polars.DataFrame, defence: str, reference: str = PAPER) -> Gain | None:
    """Return the mean gain over all shifts, with an interval over images, since answers to one image are dependent."""
    pl = require_polars()
    right = 100.0 * (pl.col("prediction") == pl.col("label"))
    key = ["data", "threat", "index"]
    first, second = (
        rows.filter(pl.col("shift") != "clean", pl.col("defence").cast(pl.String) == name).select(*key, right=right)
        for name in (defence, reference)
    )
    both = first.join(second, on=key, suffix="_paper")
    images = both.group_by("index").agg(gain=(pl.col("right") - pl.col("right_paper")).mean())["gain"]
    if len(images) < 2:
        return None
    middle, half = float(images.mean()), student(len(images) - 1) * float(images.std()) / len(images) ** 0.5  # type: ignore[arg-type]
    return Gain(middle, middle - half, middle + half)


def shift_results(rows: polars.DataFrame, reference: str = PAPER) -> Iterator[ShiftResult]:
    """Yield the result of each model and defence, with its gain over the reference."""
    pl = require_polars()
    rows = with_shift(rows)
    right = 100 * (pl.col("prediction") == pl.col("label")).mean()
    for (model, name), part in rows.group_by("model", "defence", maintain_order=True):
        places = part.group_by("data", "threat", "shift", maintain_order=True).agg(right=right)
        by_shift = places.group_by("shift").agg(pl.col("right").mean())
        every = places.filter(pl.col("shift") != "clean")["right"].to_list()
        other = rows.filter(model=model, defence=reference)
        comparable = name != reference and _complete(part) and _complete(other) and {*part["index"]} == {*other["index"]}
        gained = gain(rows.filter(model=model), str(name), reference) if comparable else None
        cost = float(part.select(pl.col("passes").mean()).item())
        mean = sum(every) / len(every) if every else None
        yield ShiftResult(str(model), str(name), dict(by_shift.iter_rows()), mean, gained, cost, part["index"].n_unique())


def _complete(part: polars.DataFrame) -> bool:
    """Return whether every image was run under every shift."""
    rows = part.filter(require_polars().col("shift") != "clean")
    return len(rows) == SHIFTS * rows["index"].n_unique() > 0


def table(rows: polars.DataFrame, reference: str = PAPER) -> str:
    """Return the table with a row for each model and defence."""
    return text_table(HEADINGS, (each.cells for each in shift_results(rows, reference)))


def findings(rows: polars.DataFrame, more: polars.DataFrame | None = None) -> str:
    """Return what follows from the gains, one line for each defence.

    Args:
        rows: the records of defences and of the paper's DRQ.
        more: records on more images of a model, without the paper's DRQ; they take precedence over those of fewer images.
    """
    results = [*shift_results(rows)]
    gains: dict[str, dict[str, Gain]] = {}
    for each in (*results, *(() if more is None else shift_results(more, ALONE))):
        if each.gain is not None:
            gains.setdefault(each.defence, {})[each.model] = each.gain
    lines = [verdict(name, each) for name, each in gains.items()]
    return "\n".join(f"- {each}" for each in (*lines, *over_front(rows), *_best_cheap(results)))


def over_front(rows: polars.DataFrame) -> Iterator[str]:
    """Yield a line on whether DRQ behind a front gains anything over the front alone."""
    gains = [
        (each.model, each.gain) for each in shift_results(rows, RESTORED) if each.defence == FRONTED and each.gain is not None
    ]
    if gains:
        shown = ", ".join(f"{each} on `{model}`" for model, each in gains)
        yield OVER_FRONT.format(name=FRONTED, gains=shown, words="" if any(each.low > 0 for _, each in gains) else ADDS_NOT)


def _best_cheap(results: Iterable[ShiftResult]) -> Iterator[str]:
    """Yield a line for each model: the most accurate of the cheap defences."""
    cheap = [each for each in results if each.gain is not None and each.shifts is not None and each.passes <= FEW]
    for model in dict.fromkeys(each.model for each in cheap):
        best = max((each for each in cheap if each.model == model), key=lambda each: each.shifts or 0)
        shown = {"model": model, "name": best.defence, "shifts": number("accuracy", best.shifts), "gain": best.gain}
        yield BEST_HELD.format(few=FEW, **shown)


def verdict(name: str, gains: dict[str, Gain]) -> str:
    """Say whether a defence counts as better: its gain must be significant on CHOSEN_ON and positive on every model."""
    main = gains.get(CHOSEN_ON)
    if main is None or len(gains) < 2:
        return COUNTS_NOT.format(name=name, why="it was not measured on several models")
    if main.low <= 0:
        reach = "reaches" if main.high >= 0 else "lies below"
        return COUNTS_NOT.format(name=name, why=f"on `{CHOSEN_ON}` its interval {reach} 0")
    worse = [f"`{model}`" for model, each in gains.items() if each.middle <= 0]
    if worse:
        why = f"its interval on `{CHOSEN_ON}` lies above 0, but it gains nothing on {', '.join(worse)}"
        return COUNTS_NOT.format(name=name, why=why)
    return COUNTS.format(name=name, model=CHOSEN_ON)
