"""The command that measures speed: bench."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from drq.commands.app import AsJson, Quiet, app, examples, in_a_clone, say
from drq.commands.completion import BENCH_PARTS, DEVICES, model_names, offered
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
        str | None, typer.Option(metavar="NAMES", help="With commas; see above.", autocompletion=offered(BENCH_PARTS))
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of CIFAR-10; see drq models.", autocompletion=model_names)
    ] = None,
    images: Annotated[int | None, typer.Option(metavar="N", help="To time.")] = None,
    naive_images: Annotated[int | None, typer.Option(metavar="N", help="To time the naive loop on.")] = None,
    samples: Annotated[int | None, typer.Option(metavar="N", help="To compare labels on.")] = None,
    repeats: Annotated[int | None, typer.Option(metavar="N", help="Timings; their median counts.")] = None,
    chunk: Annotated[int | None, typer.Option(metavar="N", help="Rows searched at once.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda.", autocompletion=offered(DEVICES))] = None,
    attacks: Annotated[bool, typer.Option("--attacks", help="Also time PGD beside other libraries.")] = False,
    out: Annotated[str, typer.Option(metavar="FILE", help="Of the record.")] = "drq-bench.json",
    add: Annotated[bool, typer.Option("--add", help="Keep other parts that FILE has.")] = False,
    stored: Annotated[str | None, typer.Option("--read", metavar="FILE", help="Show a record, measure nothing.")] = None,
    check: Annotated[bool, typer.Option("--check", hidden=True)] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Measure how quick DRQ is, beside the loop that one first writes.

    Parts: speed, agreement, classes, batch, size, attacks, imagenet. What is left out suits the machine: two minutes on two
    cores, ten on a GPU. See docs/speed.md.
    """
    from drq.bench.measure import measure, read
    from drq.bench.settings import BenchSettings

    in_a_clone("--check", check, "python -m tools.promises FILE")
    if stored is not None:
        record = read(Path(stored))
    else:
        given = {"images": images, "naive_images": naive_images, "samples": samples, "repeats": repeats, "chunk": chunk}
        settings = BenchSettings.with_defaults(device, parts.split(",") if parts else None, model=model, **given)
        if attacks:
            settings = settings.with_part("attacks")
        with watching(quiet) as tell:
            record = measure(settings, Path(out), tell, say, add)
    if as_json:
        typer.echo(json.dumps(record, indent=1))
    else:
        show(record, None if stored else out)


@contextmanager
def watching(quiet: bool) -> Iterator[Tell]:
    """Whom a run tells how far it is: a bar on a terminal, else rare lines."""
    if quiet or not sys.stderr.isatty():
        yield silent if quiet else Bar("measuring")
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    began, columns = time.monotonic(), (BarColumn(), TaskProgressColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("", total=1.0)

        def tell(done: float, what: str) -> None:
            left = f"{clock((time.monotonic() - began) * (1 - done) / done)} left, " if done > 0 else ""
            shown.update(task, completed=done, description=f"{left}{what}")

        yield tell


def show(record: dict[str, Any], out: str | None) -> None:
    """The tables of a record."""
    from drq.bench import summary
    from drq.commands import terminal

    terminal.show(summary.machine(record), "")
    for made in summary.tables(record):
        shown = terminal.plain_table(*made.head)
        shown.collapse_padding = True
        for column in shown.columns[1:]:
            column.justify = "right"
        for row in made.rows:
            shown.add_row(*row)
        terminal.show(f"{made.title}:", shown)
    if out is not None:
        terminal.show(f"Record: {out}. Next: drq bench --read {out}")
