"""The command that lists data sets: data."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from drq.commands.app import AsJson, app, examples, put
from drq.commands.completion import SPLITS, data_names, offered


@app.command(
    epilog=examples("drq data", "drq data cifar10 --download", "drq data cifar10-c/fog/3", "drq data digits --split train --json")
)
def data(
    name: Annotated[
        str | None,
        typer.Argument(help="Load this one and say what it is.", show_default=False, autocompletion=data_names),
    ] = None,
    split: Annotated[str, typer.Option(help="Such as test or train.", autocompletion=offered(SPLITS))] = "test",
    download: Annotated[bool, typer.Option("--download", help="Fetch it where it is missing.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the data sets, or load one (or fetch it) and say what it is.

    They lie in the folder that DRQ_DATA names. In Python: drq.load_data("cifar10").
    """
    from drq.commands import terminal
    from drq.data import list as entries
    from drq.data import load

    if name is not None:
        facts = load(name, split, download=download).as_json()
        put(facts, as_json, terminal.facts)
    else:
        put(entries(), as_json, partial(terminal.presence, "drq.load_data"))
