"""Write polars expressions that recompute a number of a table from ``records``, as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

UNDEFENDED = "standard"  # name of the model without a defence
RIGHT = '(pl.col("prediction") == pl.col("label"))'
SETTINGS = ("explore_steps", "quantify_steps", "alpha", "threshold")  # settings of DRQ, which the reference lacks

Row = Mapping[str, Any]  # a row of a table


def where(row: Row, columns: Sequence[str], defence: str | list[str] | None = None) -> str:
    """Return the condition that selects the records of a row's group and of one defence; a list selects several values.

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
    """Expressions for an accuracy over one group and defence in which each sample has one row."""

    by: Sequence[str]  # columns that identify groups
    reference: str  # the defence to compare with
    key = '"index"'  # columns that identify samples within a group
    right = RIGHT

    def accuracy(self, row: Row) -> str:
        """Return the expression for the accuracy of the defence."""
        return self.samples(row, self.by, row["defence"]) + self.mean(self.right)

    def reference_accuracy(self, row: Row) -> str:
        """Return the expression for the accuracy of the reference on the samples of the defence."""
        common, right = [name for name in self.by if name not in SETTINGS], self.right
        other = self.samples(row, common, self.reference)
        if row["victim"] == "defence" and self.reference == UNDEFENDED:
            right = 'pl.col("base_withstood")'
            names = list(dict.fromkeys([row["defence"], self.reference]))  # attacks on other defences do not count
            other = f"records.filter({where(row, common, names)}).group_by({self.key}).agg({right}.all())"
        mine = self.samples(row, self.by, row["defence"])
        return f'{other}.join({mine}, on=[{self.key}], how="semi"){self.mean(right)}'

    def samples(self, row: Row, columns: Sequence[str], defence: str) -> str:
        """Return the expression for a data frame with one row for each sample that counts."""
        return f"records.filter({where(row, columns, defence)})"

    def mean(self, right: str) -> str:
        """Return the expression for the share of correct samples, in percent."""
        return f".select({right}.mean() * 100).item()"


class WorstCase(Cell):
    """Expressions for an accuracy over samples that have a row for each threat."""

    right = 'pl.col("prediction")'  # whether all were right: polars names the result after its first column

    def samples(self, row: Row, columns: Sequence[str], defence: str) -> str:
        """Return the expression for a data frame with one row for each sample that counts."""
        together = f"group_by({self.key}).agg({RIGHT}.all(), pl.len())"
        return f'{super().samples(row, columns, defence)}.{together}.filter(pl.col("len") == {row["threats"]})'


class MeanOverData(Cell):
    """Expressions for the mean of the accuracies of several data sets."""

    key = '"data", "index"'

    def mean(self, right: str) -> str:
        """Return the expression for the mean share of correct samples, in percent."""
        return f'.group_by("data").agg({right}.mean().alias("share")).select(pl.col("share").mean() * 100).item()'
