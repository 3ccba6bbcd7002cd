"""Write the tables on views, from records of ``drq reproduce views redteam-views``, and for balls of the paper's tables."""

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
OTHERS = ROOT / "results" / "other-views.json"
VIEWS, PHOTOGRAPHS, COSTLY = BEYOND["views"]
BALL = BEYOND["views-first"][-1]
PRESETS = ("shift, 4 views", "nature, 12 views", "upright, 16 views")
SHOWN = PRESETS[0]  # the rule that is shown for every corruption


def gains() -> str:
    """Return what presets over views gain around seven models."""
    which = require_polars().col("defence").is_in(PRESETS)
    return _with_record(VIEWS, lambda rows: view_gains.table(_kept(rows, which)))


def rules() -> str:
    """Return all rules side by side, as means over models."""
    return _with_record(VIEWS, view_gains.over_models)


def costly() -> str:
    """Return rules that take gradients beside the preset for everything."""
    return _with_record(COSTLY, view_gains.table)


def corruptions() -> str:
    """Return what one rule gains under every corruption."""
    return _with_record(VIEWS, lambda rows: view_gains.by_corruption(rows, SHOWN))


def photographs() -> str:
    """Return what rules over views gain on photographs."""
    return _with_record(PHOTOGRAPHS, lambda rows: f"{view_gains.table(rows)}\n\n{view_gains.by_corruption(rows, SHOWN)}")


def gates() -> str:
    """Return how many answers to clean images change behind gates, beside what these promise at most."""
    rows = concatenated(read_record(FOLDER, name) for name in (VIEWS, PHOTOGRAPHS))
    return provenance(VIEWS, None) if rows is None else view_gains.gates(rows)


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


def _kept(rows: polars.DataFrame, which: polars.Expr) -> polars.DataFrame:
    pl = require_polars()
    return rows.filter(which | (pl.col("defence") == ALONE))


TABLES = {
    "view_gains": gains,
    "view_rules": rules,
    "view_costly": costly,
    "view_corruptions": corruptions,
    "view_photographs": photographs,
    "view_gates": gates,
    "view_others": others,
    "ball_gate": balls,
    "view_redteam": attacked,
}
