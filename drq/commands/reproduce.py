"""Define ``drq reproduce``, which repeats the paper's experiments."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from shutil import copyfile
from typing import TYPE_CHECKING, Annotated

import typer

from drq.commands.app import AsJson, Quiet, app, examples, print_result, print_to_stderr, refuse_removed
from drq.commands.completion import DEVICES, complete_with
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
        list[str] | None,
        typer.Argument(metavar="NAME", help="Names of tables, figures and claims, or all.", show_default=False),
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List every table, figure and claim of the paper.")] = False,
    out: Annotated[str, typer.Option(metavar="DIR", help="Folder for the runs.")] = "runs",
    limit: Annotated[int | None, typer.Option(metavar="N", help="Use at most this many samples, for a quick first look.")] = None,
    device: Annotated[
        str | None, typer.Option(help="Where to run: auto, cpu or cuda.", autocompletion=complete_with(DEVICES))
    ] = None,
    keep: Annotated[str | None, typer.Option(metavar="DIR", help="Keep condensed records of the results in this folder.")] = None,
    ledger: Annotated[str | None, typer.Option(hidden=True)] = None,
    records: Annotated[str | None, typer.Option(hidden=True)] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Repeat the paper's tables, figures and claims.

    Prints the results next to the paper's numbers. Run the same command again to continue where it stopped. Models and data
    that are not on this machine are named and left out.
    """
    from drq.commands import evaluation_output, terminal
    from drq.reproduction import kept_records, printout
    from drq.reproduction.experiments import entries, experiments_behind, run_experiment

    for option, given in (("--ledger", ledger), ("--records", records)):
        refuse_removed(option, given, "make pages")
    if listed:
        print_result({each.name: each.title for each in entries().values()}, as_json, terminal.show_facts)
        return
    require(keep is None or limit is None, "keep", "come without --limit", f"limit {limit}", "the ledger has whole experiments")
    require(keep is None or not Path(keep).is_file(), "keep", "be a folder", repr(keep), "as results/paper")
    kept = {}
    for name in (names := [*experiments_behind(names or ())]):
        try:
            with evaluation_output.progress(quiet or as_json, False, print_to_stderr) as tell, redirect_stdout(sys.stderr):
                run = run_experiment(name, Path(out), limit, device, tell)
        except MissingError as error:
            if len(names) == 1:
                raise
            print_to_stderr(f"{name} is left out: {error}")
            continue
        record = kept_records.condense(run) if keep is None else kept_records.write_record(run, Path(keep))
        kept[name] = record
        figure = draw_if_figure(record, run.path, keep)
        if not as_json:
            typer.echo("\n\n".join(each for each in (printout.format_record(record), figure) if each))
    if as_json:
        cells = {name: printout.compare_with_paper(name, each).to_dicts() for name, each in kept.items()}
        claims = {name: finding and finding._asdict() for name, finding in printout.findings(kept).items()}
        typer.echo(json.dumps({"cells": cells, "claims": claims}, indent=2))
    elif text := printout.format_claims(kept):
        typer.echo(text)


def draw_if_figure(record: Record, folder: Path, keep: str | None) -> str:
    """Draw a record that is a figure, and return its path, else "". Figure 1 has no records, so it is copied to ``keep``."""
    from drq.reproduction.paper_figures import FIGURES, draw

    if record.name not in FIGURES:
        return ""
    picture = draw(record.name, record.rows, folder)
    if keep is not None and record.name == "figure1":
        copyfile(picture, Path(keep) / picture.name)
    return str(picture)
