"""The command that attacks a defence: redteam."""

from __future__ import annotations

import json
import re
import shlex
import sys
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Annotated, Any

import typer

from drq.commands.app import AsJson, Quiet, app, examples, say
from drq.commands.completion import DEVICES, data_names, model_names, offered
from drq.errors import require
from drq.registry import DATA, NORMS

if TYPE_CHECKING:
    from drq.evaluation.spec import Spec


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
    model: Annotated[str, typer.Option(metavar="NAME", help="See drq models.", autocompletion=model_names)] = "digits",
    defence: Annotated[str, typer.Option(metavar="NAME", help="As in a spec, or python:module:function.")] = "drq",
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting of the defence.")] = None,
    data: Annotated[
        str | None, typer.Option(metavar="NAME", help="By default that of the training.", autocompletion=data_names)
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
    from drq.commands import screens, terminal
    from drq.evaluation.loop import evaluate
    from drq.report import run_report
    from drq.report.verdict import verdict

    run_report.require_all()
    with redirect_stdout(sys.stderr), screens.watching(quiet or as_json, False, say) as tell:
        space = {"data": data, "norm": norm, "radius": radius}
        spec = trial(model, defence, parsed(settings or ()), **space, images=images, strength=strength, seed=seed)
        run = evaluate(spec, out, device=device, tell=tell)
    records = run_report.rows(run)
    found = verdict(records).adaptive
    if as_json:
        survives = {each.defence: each.survives for each in found}
        typer.echo(json.dumps(run_report.summary(run, records) | {"survives": survives}, indent=2))
        return
    screens.outcome(records)
    terminal.show(*map(str, found), f"Run: {run.path}. Next: drq report {shlex.quote(str(run.path))}")


def trial(
    model: str,
    defence: str = "drq",
    settings: Mapping[str, Any] | None = None,
    *,
    data: str | None = None,
    norm: str | None = None,
    radius: float | str | None = None,
    images: int = 100,
    strength: str = "quick",
    seed: int = 0,
) -> Spec:
    """The spec: clean images, a transferred attack, and the red team on the defence and on the model alone.

    Args:
        model: a name, see :func:`drq.load_model`.
        defence: its name in a spec, or ``python:package.module:function``.
        settings: of the defence.
        data: a name, see :func:`drq.load_data`; that which the model was trained on when None, where its name says so.
        norm: of the attacks; that of the model's training when None.
        radius: of the attacks; that of the training when None.
        images: attacked, the first of the data.
        strength: "quick" or "full".
        seed: of the threats.
    """
    from drq.evaluation.spec import Spec

    space = _space(model, norm, radius)
    attacks: dict[str, Any] = {
        "clean": {},
        "APGD": {**space, "steps": 100},
        "red team": {"threat": "RedTeam", **space, "strength": strength, "victim": "defence"},
    }
    title = f"{defence} around {model} under the red team"
    name = re.sub(r"[^\w.+-]+", "-", f"redteam-{model}-{defence}")
    spec: dict[str, Any] = {
        "name": name,
        "title": title,
        "models": [model],
        "data": [data or trained_on(model)],
        "threats": attacks,
    }
    spec |= {"defences": {"standard": {}, defence: {"defence": defence, **(settings or {})}}, "seed": seed, "limit": images}
    return Spec.of(spec | {"rounding": False, "quick": True, "shard": 100})


def trained_on(model: str) -> str:
    """The data that a name of a model begins with.

    >>> trained_on("cifar10-small"), trained_on("robustbench:cifar100/Linf/Rice2020Overfitting")
    ('cifar10', 'cifar100')
    """
    words = re.split(r"[:/-]", model)
    found = next((word for word in words if word in DATA), None)
    remedy = "as in --data cifar10; drq data lists them"
    require(found is not None, "data", "be given where the model's name does not say it", f"model {model!r}", remedy)
    assert found is not None
    return found


def parsed(given: Sequence[str]) -> dict[str, Any]:
    """Settings of a defence as they stand on a command line: behind each name what a spec would have there, or a word.

    >>> parsed(["alpha=0.3", "norm=l2", "steps=5"])
    {'alpha': 0.3, 'norm': 'l2', 'steps': 5}
    """
    found: dict[str, Any] = {}
    for each in given:
        name, equals, value = each.partition("=")
        require(bool(equals and name and value), "set", "have the form NAME=VALUE", repr(each), "as in --set alpha=0.3")
        try:
            found[name] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            found[name] = value
    return found


def _space(model: str, norm: str | None, radius: float | str | None) -> dict[str, Any]:
    """Norm and radius of the attacks: as given, else those of the training."""
    from drq.models.loading import load as load_model

    card = getattr(load_model(model), "card", None) if norm is None or radius is None else None
    norm, radius = norm or getattr(card, "norm", None), radius or getattr(card, "radius", None)
    remedy = "it was not trained adversarially: say what it shall withstand, as in --norm linf --radius 8/255"
    for name, value in {"norm": norm, "radius": radius}.items():
        require(value is not None, name, f"be given for {model}", "nothing", remedy)
    return {"norm": norm, **parsed([f"radius={radius}"])}
