"""The application that commands belong to, and what they share."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from drq.errors import require

MISTAKE, INTERRUPTED = 2, 130  # exit status

app = typer.Typer(
    name="drq",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def examples(*lines: str) -> str:
    """What stands below the options of a command."""
    return "\n".join(("\b", "Examples:", *(f"  {line}" for line in lines)))


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead, and nothing else, to standard output.")]
AllowCode = Annotated[bool, typer.Option("--allow-code", help="Run code that a file names (python:); read it first.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]


def in_a_clone(option: str, given: object, tool: str) -> None:
    """Refuse an option that left the command line with 0.2, in a line that names the tool which does the same."""
    remedy = f"in a clone of the project, {tool} does it"
    require(not given, option, "be left out since 0.2", given if isinstance(given, str) else "it", remedy)


def say(message: str) -> None:
    """One line to standard error."""
    print(f"drq: {' '.join(message.split())}", file=sys.stderr)


def put(found: Any, as_json: bool, show: Callable[[Any], None]) -> None:
    """Facts, or a list of entries, for a program or for a person."""
    if as_json:
        typer.echo(json.dumps([entry._asdict() for entry in found] if isinstance(found, list) else found, indent=2))
    else:
        show(found)
