"""Define ``drq redteam``, which attacks a defence."""

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

from drq.commands.app import AllowCode, AsJson, Quiet, app, examples, parse_number, print_to_stderr
from drq.commands.completion import DEVICES, complete_with, data_names, defence_names, model_names
from drq.errors import require
from drq.registry import DATA, NORMS, PRESETS

if TYPE_CHECKING:
    from drq.evaluation.spec import Spec


@app.command(
    epilog=examples(
        "drq redteam --model digits --images 20",
        "drq redteam --model cifar10-linf --device cuda --images 1000",
        "drq redteam --model cifar10-tiny --set norm=l2 --set radius=1.0",
        "drq redteam --model cifar10-tiny --defence hedge",
        'drq redteam --model digits --views "Rotation(90, 13)"',
        "drq redteam --model cifar10-small --defence python:mine:defended",
        "drq redteam --defence defence.toml --images 20",
    )
)
def redteam(
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The model to defend; see drq models. By default digits.", autocompletion=model_names),
    ] = None,
    defence: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="The defence, named as in a spec, or python:module:function; or a file, which has its model.",
            autocompletion=defence_names,
        ),
    ] = "drq",
    preset: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Settings of DRQ to attack, by name.", autocompletion=complete_with(PRESETS)),
    ] = None,
    views: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Views that the defence looks at, such as 'Mirror()', as text."),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting of the defence; may be repeated.")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Data to attack on; by default that of the model's training.", autocompletion=data_names
        ),
    ] = None,
    norm: Annotated[
        str | None,
        typer.Option(help="Norm of the attacks; by default that of the training.", autocompletion=complete_with(NORMS)),
    ] = None,
    radius: Annotated[
        str | None, typer.Option(metavar="R", help="Radius of the attacks, such as 8/255; by default that of the training.")
    ] = None,
    images: Annotated[int, typer.Option(metavar="N", help="How many images are attacked.")] = 100,
    strength: Annotated[
        str, typer.Option(help="How hard to attack: quick takes at most 32,000 passes per image, full 150,000.")
    ] = "quick",
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the attacks.")] = 0,
    device: Annotated[
        str | None, typer.Option(help="Where to run: auto, cpu or cuda.", autocompletion=complete_with(DEVICES))
    ] = None,
    out: Annotated[str | None, typer.Option(metavar="DIR", help="Directory of the run; by default runs/NAME.")] = None,
    allow_code: AllowCode = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Attack a defence itself, and say whether its gain survives.

    A gain survives where the whole 95 % interval of the difference, the defended worst case minus that of the model alone,
    lies above 0. Run the same command again to continue where it stopped.
    """
    from drq.commands import evaluation_output, terminal
    from drq.evaluation.loop import evaluate
    from drq.report import run_report
    from drq.report.verdict import verdict
    from drq.serving.defence_file import load_defence
    from drq.serving.defence_specs import called, is_file
    from drq.serving.settings_table import spec_table

    run_report.require_all()
    with redirect_stdout(sys.stderr), evaluation_output.progress(quiet or as_json, False, print_to_stderr) as tell:
        attack_options: dict[str, Any] = {"data": data, "norm": norm, "radius": parse_number("--radius", radius)}
        named = {name: value for name, value in {"preset": preset, "views": views}.items() if value is not None}
        options: dict[str, Any] = parse_settings(settings or ()) | named
        attack_options |= {"images": images, "strength": strength, "seed": seed}
        if is_file(defence):
            for name, value in {"--model": model, "--set, --preset and --views": options or None}.items():
                require(value is None, name, "be left out where a file says them", value, "edit the file")
            stored = load_defence(defence, allow_code=allow_code)
            spec = red_team_spec(stored.about.model, called(defence), spec_table(stored.table), **attack_options)
        else:
            spec = red_team_spec(model or "digits", defence, options, **attack_options)
        run = evaluate(spec, out, device=device, tell=tell)
    records = run_report.records_of(run)
    comparisons = verdict(records).adaptive
    if as_json:
        survives = {each.defence: each.survives for each in comparisons}
        typer.echo(json.dumps(run_report.summary(run, records) | {"survives": survives}, indent=2))
        return
    evaluation_output.show_results(records)
    terminal.show(*map(str, comparisons), f"Run: {run.path}. Next: drq report {shlex.quote(str(run.path))}")


def red_team_spec(
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
    """Return a spec with clean images, a transferred attack, and the red team on the defence and on the model alone.

    Args:
        model: a name, see :func:`drq.load_model`.
        defence: its name in a spec, or ``python:package.module:function``; any name where the settings say which one it is.
        settings: the defence's settings.
        data: a name, see :func:`drq.load_data`; None is the data of the model's training, if the model's name tells it.
        norm: the norm of the attacks; None is that of the model's training.
        radius: the radius of the attacks; None is that of the training.
        images: how many images are attacked, the first of the data.
        strength: "quick" or "full".
        seed: the seed of the threats.
    """
    from drq.evaluation.spec import Spec

    ball = _attack_ball(model, norm, radius)
    attacks: dict[str, Any] = {
        "clean": {},
        "APGD": {**ball, "steps": 100},
        "red team": {"threat": "RedTeam", **ball, "strength": strength, "victim": "defence"},
    }
    title = f"{defence} around {model} under the red team"
    short = {} if settings is None or "defence" in settings else settings  # those of a file are many, and it has a name
    told = [str(each)[:60] for each in map(short.get, ("preset", "views")) if each is not None]
    name = re.sub(r"[^\w.+-]+", "-", "-".join(["redteam", model, defence, *told])).strip("-")
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
    """Return the data set that a model's name contains.

    >>> trained_on("cifar10-small"), trained_on("robustbench:cifar100/Linf/Rice2020Overfitting")
    ('cifar10', 'cifar100')
    """
    words = re.split(r"[:/-]", model)
    name = next((word for word in words if word in DATA), None)
    remedy = "as in --data cifar10; drq data lists them"
    require(name is not None, "data", "be given where the model's name does not say it", f"model {model!r}", remedy)
    assert name is not None
    return name


def parse_settings(arguments: Sequence[str]) -> dict[str, Any]:
    """Parse NAME=VALUE arguments; a value is read as in a TOML spec, or else taken as a string.

    >>> parse_settings(["alpha=0.3", "norm=l2", "steps=5"])
    {'alpha': 0.3, 'norm': 'l2', 'steps': 5}
    """
    settings: dict[str, Any] = {}
    for each in arguments:
        name, equals, value = each.partition("=")
        require(bool(equals and name and value), "set", "have the form NAME=VALUE", repr(each), "as in --set alpha=0.3")
        try:
            settings[name] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            settings[name] = value
    return settings


def _attack_ball(model: str, norm: str | None, radius: float | str | None) -> dict[str, Any]:
    """Return norm and radius of the attacks: as given, else those of the model's training."""
    from drq.models.loading import load as load_model

    card = getattr(load_model(model), "card", None) if norm is None or radius is None else None
    norm, radius = norm or getattr(card, "norm", None), getattr(card, "radius", None) if radius is None else radius
    remedy = "it was not trained adversarially: say what it shall withstand, as in --norm linf --radius 8/255"
    for name, value in {"norm": norm, "radius": radius}.items():
        require(value is not None, name, f"be given for {model}", "nothing", remedy)
    return {"norm": norm, **parse_settings([f"radius={radius}"])}
