"""The command that attacks a defence: redteam."""

from __future__ import annotations

import json
import shlex
import sys
from contextlib import redirect_stdout
from typing import Annotated

import typer

from drq.commands.app import AsJson, Quiet, app, examples, say
from drq.completion import DATA, DEVICES, MODELS, NORMS, offered


@app.command(
    epilog=examples(
        "drq redteam --model digits --images 20",
        "drq redteam --model cifar10-linf --device cuda --images 1000",
        "drq redteam --model cifar10-tiny --set norm=l2 --set radius=1.0",
        "drq redteam --model cifar10-tiny --defence hedge",
        "drq redteam --model cifar10-small --defence python:mine:defended",
    )
)
def redteam(
    model: Annotated[str, typer.Option(metavar="NAME", help="See drq models.", autocompletion=offered(MODELS))] = "digits",
    defence: Annotated[str, typer.Option(metavar="NAME", help="As in a spec, or python:module:function.")] = "drq",
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting of the defence.")] = None,
    data: Annotated[
        str | None, typer.Option(metavar="NAME", help="By default that of the training.", autocompletion=offered(DATA))
    ] = None,
    norm: Annotated[str | None, typer.Option(help="Of the attacks.", autocompletion=offered(NORMS))] = None,
    radius: Annotated[str | None, typer.Option(metavar="R", help="As 8/255; by default that of the training.")] = None,
    images: Annotated[int, typer.Option(metavar="N", help="That are attacked.")] = 100,
    strength: Annotated[str, typer.Option(help="quick or full: 32,000 or 150,000 passes an image.")] = "quick",
    seed: Annotated[int, typer.Option(metavar="N", help="Of the attacks.")] = 0,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda.", autocompletion=offered(DEVICES))] = None,
    out: Annotated[str | None, typer.Option(metavar="DIR", help="Directory of the run; runs/NAME by default.")] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Attack a defence itself, and say whether what it gains survives.

    A gain survives where the 95 % interval of the difference, the defended worst case minus that of the model alone, lies
    above 0. The same command again goes on where it stopped.
    """
    from drq import screens, terminal
    from drq.evaluate import evaluate
    from drq.redteam import parsed, trial
    from drq.reporting import runs
    from drq.reporting.verdict import verdict

    runs.require_all()
    with redirect_stdout(sys.stderr), screens.watching(quiet or as_json, False, say) as tell:
        space = {"data": data, "norm": norm, "radius": radius}
        spec = trial(model, defence, parsed(settings or ()), **space, images=images, strength=strength, seed=seed)
        run = evaluate(spec, out, device=device, tell=tell)
    records = runs.rows(run)
    found = verdict(records).adaptive
    if as_json:
        survives = {each.defence: each.survives for each in found}
        typer.echo(json.dumps(runs.summary(run, records) | {"survives": survives}, indent=2))
        return
    screens.outcome(records)
    terminal.show(*map(str, found), f"Run: {run.path}. Next: drq report {shlex.quote(str(run.path))}")
