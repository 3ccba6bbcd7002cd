"""Compare the numbers of the paper with ours, cell by cell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from drq.evaluation.paper import published, stand_ins
from drq.evaluation.records import require_polars
from drq.registry import CORRUPTIONS as KINDS
from drq.report import tables
from drq.report.expressions import UNDEFENDED
from drq.reproduction.intervals import CORRUPTIONS, corrected

if TYPE_CHECKING:
    import polars

PLACE = ("model", "data", "suite", "threat")  # with the defence, these identify a cell
OURS = (
    *("images", "accuracy", "low", "high", "passes", "threat_passes"),
    *("difference", "difference_low", "difference_high", "p_value"),
)
KIND = rf"^({'|'.join(KINDS)})(?:(?:, severity |/)\d)?$"  # threats that are corruptions
SAME, LIKELY, UNCLEAR, OPPOSITE, NEITHER = "same", "same, within noise", "other, within noise", "opposite", "no gain here"


def our_cells(records: polars.DataFrame) -> polars.DataFrame:
    """Return our accuracy in every cell of the records: single threats, worst cases of suites, means over corruptions."""
    pl = require_polars()
    parts = [tables.cells(records), tables.worst_case(records)]
    if records["data"].cast(pl.String).str.contains("-c/").any():
        parts.append(tables.mean_over_data(records).filter(pl.col("data_sets") == CORRUPTIONS))
    found: polars.DataFrame = pl.concat([part.select(*PLACE, "victim", "defence", *OURS) for part in parts])
    return found.with_columns(pl.selectors.categorical().cast(pl.String))


def corruptions_as_data(rows: polars.DataFrame) -> polars.DataFrame:
    """Return the records with corruptions that were threats as data sets of their own, of severity 5 where the name has none."""
    pl = require_polars()
    kind, severity = (
        pl.col("threat").str.extract(KIND, 1),
        pl.col("threat").str.extract(r"(?:severity |/)(\d)$", 1).fill_null("5"),
    )
    return rows.with_columns(pl.selectors.categorical().cast(pl.String)).with_columns(
        data=pl.when(kind.is_not_null())
        .then(pl.concat_str("data", pl.lit("-c/"), kind, pl.lit("/"), severity))
        .otherwise("data"),
        threat=pl.when(kind.is_not_null()).then(pl.lit("clean")).otherwise("threat"),
        suite=pl.when(kind.is_not_null()).then(pl.lit("clean")).otherwise("suite"),
    )


def compare_cells(experiment: str, records: polars.DataFrame | None) -> polars.DataFrame:
    """Return the paper's cells of an experiment beside our numbers, where the experiment was run.

    ``value`` is the paper's number, ``gain`` its difference to the undefended model in the same cell; Table 8 has only gains.
    ``model`` is the model that was run; ``of`` is the model of the paper, which differs where a stand-in replaces weights that
    are not available. ``sign`` compares the signs of both gains.
    """
    pl = require_polars()
    accuracies, gains = (published(quantity=each).filter(experiment=experiment) for each in ("accuracy", "difference"))
    gains = gains.rename({"value": "gain"}).with_columns(value=pl.lit(None, pl.Float64))
    paper = pl.concat([_with_gains(accuracies), gains], how="diagonal")
    names = pl.col("model").replace(stand_ins())
    paper = paper.with_columns(of=names, stand_in=pl.col("model") != names)
    if records is None or not len(records):
        ours = pl.DataFrame(schema=dict.fromkeys((*PLACE, "defence"), pl.String) | dict.fromkeys(OURS, pl.Float64))
    else:
        ours = our_cells(records).filter(pl.col("victim") == "base").drop("victim")
    found: polars.DataFrame = paper.join(ours, on=[*PLACE, "defence"], how="left", maintain_order="left")
    places = ["of", *PLACE[1:], "defence"]
    order = paper.filter(~pl.col("stand_in")).select(places).with_row_index("row")
    shown = found.filter(pl.col("accuracy").is_not_null() | ~pl.col("stand_in"))
    return shown.join(order, on=places, how="left").sort("row", "stand_in", "model").drop("row").with_columns(sign=_sign())


def describe_changes(records: polars.DataFrame, place: Mapping[str, Any]) -> str:
    """Say in words how many answers of the model a defence changes in a cell; empty for worst cases of several threats."""
    pl = require_polars()
    within = {key: place[key] for key in (*PLACE, "defence") if key != "data"} | {"victim": "base"}
    rows = records.filter(**within).filter(pl.col("data").cast(pl.String).str.contains(f"^{place['data'].replace('*', '.*')}$"))
    if not len(rows):
        return ""
    label, answer, base = pl.col("label"), pl.col("prediction"), pl.col("base_prediction")
    counts = ((answer != base), (answer == label) & (base != label), (answer != label) & (base == label))
    changed, better, worse = (f"{rows.select(each.sum()).item():,}" for each in counts)
    return f"{changed} of {len(rows):,} answers change, {better} for the better, {worse} for the worse"


def cosines(experiment: str, records: polars.DataFrame | None) -> polars.DataFrame:
    """Return the numbers of Figure 5: quartiles of the cosine between the attack's direction and DRQ's, for corrected answers."""
    pl = require_polars()
    quantiles = {"median": 0.5, "lower quartile": 0.25, "upper quartile": 0.75}
    keys = [*PLACE, "defence"]
    paper = published(experiment, "median").select(*keys, paper="value")
    for name in ("lower quartile", "upper quartile"):
        paper = paper.join(published(experiment, name).select(*keys, pl.col("value").alias(f"paper {name}")), on=keys, how="left")
    paper = paper.rename({"paper": "paper median"}).filter(pl.col("model").is_in([*stand_ins()]))
    if records is None:
        return paper.clear()
    mine = records.with_columns(pl.selectors.categorical().cast(pl.String)).filter(corrected(), pl.col("cosine").is_not_null())
    quartiles = (pl.col("cosine").quantile(share, "linear").alias(name) for name, share in quantiles.items())
    ours = mine.group_by(keys).agg(*quartiles, images=pl.len())
    return paper.join(ours, on=keys, how="inner", maintain_order="left")


def _with_gains(paper: polars.DataFrame) -> polars.DataFrame:
    pl = require_polars()
    alone = paper.filter(defence=UNDEFENDED).select(*PLACE, alone="value")
    joined = paper.join(alone, on=PLACE, how="left", maintain_order="left")
    gain = pl.when(pl.col("defence") != UNDEFENDED).then((pl.col("value") - pl.col("alone")).round(2))
    return joined.with_columns(gain=gain).drop("alone")


def _sign() -> polars.Expr:
    """Return whether both gains have the same sign, and whether ours is significant."""
    pl = require_polars()
    theirs, ours = pl.col("gain"), pl.col("difference")
    sure = (pl.col("difference_low") > 0) | (pl.col("difference_high") < 0)
    agree, differ = theirs * ours > 0, theirs * ours < 0
    sign: polars.Expr = (
        pl.when(agree & sure)
        .then(pl.lit(SAME))
        .when(agree)
        .then(pl.lit(LIKELY))
        .when(differ & sure)
        .then(pl.lit(OPPOSITE))
        .when(differ)
        .then(pl.lit(UNCLEAR))
        .when((theirs != 0) & (ours == 0))
        .then(pl.lit(NEITHER))
        .otherwise(pl.lit(""))
    )
    return sign
