"""The command ``drq``. A command reads its options, calls one function of the library, and shows what came back.

What a command needs is imported inside it, so that ``drq --help`` is quick and a missing extra stops only those that use it.
A mistake of the user ends with status 2 and one line, an interruption with 130.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from drq import InputError, __version__

if TYPE_CHECKING:
    from rich.table import Table

    from drq.demo import Outcome, Tally
    from drq.digits import Track

MISTAKE, INTERRUPTED = 2, 130

# A line with \b alone keeps the line breaks of the paragraph below it.
HELP = """Decision Region Quantification: more reliable predictions from any differentiable classifier, at test time.

DRQ does not ask which class is most likely at an image. Around the image it looks for the most confident point of every
class, then for how far that confidence can be pushed down nearby, and answers with the class that stays highest. Nothing is
trained. It is made for classifiers that were trained adversarially; whether it helps yours is for you to measure.

\b
See it at work:  drq demo
In Python:       robust = drq.DRQ(model, norm="linf", radius=16/255)
                 robust(x)                 # in place of model(x)
                 robust.decide(x).margin   # how far to trust each answer
"""

app = typer.Typer(
    name="drq",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead, and nothing else, to standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line (``sys.argv`` unless ``arguments`` are given) and return its exit status."""
    try:
        status = app(args=arguments, prog_name="drq", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except InputError as error:
        say(str(error))
        return MISTAKE
    except (KeyboardInterrupt, typer.Abort):
        status = INTERRUPTED
    except Exception as error:
        if not hasattr(error, "format_message"):  # the mark of a usage error, whose class differs between versions of typer
            raise
        context = getattr(error, "ctx", None)
        given = shlex.join(["drq", *(sys.argv[1:] if arguments is None else arguments)])
        path = context.command_path if context else "drq"
        say(f"{error.format_message().rstrip('.')}, got {given!r}: see {path} --help")
        return MISTAKE
    if status == INTERRUPTED:
        say("interrupted")
    return status or 0


def say(message: str) -> None:
    """One line to standard error."""
    print(f"drq: {' '.join(message.split())}", file=sys.stderr)


@app.callback(invoke_without_command=True, help=HELP)
def start(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """What holds for all commands."""
    if version:
        typer.echo(f"drq {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def demo(
    images: Annotated[int, typer.Option(metavar="N", help="Test images to measure, at most 500.")] = 200,
    seed: Annotated[int, typer.Option(metavar="N", help="Of the model and of the shifts.")] = 0,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Compare a small classifier with and without DRQ.

    Trains an adversarially trained network on scikit-learn's digits (seconds, once: it is kept in DRQ_CACHE, by default
    ~/.cache/drq) and prints its accuracy alone and under DRQ, whichever is higher.
    """
    from rich.console import Console

    from drq.demo import demonstrate
    from drq.digits import Recipe

    with progress(quiet) as track:
        outcome = demonstrate(images, Recipe(seed), track, say)
    if as_json:
        typer.echo(json.dumps(outcome.as_json(), indent=2))
        return
    console = Console(highlight=False)
    console.print(table(outcome))
    for line in remarks(outcome):
        console.print(line, markup=False, soft_wrap=not console.is_terminal)


@app.command()
def threats(as_json: AsJson = False) -> None:
    """List every attack, corruption and spatial shift, with one line on each.

    In Python: drq.threats.PGD("linf", 8/255)(model, x, y).
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from drq.threats import list as entries

    if as_json:
        typer.echo(json.dumps([entry._asdict() for entry in entries()], indent=2))
        return
    shown = Table(box=SIMPLE_HEAD, pad_edge=False)
    shown.add_column("drq.threats.", no_wrap=True)
    shown.add_column("What it does")
    family = None
    for entry in entries():
        if entry.family != family:
            family = entry.family
            shown.add_section()
            shown.add_row(f"[bold]{family}[/bold]", "")
        shown.add_row(entry.name, entry.summary)
    Console(highlight=False).print(shown)


@contextmanager
def progress(quiet: bool) -> Iterator[Track]:
    """A bar with the time left on standard error; nothing where that is not a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description:9}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    hidden = quiet or not sys.stderr.isatty()
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=hidden) as bar:

        def track(items: Sequence[Any], description: str) -> Iterable[Any]:
            return bar.track(items, description=description)

        yield track


def table(outcome: Outcome) -> Table:
    """Accuracy by shift and method."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from drq.demo import METHODS

    radii = ", ".join(f"{METHODS[norm]} {radius:.2f}" for norm, radius in outcome.radii.items())
    title = f"Accuracy in % on {outcome.images} digits of 8 x 8 pixels, seed {outcome.seed}. Radius: {radii}"
    shown = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    shown.add_column("Shift", no_wrap=True)
    for method in METHODS.values():
        shown.add_column(method, justify="right")
    for shift, row in outcome.tallies.items():
        alone, *others = row.values()
        low, high = alone.interval
        shown.add_row(shift, f"{alone.accuracy:.1f} \\[{low:.1f}, {high:.1f}]", *map(cell, others))
    return shown


def cell(tally: Tally) -> str:
    """Accuracy, difference, and how many images made it; coloured and starred only where it is more than chance."""
    beyond_chance = tally.p_value < 0.05
    text = f"{tally.accuracy:.1f} {tally.difference:+.1f}{'*' if beyond_chance else ' '} (+{tally.fixed} -{tally.spoiled})"
    if not beyond_chance:
        return text
    return f"[green]{text}[/]" if tally.difference > 0 else f"[red]{text}[/]"


def remarks(outcome: Outcome) -> list[str]:
    """What to know before believing the table."""
    from drq.demo import METHODS

    half = ", ".join(f"{METHODS[name]} {share:.1f} %" for name, share in outcome.trusted_half.items())
    cost = ", ".join(f"{METHODS[name]} {passes:.0f}" for name, passes in outcome.passes.items())
    return [
        "[a, b]: 95 % interval. (+a -b): images put right and spoiled by DRQ. *: more than chance (sign test, p < 0.05).",
        f"Cost: mean passes of the model for an image: {cost}; nearly all of DRQ's run backward too.",
        f"Abstention: accuracy on the half of all answers that each method trusts most (margin; Standard: confidence): {half}.",
        "Warning: PGD attacks the model alone and is transferred to DRQ. Attacks that adapt to DRQ can undo its gain.",
    ]
