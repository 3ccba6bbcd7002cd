"""Make the report or the tables of a run, and write them to a file."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drq.errors import InputError, imported, require
from drq.evaluation.paper import experiments, notes, published
from drq.evaluation.records import require_polars
from drq.evaluation.run import Run
from drq.evaluation.showcase import examples
from drq.report import tables
from drq.report.html import report
from drq.report.verdict import verdict
from drq.system.files import atomic_write

if TYPE_CHECKING:
    from polars import DataFrame

FORMS = ("html", "markdown", "latex", "csv")


def format_run(run: Run, records: DataFrame, form: str = "html", compare: Run | None = None) -> str:
    """Return the report or the tables of a run as text.

    Args:
        run: the run to report on.
        records: its rows.
        form: "html" for the report; "markdown", "latex" or "csv" for the tables.
        compare: another run to compare with, in the report.
    """
    require(form in FORMS, "format", f"be one of {', '.join(FORMS)}", repr(form), "html is the report, the others are tables")
    alone = compare is None or form == "html"
    require(alone, "compare", "be left out of tables", str(compare and compare.path), "the report, html, takes two runs")
    if form != "html":
        return _tables(records, form)
    in_paper = run.name in notes()
    about = _about(run)
    if remaining := unfinished(run, records):
        about["missing"] = [{"what": "This run is not finished", "why": remaining}, *about.get("missing", ())]
    return report(
        records,
        about=about,
        examples=examples(run, records),
        published=published(run.name) if in_paper else None,
        compare=None if compare is None else records_of(compare),
    )


def records_of(run: Run) -> DataFrame:
    """Return the records of a run, which must have some."""
    records = run.records
    remedy = "let drq evaluate finish at least one shard"
    require(len(records) > 0, "run", "have records", f"none in {str(run.path)!r}", remedy)
    return records


def unfinished(run: Run, records: DataFrame) -> str | None:
    """Say in words how many rows a run still lacks; None where it is complete."""
    planned = sum((task.get("samples") or 0) * len(task["defences"]) for task in run.tasks.values())
    if len(records) >= planned:
        return None
    return f"{len(records):,} of {planned:,} rows are there, so numbers may change; the same drq evaluate goes on"


def _about(run: Run) -> dict[str, Any]:
    command = f"drq evaluate {shlex.quote(run.name if run.name in experiments() else str(run.path))}"
    if not run.about.get("source"):
        command = "# made of Python objects: call drq.evaluate with the same spec"
    source = {"spec": run.about["source"]} if run.about.get("source") else {}
    return {**run.about, **source, "name": run.name, "command": command, "history": run.history}


def _tables(records: DataFrame, form: str) -> str:
    """Return all tables of the records: accuracy, worst cases of suites, means over corruptions."""
    cells, worst, means = tables.cells(records), tables.worst_case(records), tables.mean_over_data(records)
    several = worst.filter(worst["threats"] > 1)
    present = [each for each in (cells, several, means) if len(each)]
    if form == "csv":
        pl = require_polars()
        return tables.csv(pl.concat(present, how="vertical_relaxed"))
    write_table = tables.markdown if form == "markdown" else tables.latex
    return "\n\n".join(write_table(tables.wide(each)) for each in present) + "\n"


def summary(run: Run, records: DataFrame) -> dict[str, Any]:
    """Return the verdict, the cost and all accuracies as values that JSON can hold."""
    cells, judged = tables.cells(records), verdict(records)
    numbers = cells.drop("expression", "reference_expression").to_dicts()
    return {"run": str(run.path), "verdict": judged.headlines(), "cost": judged.prices(), "accuracy": numbers}


def require_all() -> None:
    """Check at the start that the packages that a report needs are installed."""
    require_polars()
    imported("matplotlib", "the figures of a report", "pip install 'decision-region-quantification[report]'")


def write(path: Path, text: str) -> None:
    """Write a text file atomically."""
    try:
        with atomic_write(path) as file:
            file.write(text.encode())
    except OSError as error:
        remedy = "choose another with --out"
        raise InputError(f"out must be a file that can be written, got {str(path)!r} ({error.strerror}): {remedy}") from error
