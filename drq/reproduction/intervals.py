"""Numbers of records with 95 % intervals: accuracies, differences on the same images, means and their ratios."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from drq.evaluation.paper import stand_ins
from drq.evaluation.records import require_polars
from drq.report.statistics import Z, paired, wilson
from drq.report.tables import mean_over_data

if TYPE_CHECKING:
    import polars

CORRUPTIONS = 15  # that a mean is of


class Value(NamedTuple):
    """A number with its 95 % interval, and of how many samples it is."""

    middle: float
    low: float
    high: float
    samples: int

    def __str__(self) -> str:
        return f"{self.middle:.2f} [{self.low:.2f}, {self.high:.2f}], n = {self.samples}"


NOTHING = Value(math.nan, math.nan, math.nan, 0)


def by_model(records: polars.DataFrame, experiment: str) -> Iterator[tuple[str, polars.DataFrame]]:
    """The records of an experiment, model by model."""
    for rows in records.filter(experiment=experiment).partition_by("model", maintain_order=True):
        yield rows["model"][0], rows


def trained_in(model: str) -> str | None:
    """The norm in which a model was adversarially trained; None where it was not."""
    paper = stand_ins().get(model, model)
    return "linf" if "/Linf/" in paper else "l2" if "/L2/" in paper else None


def drqs(rows: polars.DataFrame) -> list[str]:
    """The defences that are a DRQ."""
    return sorted(name for name in set(rows["defence"]) if name.startswith("DRQ"))


def where(rows: polars.DataFrame, **values: str | Sequence[str]) -> polars.DataFrame:
    """Rows in which a column has the value, or one of the values."""
    pl = require_polars()
    lists = {name: [value] if isinstance(value, str) else [*value] for name, value in values.items()}
    return rows.filter(*(pl.col(name).is_in(allowed) for name, allowed in lists.items()))


def corrected() -> polars.Expr:
    """Whether the defence is right where the model alone is wrong."""
    pl = require_polars()
    expression: polars.Expr = (pl.col("prediction") == pl.col("label")) & (pl.col("base_prediction") != pl.col("label"))
    return expression


def right_answers(rows: polars.DataFrame) -> polars.DataFrame:
    """Whether the answer was right, image by image; of several threats under all of them, where all were tried."""
    pl = require_polars()
    right = (pl.col("prediction") == pl.col("label")).all()
    threats = rows["threat"].n_unique()
    return rows.group_by("data", "index").agg(right=right, tried=pl.len()).filter(pl.col("tried") == threats)


def gain_of(first: polars.DataFrame, second: polars.DataFrame) -> Value:
    """Accuracy in the first rows minus that in the second, in points, on the images that both have."""
    both = right_answers(first).join(right_answers(second), on=["data", "index"], suffix="_other")
    one, other = (both[name].to_numpy().astype(bool) for name in ("right", "right_other"))
    return excess(one & ~other, ~one & other)


def excess(more: NDArray[np.bool_], less: NDArray[np.bool_]) -> Value:
    """The share of images with more minus that with less, in points."""
    if not len(more):
        return NOTHING
    value = paired(more.sum(), less.sum(), len(more))
    return Value(value.difference.item(), value.low.item(), value.high.item(), len(more))


def corrupted_gain(rows: polars.DataFrame, first: str, second: str) -> Value:
    """The same for the mean over the corruptions of one data set, of a defence over another."""
    pl = require_polars()
    chosen = where(rows, defence=(first, second), victim="base").filter(pl.col("data").str.contains("-c/"))
    if chosen["defence"].n_unique() < 2:
        return NOTHING
    table = mean_over_data(chosen.with_columns(seconds=pl.lit(0.0)), reference=second).drop_nulls("difference")
    table = table.filter(pl.col("data_sets") == CORRUPTIONS, defence=first)
    if not len(table):
        return NOTHING
    row = table.row(0, named=True)
    return Value(row["difference"], row["difference_low"], row["difference_high"], row["compared"])


def accuracy(rows: polars.DataFrame) -> Value:
    """Accuracy in percent."""
    right = right_answers(rows)["right"].to_numpy().astype(bool)
    low, high = wilson(right.sum(), len(right))
    return Value(100 * right.mean().item(), low.item(), high.item(), len(right)) if len(right) else NOTHING


def mean_of(values: ArrayLike, scale: float = 1.0) -> Value:
    """Mean of independent numbers, multiplied by ``scale``."""
    numbers = scale * np.asarray(values, float)
    if len(numbers) < 2:
        return NOTHING
    middle, half = numbers.mean(), Z * numbers.std(ddof=1) / math.sqrt(len(numbers))
    return Value(middle.item(), (middle - half).item(), (middle + half).item(), len(numbers))


def _half(value: Value) -> float:
    return (value.high - value.low) / 2


def ratio_of(first: Value, second: Value) -> Value:
    """Of two independent means above 0; the interval is that of the difference of their logarithms."""
    if not first.samples * second.samples:
        return NOTHING
    spread = math.exp(math.hypot(_half(first) / first.middle, _half(second) / second.middle))
    ratio = first.middle / second.middle
    return Value(ratio, ratio / spread, ratio * spread, first.samples + second.samples)


def difference_of(first: Value, second: Value) -> Value:
    """Of two independent means."""
    if not first.samples * second.samples:
        return NOTHING
    middle, half = first.middle - second.middle, math.hypot(_half(first), _half(second))
    return Value(middle, middle - half, middle + half, first.samples + second.samples)


def average_of(values: Sequence[Value]) -> Value:
    """Of means on the same images; the mean of their intervals is right or too wide."""
    if not all(each.samples for each in values):
        return NOTHING
    middle, low, high = (sum(ends) / len(values) for ends in [*zip(*values, strict=True)][:3])
    return Value(middle, low, high, sum(each.samples for each in values))


def highest(values: dict[str, Value]) -> str:
    """The name of the highest; of none where there is none."""
    return max(values, key=lambda name: values[name].middle if values[name].samples else -math.inf, default="nothing")


def radii_of(rows: polars.DataFrame, defence: str) -> Any:
    """Radii of exploration, where there is one."""
    return where(rows, defence=defence)["radius"].drop_nulls().to_numpy()


def mean_robustness(rows: polars.DataFrame, column: str) -> Value:
    """In percent; the answers to one image count as one."""
    return mean_of(rows.drop_nulls(column).group_by("index").agg(require_polars().col(column).mean())[column].to_numpy(), 100)
