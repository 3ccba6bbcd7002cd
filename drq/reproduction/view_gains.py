"""Compute what rules over views gain over the model alone under every shift, how many clean answers they change, and the cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from drq.defences.learnt_gate import LearntGate
from drq.evaluation.records import require_polars
from drq.evaluation.sources import as_spec
from drq.report import tables
from drq.report.typesetting import number, text_table
from drq.reproduction.cells import corruptions_as_data
from drq.reproduction.overview import ALONE, with_interval
from drq.reproduction.provenance import short_name
from drq.views.gate import largest_share

if TYPE_CHECKING:
    import polars

Promised = Mapping[tuple[str, str], Mapping[str, Any]]  # by model and rule
NOTHING: Promised = MappingProxyType({})
CLEAN = "clean"
LEGEND = """\
Accuracy in percent, and in brackets what the rule adds to the model alone on the same images, in points, with its 95 % interval.
*Passes* are evaluations of the model for an answer, *forward* those without a gradient. *Changed* is the share of clean answers
that are not those of the model alone, *kept* the share of all answers, clean and shifted, at which the gate held."""
GATES = """\
Answers that change on clean images that no gate was learnt from; *bound* is the share of all such images that the gate prints,
each with 95 % confidence."""


def gain_cells(rows: polars.DataFrame) -> polars.DataFrame:
    """Return one row for each model, rule and ``column``: a threat to clean images, or all corruptions, whose mean it is."""
    pl = require_polars()
    shifted = corruptions_as_data(rows)
    corrupted = pl.col("data").str.contains("-c/")
    parts = [tables.cells(shifted.filter(~corrupted)).with_columns(column=pl.col("threat").cast(pl.String))]
    if len(kinds := shifted.filter(corrupted)):
        severity = pl.col("data").cast(pl.String).str.extract(r"/(\d)$")
        one = kinds["data"].cast(pl.String).str.extract(r"/(\d)$").n_unique() == 1
        name = (
            pl.format("{} corruptions", "data_sets") if one else pl.format("{} corruptions, severity {}", "data_sets", severity)
        )
        means = tables.mean_over_data(kinds).with_columns(column=name, images=pl.col("images") // pl.col("data_sets"))
        parts.insert(0, means)
    found: polars.DataFrame = pl.concat(part.select("model", "defence", "column", *tables.VALUES) for part in parts)
    return found


def columns(cells: polars.DataFrame) -> list[str]:
    """Return the columns of a table, clean images first."""
    return sorted(cells["column"].unique(maintain_order=True), key=lambda name: name != CLEAN)


def table(rows: polars.DataFrame) -> str:
    """Return the table with a row for each model and rule."""
    pl = require_polars()
    cells, lines = gain_cells(rows), []
    heads = columns(cells)
    answers = rows.group_by("model", "defence", maintain_order=True).agg(
        pl.col("passes", "forward_passes", "kept").cast(pl.Float64).mean(),
        changed=(pl.col("prediction") != pl.col("base_prediction")).filter(_clean()).mean(),
    )
    for row in answers.iter_rows(named=True):
        mine = {each["column"]: each for each in cells.filter(model=row["model"], defence=row["defence"]).iter_rows(named=True)}
        images = mine[CLEAN]["images"]
        shown = [_shown(mine[name], images) if name in mine else "" for name in heads]
        shares = ["" if row[name] is None else f"{100 * row[name]:.1f}" for name in ("changed", "kept")]
        cost = ["" if row[name] is None else f"{row[name]:.0f}" for name in ("passes", "forward_passes")]
        lines.append([short_name(row["model"]), row["defence"], *cost, *shown, *shares, f"{images:,}"])
    return text_table(("model", "rule", "passes", "forward", *heads, "changed", "kept", "images"), lines)


def _clean() -> polars.Expr:
    pl = require_polars()
    clean: polars.Expr = (pl.col("threat") == CLEAN) & ~pl.col("data").str.contains("-c/")
    return clean


def _shown(row: Mapping[str, Any], images: int) -> str:
    """Return an accuracy, its difference to the model alone, and the number of images where it is not the usual one."""
    parts = [number("accuracy", row["accuracy"])]
    if row["difference"] is not None:
        parts.append(f"({with_interval(row)})")
    if row["images"] != images:
        parts.append(f"on {row['images']:,}")
    return " ".join(parts)


def over_models(rows: polars.DataFrame) -> str:
    """Return a table with a row for each rule: what it adds as a mean over models, and around how many of them that is shown."""
    pl = require_polars()
    cells = gain_cells(rows).filter(pl.col("difference").is_not_null())
    heads, lines = columns(cells), []
    passes = dict(rows.group_by("defence").agg(pl.col("passes").mean()).iter_rows())
    for defence in cells["defence"].unique(maintain_order=True):
        mine = cells.filter(defence=defence)
        shown = (_over_models(mine.filter(column=name)) for name in heads)
        lines.append([str(defence), f"{passes[defence]:.0f}", *shown, f"{mine['model'].n_unique()}"])
    return text_table(("rule", "passes", *heads, "models"), lines)


def _over_models(cells: polars.DataFrame) -> str:
    """Return the mean difference, its range, and around how many models the whole interval lies above 0, and below it."""
    if not len(cells):
        return ""
    values: list[float] = cells["difference"].to_list()
    ends = (int((cells["difference_low"] > 0).sum()), int((cells["difference_high"] < 0).sum()))
    mean = sum(values) / len(values)
    return f"{mean:+.2f} ({min(values):+.1f} to {max(values):+.1f}; {ends[0]} better, {ends[1]} worse)"


def by_corruption(rows: polars.DataFrame, defence: str) -> str:
    """Return what a rule adds under every corruption, a column for each model."""
    pl = require_polars()
    shifted = corruptions_as_data(rows).filter(pl.col("data").str.contains("-c/"), pl.col("defence").is_in([ALONE, defence]))
    cells = tables.cells(shifted).filter(defence=defence).with_columns(severity=pl.col("data").cast(pl.String).str.slice(-1))
    several = cells["severity"].n_unique() > 1
    lines: dict[str, dict[str, str]] = {}
    for row in cells.iter_rows(named=True):
        before, model = number("accuracy", row["reference_accuracy"]), short_name(row["model"])
        place = f"{model}, severity {row['severity']}" if several else model
        lines.setdefault(row["data"].split("/")[1], {})[place] = f"{before}: {with_interval(row)}"
    places = list(dict.fromkeys(place for line in lines.values() for place in line))
    shown = ([kind, *(line.get(place, "") for place in places)] for kind, line in lines.items())
    return text_table(("corruption", *places), shown)


def findings(rows: polars.DataFrame) -> str:
    """Return a line for each rule: where its whole interval lies above 0, or below it, around how many models."""
    pl = require_polars()
    cells = gain_cells(rows).filter(pl.col("difference").is_not_null())
    lines = []
    for defence in cells["defence"].unique(maintain_order=True):
        mine = cells.filter(defence=defence)
        ends = {"better": pl.col("difference_low") > 0, "worse": pl.col("difference_high") < 0}
        said = (f"{word} {' and '.join(_where(mine, end)) or 'nowhere'}" for word, end in ends.items())
        lines.append(f"- `{defence}`: {'; '.join(said)}.")
    return "\n".join(lines)


def _where(cells: polars.DataFrame, end: polars.Expr) -> Iterator[str]:
    """Yield columns in which an end of the interval is on this side, with the number of models."""
    for name in columns(cells):
        tried = cells.filter(column=name)
        if count := len(tried.filter(end)):
            yield f"on {name} ({count} of {len(tried)})"


def gate_cells(rows: polars.DataFrame, promised: Promised = NOTHING) -> Iterator[dict[str, Any]]:
    """Yield, for each model and rule with a gate learnt from inputs, how many clean answers change, and the bound on them.

    Args:
        rows: records of experiments whose specs say how gates are learnt.
        promised: what gates print: how many answers they change on the ``inputs`` that they are learnt from, and the bound that
            follows. Records do not know it; where it is not given, it is that of a gate that changes as many as it may.
    """
    clean = rows.filter(_clean())
    for (experiment, model, defence), part in clean.group_by("experiment", "model", "defence", maintain_order=True):
        gate = getattr(as_spec(str(experiment)).defences[str(defence)], "gate", None)
        if isinstance(gate, LearntGate):
            learnt = range(gate.first, gate.first + gate.count)
            assert not part["index"].is_in([*learnt]).any() or gate.data != part["data"][0]
            changed = int((part["prediction"] != part["base_prediction"]).sum())
            most = int(gate.changes * gate.count + 1e-9)
            said = promised.get(
                (str(model), str(defence)), {"changed": f"at most {most}", "bound": largest_share(most, gate.count)}
            )
            place = {"model": str(model), "defence": str(defence), "learnt": gate.count, "learnt_changed": said["changed"]}
            yield place | {"images": len(part), "changed": changed, "share": changed / len(part), "bound": said["bound"]}


def gates(rows: polars.DataFrame, promised: Promised = NOTHING) -> str:
    """Return the table of changed answers on clean images that gates were not learnt from, beside the bounds on them.

    Args:
        rows: see :func:`gate_cells`.
        promised: likewise.
    """
    lines = [
        [
            short_name(row["model"]),
            row["defence"],
            f"{row['learnt_changed']} of {row['learnt']:,}",
            f"{row['changed']:,} of {row['images']:,}",
            f"{100 * row['share']:.1f}",
            f"{100 * row['bound']:.1f}",
            "yes" if row["share"] <= row["bound"] else "no",
        ]
        for row in gate_cells(rows, promised)
    ]
    head = ("model", "rule", "changed where it was learnt", "changed here", "%", "bound, %", "within")
    return f"{GATES}\n\n{text_table(head, lines)}"
