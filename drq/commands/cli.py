"""Run the command ``drq``.

Commands import what they need when they run, so that ``drq --help`` is fast and a missing extra stops only the commands that
use it. A user's mistake ends with one line and status 2, an interruption with status 130.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from drq.commands import bench, data, demo, evaluate, models, play, predict, redteam, report, reproduce, threats, threshold
from drq.commands.app import INTERRUPTED, MISTAKE, app, own_warnings_in_a_line, print_to_stderr
from drq.errors import InputError
from drq.version import __version__

# In the order of drq --help.
COMMANDS = (demo, predict, play, threshold, evaluate, report, redteam, reproduce, bench, models, data, threats)
_ORDER = [each.__name__ for each in COMMANDS]
app.registered_commands.sort(key=lambda each: _ORDER.index(each.callback.__module__ if each.callback else ""))

# A line with \b alone keeps the line breaks of the paragraph below it.
HELP = """Decision Region Quantification: more reliable predictions from any differentiable classifier, at test time.

DRQ does not ask which class is most likely at an image. Around the image it looks for the most confident point of every
class, then for how far that confidence can be pushed down nearby, and answers with the class that stays highest. Nothing is
trained. It is made for classifiers that were trained adversarially; whether it helps yours is for you to measure.

\b
See it at work:  drq demo
Measure it:      drq evaluate SPEC, then drq report RUN
On a picture:    drq predict photo.jpg
In a browser:    drq play
Tab completion:  drq --install-completion
In Python:       robust = drq.DRQ(model, norm="linf", radius=16/255)
                 robust(x)                 # in place of model(x)
                 robust.decide(x).margin   # how far to trust each answer
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line (``sys.argv`` unless ``arguments`` are given) and return its exit status."""
    try:
        with own_warnings_in_a_line():
            status = app(args=arguments, prog_name="drq", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as head, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except InputError as error:
        print_to_stderr(str(error))
        return MISTAKE
    except (KeyboardInterrupt, typer.Abort):
        status = INTERRUPTED
    except Exception as error:
        if not hasattr(error, "format_message"):  # the mark of a usage error, whose class differs between versions of typer
            raise
        context = getattr(error, "ctx", None)
        command = shlex.join(["drq", *(sys.argv[1:] if arguments is None else arguments)])
        path = context.command_path if context else "drq"
        print_to_stderr(f"{error.format_message().rstrip('.')}, got {command!r}: see {path} --help")
        return MISTAKE
    if status == INTERRUPTED:
        print_to_stderr("interrupted")
    return status or 0


@app.callback(invoke_without_command=True, help=HELP)
def start(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Handle the options that come before a command."""
    if version:
        typer.echo(f"drq {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())
