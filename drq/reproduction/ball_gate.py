"""Compute what a gate makes of DRQ in a ball, from kept records: the model's answer stands unless the margin is large enough.

Large enough is above the median margin of those clean images below :data:`LEARNT` whose answer DRQ changes. That takes neither
labels nor passes. Reported are other images: clean ones in the record of Table 6, shifted ones in that of ``ball-gate``, and in
others where they reach so far.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from drq.evaluation.records import require_polars
from drq.report import tables
from drq.report.typesetting import text_table
from drq.reproduction.intervals import CORRUPTIONS
from drq.reproduction.overview import ALONE, with_interval

if TYPE_CHECKING:
    import polars

LEARNT, LAST = 5000, 7999  # gates are learnt below the first, and reported from it to the last
OPEN, GATED = "as it is", "gated"
EXPERIMENTS = ("table6", "table1", "table3", "table4", "table7", "ball-gate")  # the first one has the clean images
DEFENCES = (  # around models with adversarial training
    ("cifar10-linf", "DRQ linf"),
    ("cifar10-linf", "DRQ l2"),
    ("cifar10-small", "DRQ linf"),
    ("cifar10-small", "DRQ l2"),
    ("cifar10-l2", "DRQ l2"),
)
CORRUPTED = f"{CORRUPTIONS} corruptions"
THREATS = {  # of records, and their columns
    "clean": "clean",
    "one rotation": "rotated once",
    "one translation": "moved once",
    "transferred": "one attack, APGD, on the model alone",
    tables.WORST_CASE: "ensemble of attacks on the model alone",
}
COLUMNS = ("clean", CORRUPTED, *[name for name in THREATS.values() if name != "clean"])
Cells = dict[tuple[str, str], Mapping[str, float]]  # rows of tables, by column and whether there is a gate


class Gated(NamedTuple):
    """A defence with its gate.

    Args:
        model: the name of the model.
        defence: DRQ in a ball around it.
        changed: how many clean answers it changes on the images that the gate was learnt from.
        threshold: the median of their margins.
        cells: what it adds to the model alone, with the gate and without.
    """

    model: str
    defence: str
    changed: int
    threshold: float
    cells: Cells


def gated(records: Mapping[str, polars.DataFrame], first: int = LEARNT, last: int = LAST) -> Iterator[Gated]:
    """Yield every defence, reported on the images from first to last.

    Args:
        records: the rows of :data:`EXPERIMENTS`, by name.
        first: the first image that is reported.
        last: the last one.
    """
    pl = require_polars()
    for model, defence in DEFENCES:
        clean = records[EXPERIMENTS[0]].filter(model=model, defence=defence, threat="clean", victim="base")
        changed = clean.filter(pl.col("index") < LEARNT, pl.col("prediction") != pl.col("base_prediction"))["margin"]
        threshold = float(changed.median())  # type: ignore[arg-type]
        mine = (pl.col("model") == model) & pl.col("defence").is_in([ALONE, defence]) & (pl.col("victim") == "base")
        cells: Cells = {}
        for name in EXPERIMENTS:
            rows = records[name].filter(mine, pl.col("index").is_between(first, last))
            cells |= _cells(with_gate(rows, defence, threshold))
        yield Gated(model, defence, len(changed), threshold, cells)


def with_gate(rows: polars.DataFrame, defence: str, threshold: float) -> polars.DataFrame:
    """Return the records of the model alone, and those of a defence twice: as it is, and behind a gate with this threshold."""
    pl = require_polars()
    answer = pl.when(pl.col("margin") > threshold).then("prediction").otherwise("base_prediction")
    own = rows.filter(defence=defence)
    both = [own.with_columns(defence=pl.lit(OPEN)), own.with_columns(defence=pl.lit(GATED), prediction=answer)]
    found: polars.DataFrame = pl.concat([rows.filter(defence=ALONE), *both])
    return found


def _cells(rows: polars.DataFrame) -> Cells:
    """Return the cells of a record that have a column."""
    pl = require_polars()
    if not len(rows):
        return {}
    corrupted, ensemble = pl.col("data").str.contains("-c/"), pl.col("suite").str.starts_with("ensemble")
    parts = [tables.cells(rows.filter(~corrupted, ~ensemble)), tables.worst_case(rows.filter(ensemble))]
    found = {
        (THREATS[row["threat"]], row["defence"]): row
        for part in parts
        for row in part.iter_rows(named=True)
        if row["threat"] in THREATS and row["defence"] != ALONE
    }
    means = tables.mean_over_data(rows.filter(corrupted)).filter(pl.col("data_sets") == CORRUPTIONS, pl.col("defence") != ALONE)
    return found | {(CORRUPTED, row["defence"]): row for row in means.iter_rows(named=True)}


def table(records: Mapping[str, polars.DataFrame], first: int = LEARNT, last: int = LAST) -> str:
    """Return the table of what DRQ adds to the model alone, in points, as it is and gated, in columns that have records.

    Args:
        records: see :func:`gated`.
        first: likewise.
        last: likewise.
    """
    found = [*gated(records, first, last)]
    heads = [name for name in COLUMNS if any((name, GATED) in each.cells for each in found)]
    rows = []
    for each in found:
        images = max(map(_images, each.cells.values()))
        shown = [
            _shown(each.cells[name, kind], images) if (name, kind) in each.cells else ""
            for name in heads
            for kind in (OPEN, GATED)
        ]
        rows.append([f"`{each.model}`", each.defence, f"{each.changed:,}", f"{each.threshold:.3f}", *shown, f"{images:,}"])
    titles = [f"{name}, {kind}" for name in heads for kind in (OPEN, GATED)]
    return text_table(("model", "defence", "answers learnt from", "threshold", *titles, "images"), rows)


def _images(row: Mapping[str, float]) -> int:
    """Return the number of images of a cell; where it is a mean over corruptions, of each."""
    return int(row["images"] / row["data_sets"])


def _shown(row: Mapping[str, float], images: int) -> str:
    """Return a difference with its interval, and the number of images where it is not the usual one."""
    return with_interval(row) + ("" if _images(row) == images else f" on {_images(row):,}")
