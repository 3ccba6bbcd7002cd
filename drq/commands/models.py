"""Define ``drq models``, which lists models."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from functools import partial
from typing import Annotated

import typer

from drq.commands.app import AsJson, app, examples, print_result
from drq.commands.completion import model_names


@app.command(epilog=examples("drq models", "drq models cifar10-small", "drq models --json"))
def models(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="Load this model and print its card.", show_default=False, autocompletion=model_names
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List models, or load one and print its card.

    In Python: drq.load_model("cifar10-small").
    """
    from drq.commands import terminal
    from drq.models import Card, load
    from drq.models import list as entries

    if name is not None:
        with redirect_stdout(sys.stderr):
            card = getattr(load(name), "card", None)
        facts = card.as_json() if isinstance(card, Card) else {"name": name}
        print_result(facts, as_json, terminal.show_facts)
    else:
        print_result(entries(), as_json, partial(terminal.show_entries, "drq.load_model"))
