"""What evaluations show on a terminal: how far they are, and what came out."""

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
from drq.report import tables
from drq.report.expressions import UNDEFENDED
from drq.report.verdict import CHANCE, from_tables
from drq.system.progress import Bar, clock

if TYPE_CHECKING:
    from polars import DataFrame

Row = Mapping[str, Any]
Say = Callable[[str], None]


@contextmanager
def watching(quiet: bool, as_json: bool, say: Say) -> Iterator[Callable[[Event], None]]:
    """Whom an evaluation tells how far it is: JSON lines on standard output, or a bar on standard error, or rare lines there."""
    if as_json:
        yield _put
    elif quiet:
        yield lambda event: _lacking(event, say)
    elif not sys.stderr.isatty():
        bar = Bar("evaluating")
        yield lambda event: _lacking(event, say) if event.what == "missing" else bar(event.share, event.text)
    else:
        columns = (BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[pace]}"), TextColumn("{task.description}"))
        with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
            task = shown.add_task("", total=1.0, pace="")

            def tell(event: Event) -> None:
                if event.what == "missing":
                    _lacking(event, say)
                    return
                left = "" if event.left == math.inf else f", {clock(event.left)} left"
                pace = f"{event.done} of {event.total} samples, {event.rate:.3g} a second{left}"
                shown.update(task, completed=event.share, pace=pace, description=escape(safe(event.text)))

            yield tell


def _put(event: Event) -> None:
    finite = {key: None if value == math.inf else value for key, value in event._asdict().items()}
    print(json.dumps(finite), flush=True)


def _lacking(event: Event, say: Say) -> None:
    if event.what == "missing":
        say(f"left out, {event.text}")


def outcome(records: DataFrame) -> None:
    """Who was right how often, and what that amounts to."""
    pl = require_polars()
    cells, worst, means = tables.cells(records), tables.worst_case(records), tables.mean_over_data(records)
    found = pl.concat([cells, worst.filter(pl.col("threats") > 1)], how="vertical_relaxed")
    for (model, data), part in found.group_by("model", "data", maintain_order=True):
        show(accuracy(f"{model} on {data}: accuracy in % of {part['images'].max()} samples", part.rows(named=True)))
    judged = from_tables(records, cells, worst, means, reference=UNDEFENDED)
    adaptive = ["^: the threat attacked the defence itself, which is compared with what the model alone withstood."]
    show(
        "[a, b]: 95 % interval. (+a -b): samples put right and spoiled. *: more than chance (McNemar, p < 0.05).",
        *(adaptive if (found["victim"] == "defence").any() else []),
        *judged.headlines(),
        *(f"Cost: {line}" for line in judged.prices()),
    )


def accuracy(title: str, rows: list[dict[str, Any]]) -> Table:
    """A line for each threat, a column for each defence."""
    shown = Table(title=escape(safe(title)), title_justify="left", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    shown.add_column("Threat", no_wrap=True)
    defences = list(dict.fromkeys(row["defence"] for row in rows))
    for each in defences:
        shown.add_column(escape(safe(each)), justify="right")
    lines: dict[str, dict[str, Row]] = {}
    most = max(row["images"] for row in rows)
    for row in rows:
        fewer = f" ({row['images']})" if row["images"] != most else ""
        lines.setdefault(f"{_threat(row)}{fewer}", {})[row["defence"]] = row
    for threat, line in lines.items():
        shown.add_row(escape(safe(threat)), *(cell(line[each]) if each in line else "" for each in defences))
    return shown


def _threat(row: Row) -> str:
    if row["threat"] == tables.WORST_CASE:
        return f"worst of {row['suite']}"
    return f"{row['threat']} ^" if row["victim"] == "defence" else str(row["threat"])


def cell(row: Row) -> str:
    """Accuracy and interval, or the difference and how many samples made it; coloured and starred where it is beyond chance."""
    if row["difference"] is None:
        return f"{row['accuracy']:.1f} \\[{row['low']:.0f}, {row['high']:.0f}]"
    sure = row["p_value"] < CHANCE
    text = f"{row['accuracy']:.1f} {row['difference']:+.1f}{'*' if sure else ' '} (+{row['fixed']} -{row['spoiled']})"
    colour = "green" if row["difference"] > 0 else "red"
    return f"[{colour}]{text}[/]" if sure else text
