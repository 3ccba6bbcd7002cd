"""The command that opens a page to play with: play."""

from __future__ import annotations

import sys
import webbrowser
from pathlib import Path
from threading import Event
from typing import Annotated

import typer

from drq.commands.app import AllowCode, app, examples
from drq.errors import require


@app.command(
    epilog=examples(
        "drq play",
        "drq play runs --port 7860",
        "drq play --no-browser --host 0.0.0.0",
    )
)
def play(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Runs below it can be opened.")] = ".",
    host: Annotated[str, typer.Option(help="Where to listen; others than this machine reach 0.0.0.0.")] = "127.0.0.1",
    port: Annotated[int | None, typer.Option(metavar="N", help="By default one that is free.")] = None,
    allow_code: AllowCode = False,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")] = True,
) -> None:
    """Open a page in the browser: DRQ on points of a plane, on your images, and the samples of a run.

    Nothing leaves this machine, and without --host nobody else reaches the page. There is no password: whoever reaches it
    can use it, and read the runs below FOLDER. Ctrl-C ends it.
    """
    require(port is None or 0 < port < 65536, "--port", "lie between 1 and 65535", port, "leave it out for one that is free")
    from drq.playground.page import served

    if sys.stderr.isatty():
        typer.echo("Starting the playground ...", err=True)  # its libraries take some seconds to load
    with served(Path(folder), host, port, allow_code) as address:
        typer.echo(f"The playground is at {address} until Ctrl-C.")
        if browser:
            webbrowser.open(address)
        Event().wait()
