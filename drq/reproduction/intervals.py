"""Estimate accuracies, paired differences, means and ratios from records, with 95 % intervals."""

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

CORRUPTIONS = 15  # a mean over corruptions needs all of them


class Estimate(NamedTuple):
    """An estimate with its 95 % interval and the number of samples behind it."""

    middle: float
    low: float
    high: float
    samples: int

    def __str__(self) -> str:
        return f"{self.middle:.2f} [{self.low:.2f}, {self.high:.2f}], n = {self.samples}"


NOTHING = Estimate(math.nan, math.nan, math.nan, 0)


def by_model(records: polars.DataFrame, experiment: str) -> Iterator[tuple[str, polars.DataFrame]]:
    """Yield the models of an experiment and their records."""
    for rows in records.filter(experiment=experiment).partition_by("model", maintain_order=True):
        yield rows["model"][0], rows


def trained_in(model: str) -> str | None:
    """Return the norm in which a model was adversarially trained; None where it was not."""
    paper = stand_ins().get(model, model)
    return "linf" if "/Linf/" in paper else "l2" if "/L2/" in paper else None


def drq_defences(rows: polars.DataFrame) -> list[str]:
    """Return the names of the defences that are DRQ."""
    return sorted(name for name in set(rows["defence"]) if name.startswith("DRQ"))


def select(rows: polars.DataFrame, **values: str | Sequence[str]) -> polars.DataFrame:
    """Return the rows in which each named column has the given value, or one of the given values."""
    pl = require_polars()
    lists = {name: [value] if isinstance(value, str) else [*value] for name, value in values.items()}
    return rows.filter(*(pl.col(name).is_in(allowed) for name, allowed in lists.items()))


def corrected() -> polars.Expr:
    """Return an expression: whether the defence is right where the model alone is wrong."""
    pl = require_polars()
    expression: polars.Expr = (pl.col("prediction") == pl.col("label")) & (pl.col("base_prediction") != pl.col("label"))
    return expression


def correct_by_image(rows: polars.DataFrame) -> polars.DataFrame:
    """Return whether each image was answered correctly under every threat; images without all threats are left out."""
    pl = require_polars()
    right = (pl.col("prediction") == pl.col("label")).all()
    threats = rows["threat"].n_unique()
    return rows.group_by("data", "index").agg(right=right, tried=pl.len()).filter(pl.col("tried") == threats)


def accuracy_gain(first: polars.DataFrame, second: polars.DataFrame) -> Estimate:
    """Return the accuracy in the first rows minus that in the second, in points, on the images that both have."""
    both = correct_by_image(first).join(correct_by_image(second), on=["data", "index"], suffix="_other")
    one, other = (both[name].to_numpy().astype(bool) for name in ("right", "right_other"))
    return share_difference(one & ~other, ~one & other)


def share_difference(more: NDArray[np.bool_], less: NDArray[np.bool_]) -> Estimate:
    """Return the share of images marked in ``more`` minus that in ``less``, in points."""
    if not len(more):
        return NOTHING
    value = paired(more.sum(), less.sum(), len(more))
    return Estimate(value.difference.item(), value.low.item(), value.high.item(), len(more))


def corrupted_gain(rows: polars.DataFrame, first: str, second: str) -> Estimate:
    """Return the gain in mean accuracy over the corruptions of a data set, of the first defence over the second."""
    pl = require_polars()
    chosen = select(rows, defence=(first, second), victim="base").filter(pl.col("data").str.contains("-c/"))
    if chosen["defence"].n_unique() < 2:
        return NOTHING
    table = mean_over_data(chosen.with_columns(seconds=pl.lit(0.0)), reference=second).drop_nulls("difference")
    table = table.filter(pl.col("data_sets") == CORRUPTIONS, defence=first)
    if not len(table):
        return NOTHING
    row = table.row(0, named=True)
    return Estimate(row["difference"], row["difference_low"], row["difference_high"], row["compared"])


def accuracy(rows: polars.DataFrame) -> Estimate:
    """Return the accuracy in percent."""
    right = correct_by_image(rows)["right"].to_numpy().astype(bool)
    low, high = wilson(right.sum(), len(right))
    return Estimate(100 * right.mean().item(), low.item(), high.item(), len(right)) if len(right) else NOTHING


def mean_of(values: ArrayLike, scale: float = 1.0) -> Estimate:
    """Return the mean of independent numbers, multiplied by ``scale``."""
    numbers = scale * np.asarray(values, float)
    if len(numbers) < 2:
        return NOTHING
    middle, half = numbers.mean(), Z * numbers.std(ddof=1) / math.sqrt(len(numbers))
    return Estimate(middle.item(), (middle - half).item(), (middle + half).item(), len(numbers))


def _half(value: Estimate) -> float:
    return (value.high - value.low) / 2


def ratio_of(first: Estimate, second: Estimate) -> Estimate:
    """Return the ratio of two independent positive means; the interval is that of the difference of their logarithms."""
    if not first.samples * second.samples:
        return NOTHING
    spread = math.exp(math.hypot(_half(first) / first.middle, _half(second) / second.middle))
    ratio = first.middle / second.middle
    return Estimate(ratio, ratio / spread, ratio * spread, first.samples + second.samples)


def difference_of(first: Estimate, second: Estimate) -> Estimate:
    """Return the difference of two independent means."""
    if not first.samples * second.samples:
        return NOTHING
    middle, half = first.middle - second.middle, math.hypot(_half(first), _half(second))
    return Estimate(middle, middle - half, middle + half, first.samples + second.samples)


def average_of(values: Sequence[Estimate]) -> Estimate:
    """Return the average of means on the same images; averaging their intervals is exact or too wide."""
    if not all(each.samples for each in values):
        return NOTHING
    middle, low, high = (sum(ends) / len(values) for ends in [*zip(*values, strict=True)][:3])
    return Estimate(middle, low, high, sum(each.samples for each in values))


def highest(values: dict[str, Estimate]) -> str:
    """Return the name of the highest estimate, or "nothing"."""
    return max(values, key=lambda name: values[name].middle if values[name].samples else -math.inf, default="nothing")


def radii_of(rows: polars.DataFrame, defence: str) -> Any:
    """Return the radii of exploration, where one was found."""
    return select(rows, defence=defence)["radius"].drop_nulls().to_numpy()


def mean_robustness(rows: polars.DataFrame, column: str) -> Estimate:
    """Return the mean of a robustness in percent; the answers to one image are averaged first."""
    return mean_of(rows.drop_nulls(column).group_by("index").agg(require_polars().col(column).mean())[column].to_numpy(), 100)
