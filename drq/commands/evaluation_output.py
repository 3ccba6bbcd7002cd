"""Show the progress and the results of evaluations on a terminal."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table

from drq.commands.terminal import safe, show
from drq.evaluation.loop import Event
from drq.evaluation.records import require_polars
from drq.report import selective, tables
from drq.report.expressions import UNDEFENDED
from drq.report.verdict import CHANCE, from_tables
from drq.system.progress import Bar, clock

if TYPE_CHECKING:
    from polars import DataFrame

Row = Mapping[str, Any]
Warn = Callable[[str], None]  # prints a line
LINES = {"missing": "left out, ", "plan": "plan: "}  # events that have a line of their own, and how it begins


@contextmanager
def progress(quiet: bool, as_json: bool, warn: Warn) -> Iterator[Callable[[Event], None]]:
    """Yield a function that shows events: as JSON lines on standard output, or as a bar or a few lines on standard error."""
    if as_json:
        yield _print_json
    elif quiet:
        yield lambda event: _print_line(event, warn) if event.what == "missing" else None
    elif not sys.stderr.isatty():
        bar = Bar("evaluating")
        yield lambda event: _print_line(event, warn) if event.what in LINES else bar(event.share, event.text)
    else:
        columns = (BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[pace]}"), TextColumn("{task.description}"))
        with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
            task = bars.add_task("", total=1.0, pace="")

            def tell(event: Event) -> None:
                if event.what in LINES:
                    _print_line(event, warn)
                    return
                left = "" if event.left == math.inf else f", {clock(event.left)} left"
                pace = f"{event.done} of {event.total} samples, {event.rate:.3g} a second{left}"
                bars.update(task, completed=event.share, pace=pace, description=escape(safe(event.text)))

            yield tell


def _print_json(event: Event) -> None:
    finite = {key: None if value == math.inf else value for key, value in event._asdict().items()}
    print(json.dumps(finite), flush=True)


def _print_line(event: Event, warn: Warn) -> None:
    warn(f"{LINES[event.what]}{event.text}")


def show_results(records: DataFrame) -> None:
    """Print the accuracy of every defence, and what follows from it."""
    pl = require_polars()
    cells, worst, means = tables.cells(records), tables.worst_case(records), tables.mean_over_data(records)
    rows = pl.concat([cells, worst.filter(pl.col("threats") > 1)], how="vertical_relaxed")
    for (model, data), part in rows.group_by("model", "data", maintain_order=True):
        show(accuracy_table(f"{model} on {data}: accuracy in % of {part['images'].max()} samples", part.rows(named=True)))
    verdict = from_tables(records, cells, worst, means, reference=UNDEFENDED)
    adaptive = ["^: the threat attacked the defence itself, which is compared with what the model alone withstood."]
    show(
        "[a, b]: 95 % interval. (+a -b): samples put right and spoiled. *: more than chance (McNemar, p < 0.05).",
        *(adaptive if (rows["victim"] == "defence").any() else []),
        *verdict.headlines(),
        *(f"Cost: {line}" for line in verdict.prices()),
    )


def show_abstention(records: DataFrame, defence: str, margin: float) -> None:
    """Print how many samples a defence answers that abstains below a margin, and how many of these answers are wrong."""
    show(f"{defence} abstains below margin {margin:.4g}:")
    for row in selective.abstention(records, defence, margin).iter_rows(named=True):
        wrong = "" if row["wrong"] is None else f", {100 * row['wrong']:.1f} % of these answers wrong"
        show(
            f"  {row['model']} on {row['data']}, {_threat(row)}: {100 * row['answered']:.1f} % of {row['images']} answered{wrong}"
        )


def accuracy_table(title: str, rows: list[dict[str, Any]]) -> Table:
    """Return a table of accuracies, with a row for each threat and a column for each defence."""
    table = Table(title=escape(safe(title)), title_justify="left", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("Threat", no_wrap=True)
    defences = list(dict.fromkeys(row["defence"] for row in rows))
    for each in defences:
        table.add_column(escape(safe(each)), justify="right")
    lines: dict[str, dict[str, Row]] = {}
    most = max(row["images"] for row in rows)
    for row in rows:
        fewer = f" ({row['images']})" if row["images"] != most else ""
        lines.setdefault(f"{_threat(row)}{fewer}", {})[row["defence"]] = row
    for threat, line in lines.items():
        table.add_row(escape(safe(threat)), *(_cell(line[each]) if each in line else "" for each in defences))
    return table


def _threat(row: Row) -> str:
    if row["threat"] == tables.WORST_CASE:
        return f"worst of {row['suite']}"
    return f"{row['threat']} ^" if row["victim"] == "defence" else str(row["threat"])


def _cell(row: Row) -> str:
    """Return accuracy and interval, or the difference with the samples behind it, coloured and starred if significant."""
    if row["difference"] is None:
        return f"{row['accuracy']:.1f} \\[{row['low']:.0f}, {row['high']:.0f}]"
    significant = row["p_value"] < CHANCE
    text = f"{row['accuracy']:.1f} {row['difference']:+.1f}{'*' if significant else ' '} (+{row['fixed']} -{row['spoiled']})"
    colour = "green" if row["difference"] > 0 else "red"
    return f"[{colour}]{text}[/]" if significant else text
