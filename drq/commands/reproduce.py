"""The command that repeats the paper."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from shutil import copyfile
from typing import TYPE_CHECKING, Annotated

import typer

from drq.commands.app import AsJson, Quiet, app, examples, in_a_clone, put, say
from drq.commands.completion import DEVICES, offered
from drq.errors import MissingError, require

if TYPE_CHECKING:
    from drq.reproduction.kept_records import Record


@app.command(
    epilog=examples(
        "drq reproduce --list",
        "drq reproduce figure1",
        "drq reproduce table3 --limit 20",
        "drq reproduce table4 table7 --device cuda --keep results/paper",
        "drq reproduce all",
    )
)
def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME...", help="Tables, figures and claims, or all.", show_default=False)
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List every table, figure and claim of the paper.")] = False,
    out: Annotated[str, typer.Option(metavar="DIR", help="Where the runs lie.")] = "runs",
    limit: Annotated[int | None, typer.Option(metavar="N", help="Of samples: a first look.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda.", autocompletion=offered(DEVICES))] = None,
    keep: Annotated[str | None, typer.Option(metavar="DIR", help="Keep short records here, for the ledger.")] = None,
    ledger: Annotated[str | None, typer.Option(hidden=True)] = None,
    records: Annotated[str | None, typer.Option(hidden=True)] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Repeat a table, figure or claim of the paper, and show it beside what the paper has.

    The same command again goes on where it stopped. Models and data that are not here are named and left out.
    """
    from drq.commands import screens, terminal
    from drq.reproduction import kept_records, printout
    from drq.reproduction.cells import beside
    from drq.reproduction.experiments import entries, repeat, wanted

    for option, given in (("--ledger", ledger), ("--records", records)):
        in_a_clone(option, given, "make pages")
    if listed:
        put({each.name: each.title for each in entries().values()}, as_json, terminal.facts)
        return
    require(keep is None or limit is None, "keep", "come without --limit", f"limit {limit}", "the ledger has whole experiments")
    require(keep is None or not Path(keep).is_file(), "keep", "be a folder", repr(keep), "as results/paper")
    found = {}
    for name in (names := [*wanted(names or ())]):
        try:
            with screens.watching(quiet or as_json, False, say) as tell, redirect_stdout(sys.stderr):
                run = repeat(name, Path(out), limit, device, tell)
        except MissingError as error:
            if len(names) == 1:
                raise
            say(f"{name} is left out: {error}")
            continue
        found[name] = kept_records.shortened(run) if keep is None else kept_records.keep(run, Path(keep))
        picture = drawn(found[name], run.path, keep)
        if not as_json:
            typer.echo("\n\n".join(each for each in (printout.shown(found[name]), picture) if each))
    if as_json:
        cells = {name: beside(name, each.rows).to_dicts() for name, each in found.items()}
        claims = {name: each and each._asdict() for name, each in printout.findings(found).items()}
        typer.echo(json.dumps({"cells": cells, "claims": claims}, indent=2))
    elif text := printout.claimed(found):
        typer.echo(text)


def drawn(record: Record, folder: Path, keep: str | None) -> str:
    """The path of a figure's picture; nothing for others. That of Figure 1 is kept, since it shows what no record has."""
    from drq.reproduction.paper_figures import FIGURES, draw

    if record.name not in FIGURES:
        return ""
    picture = draw(record.name, record.rows, folder)
    if keep is not None and record.name == "figure1":
        copyfile(picture, Path(keep) / picture.name)
    return str(picture)
