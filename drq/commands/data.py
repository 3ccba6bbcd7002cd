"""Define ``drq data``, which lists data sets."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from drq.commands.app import AsJson, app, examples, print_result
from drq.commands.completion import SPLITS, complete_with, data_names


@app.command(
    epilog=examples("drq data", "drq data cifar10 --download", "drq data cifar10-c/fog/3", "drq data digits --split train --json")
)
def data(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Load this data set and describe it.", show_default=False, autocompletion=data_names),
    ] = None,
    split: Annotated[
        str, typer.Option(help="The split to load, such as test or train.", autocompletion=complete_with(SPLITS))
    ] = "test",
    download: Annotated[bool, typer.Option("--download", help="Download it if it is missing.")] = False,
    as_json: AsJson = False,
) -> None:
    """List data sets, or load one and describe it.

    Data sets are kept in the folder that DRQ_DATA names. In Python: drq.load_data("cifar10").
    """
    from drq.commands import terminal
    from drq.data import list as entries
    from drq.data import load

    if name is not None:
        facts = load(name, split, download=download).as_json()
        print_result(facts, as_json, terminal.show_facts)
    else:
        print_result(entries(), as_json, partial(terminal.show_entries, "drq.load_data"))
