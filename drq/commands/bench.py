"""Define ``drq bench``, which measures speed."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from drq.commands.app import AsJson, Quiet, app, examples, print_to_stderr, refuse_removed
from drq.commands.completion import BENCH_PARTS, DEVICES, complete_with, model_names
from drq.system.progress import Bar, Tell, clock, silent


@app.command(
    epilog=examples(
        "drq bench",
        "drq bench --model cifar10-linf --images 64 --naive-images 16",
        "drq bench --parts classes,batch,size --device cuda --out growth.json",
        "drq bench --read drq-bench.json",
    )
)
def bench(
    parts: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES", help="What to measure, comma-separated; see above.", autocompletion=complete_with(BENCH_PARTS)
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The CIFAR-10 model to measure with; see drq models.", autocompletion=model_names),
    ] = None,
    images: Annotated[int | None, typer.Option(metavar="N", help="How many images are timed.")] = None,
    naive_images: Annotated[int | None, typer.Option(metavar="N", help="How many images the naive loop is timed on.")] = None,
    samples: Annotated[
        int | None, typer.Option(metavar="N", help="How many images of each condition have their labels compared.")
    ] = None,
    repeats: Annotated[int | None, typer.Option(metavar="N", help="How often a timing is repeated; the median counts.")] = None,
    chunk: Annotated[int | None, typer.Option(metavar="N", help="How many rows are searched at once.")] = None,
    device: Annotated[
        str | None, typer.Option(help="Where to run: cpu, or cuda where there is a GPU.", autocompletion=complete_with(DEVICES))
    ] = None,
    attacks: Annotated[bool, typer.Option("--attacks", help="Also time PGD next to other libraries.")] = False,
    out: Annotated[str, typer.Option(metavar="FILE", help="Where the record is written.")] = "drq-bench.json",
    add: Annotated[bool, typer.Option("--add", help="Keep parts of the record that are not measured now.")] = False,
    stored: Annotated[str | None, typer.Option("--read", metavar="FILE", help="Show this record, and measure nothing.")] = None,
    check: Annotated[bool, typer.Option("--check", hidden=True)] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Measure DRQ's speed next to that of a plain loop.

    It has seven parts: speed, agreement, classes, batch, size, attacks and imagenet. Options that are left out depend on the
    machine: with them it takes two minutes on two cores, or ten on a GPU. See docs/speed.md.
    """
    from drq.bench.measure import measure, read
    from drq.bench.settings import BenchSettings

    refuse_removed("--check", check, "python -m tools.promises FILE")
    if stored is not None:
        record = read(Path(stored))
    else:
        counts = {"images": images, "naive_images": naive_images, "samples": samples, "repeats": repeats, "chunk": chunk}
        settings = BenchSettings.with_defaults(device, parts.split(",") if parts else None, model=model, **counts)
        if attacks:
            settings = settings.with_part("attacks")
        with progress_bar(quiet) as tell:
            record = measure(settings, Path(out), tell, print_to_stderr, add)
    if as_json:
        typer.echo(json.dumps(record, indent=1))
    else:
        show(record, None if stored else out)


@contextmanager
def progress_bar(quiet: bool) -> Iterator[Tell]:
    """Show progress inside the context: as a bar on a terminal, elsewhere as a line now and then."""
    if quiet or not sys.stderr.isatty():
        yield silent if quiet else Bar("measuring")
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    began, columns = time.monotonic(), (BarColumn(), TaskProgressColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=1.0)

        def tell(done: float, what: str) -> None:
            left = f"{clock((time.monotonic() - began) * (1 - done) / done)} left, " if done > 0 else ""
            progress.update(task, completed=done, description=f"{left}{what}")

        yield tell


def show(record: dict[str, Any], out: str | None) -> None:
    """Print the tables of a record."""
    from drq.bench import summary
    from drq.commands import terminal

    terminal.show(summary.machine(record), "")
    for table in summary.tables(record):
        printed = terminal.plain_table(*table.head)
        printed.collapse_padding = True
        for column in printed.columns[1:]:
            column.justify = "right"
        for row in table.rows:
            printed.add_row(*row)
        terminal.show(f"{table.title}:", printed)
    if out is not None:
        terminal.show(f"Record: {out}. Next: drq bench --read {out}")
