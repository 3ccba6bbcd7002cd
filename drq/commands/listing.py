"""Commands that say what there is: models, data, threats."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from functools import partial
from typing import Annotated

import typer

from drq.commands.app import AsJson, app, examples, put
from drq.completion import MODELS, SPLITS, data_names, offered


@app.command(epilog=examples("drq models", "drq models cifar10-small", "drq models --json"))
def models(
    name: Annotated[
        str | None,
        typer.Argument(help="Load this one and print its card.", show_default=False, autocompletion=offered(MODELS)),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the models that have a name, or load one and print what is known of it.

    In Python: drq.load_model("cifar10-small").
    """
    from drq import terminal
    from drq.models import Card, load
    from drq.models import list as entries

    if name is not None:
        with redirect_stdout(sys.stderr):
            card = getattr(load(name), "card", None)
        facts = card.as_json() if isinstance(card, Card) else {"name": name}
        put(facts, as_json, terminal.facts)
    else:
        put(entries(), as_json, partial(terminal.presence, "drq.load_model"))


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
    from drq import terminal
    from drq.data import list as entries
    from drq.data import load

    if name is not None:
        facts = load(name, split, download=download).as_json()
        put(facts, as_json, terminal.facts)
    else:
        put(entries(), as_json, partial(terminal.presence, "drq.load_data"))


@app.command(epilog=examples("drq threats", "drq threats --json"))
def threats(as_json: AsJson = False) -> None:
    """List every attack, corruption and spatial shift, with one line on each.

    In Python: drq.threats.PGD("linf", 8/255)(model, x, y).
    """
    from drq import terminal
    from drq.threats import list as entries

    put(entries(), as_json, terminal.families)
