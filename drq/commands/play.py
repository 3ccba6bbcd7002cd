"""Define ``drq play``, which opens the playground in a browser."""

from __future__ import annotations

import sys
import webbrowser
from contextlib import nullcontext
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
        "drq play --defence defence.toml",
        "drq play --no-browser --host 0.0.0.0",
    )
)
def play(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Folder whose runs can be opened.")] = ".",
    host: Annotated[str, typer.Option(help="Where to listen; 0.0.0.0 lets other machines reach it.")] = "127.0.0.1",
    port: Annotated[int | None, typer.Option(metavar="N", help="Port to listen on; by default a free one.")] = None,
    defence: Annotated[
        str | None, typer.Option(metavar="FILE", help="A defence that the image tab offers first, with its model.")
    ] = None,
    allow_code: AllowCode = False,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")] = True,
) -> None:
    """Open a playground in the browser.

    It shows DRQ on points of a plane, on your images, and on the samples of runs. Nothing leaves this machine, and without
    --host no other machine can reach the page. There is no password: anyone who can reach the page can use it, and read the
    runs below FOLDER. Ctrl-C ends it.
    """
    require(port is None or 0 < port < 65536, "--port", "lie between 1 and 65535", port, "leave it out for one that is free")
    from drq.playground.offered import offer
    from drq.playground.page import served
    from drq.serving.defence_file import load_defence

    stored = None if defence is None else load_defence(defence, allow_code=allow_code)
    if sys.stderr.isatty():
        typer.echo("Starting the playground ...", err=True)  # its libraries take some seconds to load
    with (
        nullcontext() if stored is None or defence is None else offer(Path(defence).name, stored),
        served(Path(folder), host, port, allow_code) as address,
    ):
        typer.echo(f"The playground is at {address} until Ctrl-C.")
        if browser:
            webbrowser.open(address)
        Event().wait()
