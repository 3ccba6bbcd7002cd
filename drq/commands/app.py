"""Define the typer application that all commands belong to, and the options and functions that they share."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from drq.errors import InputError, require

MISTAKE, INTERRUPTED = 2, 130  # exit status

app = typer.Typer(
    name="drq",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def examples(*lines: str) -> str:
    """Return the examples that a command's help ends with."""
    return "\n".join(("\b", "Examples:", *(f"  {line}" for line in lines)))


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON to standard output, and nothing else.")]
AllowCode = Annotated[bool, typer.Option("--allow-code", help="Run code that a file names (python:); read it first.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress.")]


def refuse_removed(option: str, given: object, tool: str) -> None:
    """Refuse an option that 0.2 removed from the command line, and name the tool of the repository that replaces it."""
    remedy = f"0.2 removed it; in a clone of the project, {tool} does the same"
    require(not given, option, "be left out", given if isinstance(given, str) else option, remedy)


def parse_number(option: str, text: str | None) -> float | None:
    """Return the number that an option gives, also as a fraction such as 8/255; None where it is left out."""
    from drq.evaluation.reading import number

    if text is None:
        return None
    try:
        return float(number(text))
    except ValueError as error:
        raise InputError(f"{option} must be a number or a fraction, got {text!r}: as in {option} 8/255") from error


def print_to_stderr(message: str) -> None:
    """Print a message to standard error, in one line."""
    print(f"drq: {' '.join(message.split())}", file=sys.stderr)


@contextmanager
def own_warnings_in_a_line() -> Iterator[None]:
    """Show what this package warns of as mistakes are shown, and once: the line of Python that it stems from helps nobody."""
    with warnings.catch_warnings():
        usual, told = warnings.showwarning, set[str]()

        def show(message: Warning | str, *where: Any, **others: Any) -> None:
            text = str(message)
            if not text.startswith("drq: "):
                usual(message, *where, **others)
            elif text not in told:
                told.add(text)
                print_to_stderr(text.removeprefix("drq: "))

        warnings.showwarning = show
        yield


def print_result(result: Any, as_json: bool, show: Callable[[Any], None]) -> None:
    """Print a mapping, or a list of entries: as JSON, or with ``show`` for people."""
    if as_json:
        typer.echo(json.dumps([entry._asdict() for entry in result] if isinstance(result, list) else result, indent=2))
    else:
        show(result)
