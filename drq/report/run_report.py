"""The report and the tables of a run: what they are made of is read here, so that making them stays a function of records."""

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


def shown(run: Run, records: DataFrame, form: str = "html", compare: Run | None = None) -> str:
    """A run as text.

    Args:
        run: to report on.
        records: its rows.
        form: "html", the report; "markdown", "latex" or "csv" for its tables.
        compare: another run to put beside it, in the report.
    """
    require(form in FORMS, "format", f"be one of {', '.join(FORMS)}", repr(form), "html is the report, the others are tables")
    alone = compare is None or form == "html"
    require(alone, "compare", "be left out of tables", str(compare and compare.path), "the report, html, takes two runs")
    if form != "html":
        return _tables(records, form)
    known = run.name in notes()
    about = _about(run)
    if left := unfinished(run, records):
        about["missing"] = [{"what": "This run is not finished", "why": left}, *about.get("missing", ())]
    return report(
        records,
        about=about,
        examples=examples(run, records),
        published=published(run.name) if known else None,
        compare=None if compare is None else rows(compare),
    )


def rows(run: Run) -> DataFrame:
    """The records of a run that has some."""
    records = run.records
    remedy = "let drq evaluate finish at least one shard"
    require(len(records) > 0, "run", "have records", f"none in {str(run.path)!r}", remedy)
    return records


def unfinished(run: Run, records: DataFrame) -> str | None:
    """What a run still lacks of what can be run, in words; None where it is whole."""
    planned = sum((task.get("samples") or 0) * len(task["defences"]) for task in run.tasks.values())
    if len(records) >= planned:
        return None
    return f"{len(records):,} of {planned:,} rows are there, so numbers may change; the same drq evaluate goes on"


def _about(run: Run) -> dict[str, Any]:
    command = f"drq evaluate {shlex.quote(run.name if run.name in experiments() else str(run.path))}"
    if not run.about.get("source"):
        command = "# made of Python objects: call drq.evaluate with the same spec"
    kept = {"spec": run.about["source"]} if run.about.get("source") else {}
    return {**run.about, **kept, "name": run.name, "command": command, "history": run.history}


def _tables(records: DataFrame, form: str) -> str:
    """Every table of the records: accuracy, worst cases of suites, means over corruptions."""
    found, worst, means = tables.cells(records), tables.worst_case(records), tables.mean_over_data(records)
    several = worst.filter(worst["threats"] > 1)
    present = [each for each in (found, several, means) if len(each)]
    if form == "csv":
        pl = require_polars()
        return tables.csv(pl.concat(present, how="vertical_relaxed"))
    put = tables.markdown if form == "markdown" else tables.latex
    return "\n\n".join(put(tables.wide(each)) for each in present) + "\n"


def summary(run: Run, records: DataFrame) -> dict[str, Any]:
    """What came out, made of what JSON knows."""
    found, judged = tables.cells(records), verdict(records)
    numbers = found.drop("expression", "reference_expression").to_dicts()
    return {"run": str(run.path), "verdict": judged.headlines(), "cost": judged.prices(), "accuracy": numbers}


def require_all() -> None:
    """Refuse now what would be refused at the end: a report needs these packages."""
    require_polars()
    imported("matplotlib", "the figures of a report", "pip install 'decision-region-quantification[report]'")


def write(path: Path, text: str) -> None:
    """Write a file in one piece."""
    try:
        with atomic_write(path) as file:
            file.write(text.encode())
    except OSError as error:
        remedy = "choose another with --out"
        raise InputError(f"out must be a file that can be written, got {str(path)!r} ({error.strerror}): {remedy}") from error
