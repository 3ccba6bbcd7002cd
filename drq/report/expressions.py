"""Where a number of a table comes from: one polars expression, as text, that computes it again from ``records`` and ``pl``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

UNDEFENDED = "standard"  # the defence that is none
RIGHT = '(pl.col("prediction") == pl.col("label"))'
SETTINGS = ("explore_steps", "quantify_steps", "alpha", "threshold")  # of a defence: the reference has none of them

Row = Mapping[str, Any]  # of a table


def where(row: Row, columns: Sequence[str], defence: str | list[str] | None = None) -> str:
    """The condition for records of the group of a row, and of one defence. A value may be a list of those to take.

    >>> print(where({"model": "it's", "alpha": None}, ["model", "alpha"], "DRQ"))
    (pl.col("model") == "it's") & pl.col("alpha").is_null() & (pl.col("defence") == 'DRQ')
    """
    named = {name: row[name] for name in columns} | ({} if defence is None else {"defence": defence})
    return " & ".join(_equals(name, value) for name, value in named.items())


def _equals(name: str, value: Any) -> str:
    if value is None:
        return f'pl.col("{name}").is_null()'
    return f'pl.col("{name}").is_in({value!r})' if isinstance(value, list) else f'(pl.col("{name}") == {value!r})'


@dataclass(frozen=True)
class Cell:
    """An accuracy over the rows of one group and defence, where a sample is one row."""

    by: Sequence[str]  # columns that tell groups apart
    reference: str  # the defence to compare with
    key = '"index"'  # what tells samples of a group apart
    right = RIGHT

    def accuracy(self, row: Row) -> str:
        """Of the defence."""
        return self.samples(row, self.by, row["defence"]) + self.mean(self.right)

    def reference_accuracy(self, row: Row) -> str:
        """Of the reference, on the samples of the defence."""
        common, right = [name for name in self.by if name not in SETTINGS], self.right
        other = self.samples(row, common, self.reference)
        if row["victim"] == "defence" and self.reference == UNDEFENDED:
            right = 'pl.col("base_withstood")'
            names = list(dict.fromkeys([row["defence"], self.reference]))  # what was tried on others is not counted
            other = f"records.filter({where(row, common, names)}).group_by({self.key}).agg({right}.all())"
        mine = self.samples(row, self.by, row["defence"])
        return f'{other}.join({mine}, on=[{self.key}], how="semi"){self.mean(right)}'

    def samples(self, row: Row, columns: Sequence[str], defence: str) -> str:
        """A data frame with one row for each sample that counts."""
        return f"records.filter({where(row, columns, defence)})"

    def mean(self, right: str) -> str:
        """The share of samples that are right, in percent."""
        return f".select({right}.mean() * 100).item()"


class WorstCase(Cell):
    """An accuracy over samples that have a row for each threat."""

    right = 'pl.col("prediction")'  # whether all were right: a result has the name of the first column in it

    def samples(self, row: Row, columns: Sequence[str], defence: str) -> str:
        """A data frame with one row for each sample that counts."""
        together = f"group_by({self.key}).agg({RIGHT}.all(), pl.len())"
        return f'{super().samples(row, columns, defence)}.{together}.filter(pl.col("len") == {row["threats"]})'


class MeanOverData(Cell):
    """A mean of accuracies, one for each data set."""

    key = '"data", "index"'

    def mean(self, right: str) -> str:
        """The mean share of samples that are right, in percent."""
        return f'.group_by("data").agg({right}.mean().alias("share")).select(pl.col("share").mean() * 100).item()'
