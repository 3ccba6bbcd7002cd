"""Write the tables on views, from records of ``drq reproduce views-first redteam-views``, and for balls of the paper's tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from drq.evaluation.records import require_polars
from drq.reproduction import ball_gate, view_gains
from drq.reproduction.experiments import BEYOND
from drq.reproduction.kept_records import Record, read_record
from drq.reproduction.overview import ALONE, concatenated, verdict_table
from drq.reproduction.provenance import provenance
from tools import ROOT
from tools.benchmarks import other_views

if TYPE_CHECKING:
    import polars

FOLDER = ROOT / "results" / "paper"
ATTACKED = "redteam-views"
BOUNDS = ROOT / "results" / "view-bounds.json"
OTHERS = ROOT / "results" / "other-views.json"
FIRST, PHOTOGRAPHS, _, BALL = BEYOND["views-first"]
EQUAL = "rotation, "  # with which the names of rules begin that have the same passes
SHOWN, RESTORED = "photo, 13 views", "photo, 3 views"  # rules that are shown for every corruption


def gains() -> str:
    """Return what DRQ over views gains around four models."""
    return _with_record(FIRST, lambda rows: view_gains.table(_but_peers(rows)))


def peers() -> str:
    """Return rules of other authors beside DRQ, over the same views and with as many passes."""
    equal = require_polars().col("defence").str.starts_with(EQUAL)
    return _with_record(FIRST, lambda rows: view_gains.table(_kept(rows, equal)))


def findings() -> str:
    """Return where intervals tell."""
    return _with_record(FIRST, view_gains.findings)


def corruptions() -> str:
    """Return what one rule gains under every corruption."""
    return _with_record(FIRST, lambda rows: view_gains.by_corruption(rows, SHOWN))


def photographs() -> str:
    """Return what DRQ over views gains on photographs."""

    def written(rows: polars.DataFrame) -> str:
        parts = view_gains.table(rows), view_gains.findings(rows), view_gains.by_corruption(rows, RESTORED)
        return "\n\n".join(parts)

    return _with_record(PHOTOGRAPHS, written)


def gates() -> str:
    """Return how many answers to clean images change behind gates, beside what these promise."""
    rows = concatenated(read_record(FOLDER, name) for name in BEYOND["views-first"])
    if rows is None:
        return provenance(FIRST, None)
    promised = json.loads(BOUNDS.read_text())["gates"] if BOUNDS.exists() else []
    return view_gains.gates(rows, {(each["model"], each["defence"]): each for each in promised})


def balls() -> str:
    """Return what a gate makes of DRQ in a ball."""
    records = {name: _record(name).rows for name in ball_gate.EXPERIMENTS}
    return f"{ball_gate.table(records)}\n\n{provenance(BALL, _record(BALL))}"


def attacked() -> str:
    """Return what is left of rules over views where they are attacked themselves."""
    return _with_record(ATTACKED, verdict_table)


def others() -> str:
    """Return what views of sound, tables and text gain, and what was tried besides."""
    record = json.loads(OTHERS.read_text())
    return f"{other_views.table(record)}\n\nAlso tried, on the halves that chose:\n\n{other_views.tried(record)}"


def _record(name: str) -> Record:
    record = read_record(FOLDER, name)
    assert record is not None
    return record


def _with_record(name: str, write: Callable[[polars.DataFrame], str]) -> str:
    """Return what is written of the record of an experiment, and how it was made."""
    record = read_record(FOLDER, name)
    return provenance(name, None) if record is None else f"{write(record.rows)}\n\n{provenance(name, record)}"


def _but_peers(rows: polars.DataFrame) -> polars.DataFrame:
    """Return the rows of DRQ, which knows how many of its passes have no gradient, and of the model alone."""
    return _kept(rows, require_polars().col("forward_passes").is_not_null())


def _kept(rows: polars.DataFrame, which: polars.Expr) -> polars.DataFrame:
    pl = require_polars()
    return rows.filter(which | (pl.col("defence") == ALONE))


TABLES = {
    "view_gains": gains,
    "view_peers": peers,
    "view_findings": findings,
    "view_corruptions": corruptions,
    "view_photographs": photographs,
    "view_gates": gates,
    "view_others": others,
    "ball_gate": balls,
    "view_redteam": attacked,
}
