"""The command ``drq``. A command reads its options, calls one function of the library, and shows what came back.

What a command needs is imported inside it, so that ``drq --help`` is quick and a missing extra stops only those that use it.
A mistake of the user ends with status 2 and one line, an interruption with 130.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from functools import partial
from typing import Annotated, Any

import typer

from drq.completion import DEVICES, MODELS, NORMS, SPLITS, data_names, offered
from drq.errors import InputError, require
from drq.version import __version__

MISTAKE, INTERRUPTED = 2, 130

# A line with \b alone keeps the line breaks of the paragraph below it.
HELP = """Decision Region Quantification: more reliable predictions from any differentiable classifier, at test time.

DRQ does not ask which class is most likely at an image. Around the image it looks for the most confident point of every
class, then for how far that confidence can be pushed down nearby, and answers with the class that stays highest. Nothing is
trained. It is made for classifiers that were trained adversarially; whether it helps yours is for you to measure.

\b
See it at work:  drq demo
On a picture:    drq predict photo.jpg
Tab completion:  drq --install-completion
In Python:       robust = drq.DRQ(model, norm="linf", radius=16/255)
                 robust(x)                 # in place of model(x)
                 robust.decide(x).margin   # how far to trust each answer
"""

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


@app.command(epilog=examples("drq demo", "drq demo --images 50 --seed 1", "drq demo --json > demo.json"))
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
    from drq import terminal
    from drq.demo import demonstrate
    from drq.models.digits import Recipe

    with terminal.progress(quiet) as track:
        outcome = demonstrate(images, Recipe(seed), track, say)
    if as_json:
        typer.echo(json.dumps(outcome.as_json(), indent=2))
        return
    terminal.demonstration(outcome)


@app.command(
    epilog=examples(
        "drq predict photo.jpg",
        "drq predict photo.jpg --model torchvision:resnet50 --classes 5 --download",
        "drq predict holidays/ --abstain-below 0.2 --csv answers.csv",
        "drq predict one.png two.png --csv -",
        "drq predict photo.jpg --norm l2 --radius 0.5 --json",
    )
)
def predict(
    paths: Annotated[
        list[str], typer.Argument(metavar="PICTURE", help="Files, or folders of them at any depth.", show_default=False)
    ],
    model: Annotated[str, typer.Option(metavar="NAME", help="See drq models.", autocompletion=offered(MODELS))] = "cifar10-small",
    norm: Annotated[
        str | None,
        typer.Option(help="linf, l2 or l1; by default that of the model's training, else l2.", autocompletion=offered(NORMS)),
    ] = None,
    radius: Annotated[float | None, typer.Option(help="By default twice that of the training, else calibrated.")] = None,
    classes: Annotated[int | None, typer.Option(metavar="K", help="Search only the K likeliest: not safe under attack.")] = None,
    abstain_below: Annotated[float, typer.Option(metavar="MARGIN", help="Give no answer where the margin is smaller.")] = 0.0,
    device: Annotated[str, typer.Option(help="Such as cpu or cuda.", autocompletion=offered(DEVICES))] = "cpu",
    download: Annotated[bool, typer.Option("--download", help="Fetch weights that are not on this machine.")] = False,
    csv: Annotated[str | None, typer.Option(metavar="FILE", help="Write one row a picture to it; - is standard output.")] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """Say what pictures show, how far to trust it, and what that cost.

    cifar10-small, which comes with the package, knows ten classes (airplane, automobile, bird, cat, deer, dog, frog, horse,
    ship, truck) and sees 32 x 32 pixels. For others: --model timm:NAME, torchvision:NAME or hf:NAME.

    A row of the CSV file has the picture, the answer (empty where DRQ abstains), the standard answer of the model alone,
    whether the two differ, robustness and margin, the region, the cost, and the error where the picture could not be read.
    """
    from drq import terminal
    from drq.predict import Predictor, Refusal, listed

    remedy = "margins are differences of robustness"
    require(0 <= abstain_below <= 1, "--abstain-below", "lie between 0 and 1", abstain_below, remedy)
    rule, remedy = "name a file beside --json", "standard output has room for one of them"
    require(not (as_json and csv == "-"), "--csv", rule, "-", remedy)
    found, counts, pictures = [], Counter[str](), listed(paths)
    with terminal.sheet(csv) as put_row:
        with redirect_stdout(sys.stderr):  # libraries that load models may print
            predictor = Predictor(model, norm, radius, classes, device, **({"download": True} if download else {}))
        show = terminal.answers(pictures) if csv is None and not as_json else None
        with terminal.progress(quiet or (csv == "-" and sys.stdout.isatty())) as track:
            for answer in predictor.stream(track(pictures, "pictures")):
                facts = answer.as_json(abstain_below)
                put_row(facts)
                counts.update(name for name in ("changed", "abstained", "error") if facts.get(name))
                if as_json:
                    found.append(facts)
                if isinstance(answer, Refusal):
                    say(answer.error)
                elif show:
                    show(answer, abstain_below)
    if as_json:
        typer.echo(json.dumps(found, indent=2, allow_nan=False))
    elif csv != "-":
        terminal.closing(len(pictures), counts, csv)
    return MISTAKE if counts["error"] else 0


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


def put(found: Any, as_json: bool, show: Callable[[Any], None]) -> None:
    """Facts, or a list of entries, for a program or for a person."""
    if as_json:
        typer.echo(json.dumps([entry._asdict() for entry in found] if isinstance(found, list) else found, indent=2))
    else:
        show(found)
