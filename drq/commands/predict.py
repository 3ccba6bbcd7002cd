"""The command that answers about pictures: predict."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from drq.commands.app import MISTAKE, AllowCode, AsJson, Quiet, app, examples, print_to_stderr
from drq.commands.completion import DEVICES, complete_with, either, model_names
from drq.errors import InputError, require
from drq.registry import NORMS, PRESETS


@app.command(
    epilog=examples(
        "drq predict photo.jpg",
        "drq predict photo.jpg --preset nature --explain card.png",
        "drq predict photo.jpg --model torchvision:resnet50 --classes 5 --download",
        "drq predict holidays/ --abstain-below 0.2 --csv answers.csv",
        "drq predict photo.jpg --defence defence.toml",
    )
)
def predict(
    paths: Annotated[
        list[str], typer.Argument(metavar="PICTURE", help="Files, or folders of them at any depth.", show_default=False)
    ],
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The classifier; drq models lists them.", autocompletion=model_names),
    ] = None,
    norm: Annotated[
        str | None,
        typer.Option(
            help=f"Search in {either(NORMS)}; by default the preset's norm, else the model's, else l2.",
            autocompletion=complete_with(NORMS),
        ),
    ] = None,
    radius: Annotated[
        float | None,
        typer.Option(help="How far to search; else as preset or model say."),
    ] = None,
    classes: Annotated[int | None, typer.Option(metavar="K", help="Search the K likeliest classes; unsafe under attack.")] = None,
    preset: Annotated[
        str | None, typer.Option(help=f"Settings by name: {either(PRESETS)}.", autocompletion=complete_with(PRESETS))
    ] = None,
    views: Annotated[str | None, typer.Option(metavar="TEXT", help="Look at these views, as drq.views writes them.")] = None,
    gate: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Learn a gate from pictures of yours, without labels.")
    ] = None,
    defence: Annotated[str | None, typer.Option(metavar="FILE", help="Answer as the file of a defence says.")] = None,
    allow_code: AllowCode = False,
    abstain_below: Annotated[
        float | None, typer.Option(metavar="MARGIN", help="Give no answer where the margin is smaller.")
    ] = None,
    device: Annotated[
        str, typer.Option(help="Where to run, such as cpu or cuda.", autocompletion=complete_with(DEVICES))
    ] = "cpu",
    download: Annotated[bool, typer.Option("--download", help="Fetch weights that are not on this machine.")] = False,
    csv: Annotated[str | None, typer.Option(metavar="FILE", help="Write a table of all answers; - is standard output.")] = None,
    explain: Annotated[
        str | None, typer.Option(metavar="FILE", help="Draw why as PNG, PDF or SVG; several are numbered.")
    ] = None,
    pixels: Annotated[
        int | None, typer.Option("--slice", metavar="N", help="Add to that drawing a map of N x N answers nearby.")
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> int:
    """Say what pictures show, how far to trust it, and what that cost.

    With the extra imagenet, imagenet-lite0 answers with preset fast, from the ten likeliest of its 1000 classes. Without it,
    cifar10-small answers, which knows ten classes of 32 x 32 pixels. Others: timm:NAME, hf:NAME ...

    A row of the CSV file has the picture, DRQ's answer (empty where it abstains), the model's, what they rest on, or an error.
    """
    from drq.commands import terminal
    from drq.serving.default_model import choose_model
    from drq.serving.defence_predictor import from_file
    from drq.serving.listing import listed
    from drq.serving.predict import Predictor, card_files
    from drq.serving.prediction import Refusal

    remedy = "margins are differences of robustness"
    require(abstain_below is None or 0 <= abstain_below <= 1, "--abstain-below", "lie between 0 and 1", abstain_below, remedy)
    rule, remedy = "name a file beside --json", "standard output has room for one of them"
    require(not (as_json and csv == "-"), "--csv", rule, "-", remedy)
    drawable = pixels is None or (explain is not None and pixels >= 2)
    require(drawable, "--slice", "be at least 2, beside --explain", pixels, "20 show where regions are, 60 their shape")
    found, counts, seconds, pictures = [], Counter[str](), 0.0, listed(paths)
    cards = card_files(explain, len(pictures))
    asked = {"views": views, "radius": radius}
    chosen = choose_model(model, preset, classes, {name: value for name, value in asked.items() if value is not None})
    with terminal.csv_writer(csv) as put_row:
        with redirect_stdout(sys.stderr):  # libraries that load models may print
            options: dict[str, Any] = {"download": True} if download else {}
            options |= {"views": views, "gate": gate, "progress": not quiet}
            if defence is None:
                predictor = Predictor(chosen.model, norm, radius, chosen.classes, device, bool(cards), chosen.preset, **options)
            else:
                said = {"model": model, "norm": norm, "radius": radius, "classes": classes, "preset": preset, "gate": gate}
                given = {"device": device, "keep_points": bool(cards), "allow_code": allow_code, "download": download}
                predictor = from_file(defence, said | {"views": views}, **given)
        below = predictor.below if abstain_below is None else abstain_below
        remedy = "views have no slice, their card shows all of them"
        require(
            pixels is None or predictor.robust.ball_searched, "--slice", "be left out where no ball is searched", pixels, remedy
        )
        for note in [] if quiet else filter(None, (chosen.note if defence is None else "", predictor.promise)):
            print_to_stderr(note)
        show = terminal.prediction_printer(pictures) if csv is None and not as_json else None
        with terminal.picture_progress(len(pictures), quiet or (csv == "-" and sys.stdout.isatty())) as (tell, draw):
            for place, answer in enumerate(predictor.stream(pictures, tell=tell)):
                facts = answer.as_json(below)
                put_row(facts)
                counts.update(name for name in ("changed", "abstained", "error") if facts.get(name))
                counts["passes"] += facts.get("passes", 0)
                seconds += facts.get("seconds", 0.0)
                if as_json:
                    found.append(facts)
                if isinstance(answer, Refusal):
                    print_to_stderr(answer.error)
                elif show:
                    show(answer, below)
                if cards and not isinstance(answer, Refusal):
                    card = partial(predictor.explain, answer, cards[place], pixels, draw)
                    _explain(card, cards[place], facts, aloud=show is not None)
    if as_json:
        typer.echo(json.dumps(found, indent=2, allow_nan=False))
    elif csv != "-":
        terminal.show_totals(len(pictures), counts, seconds, csv, not predictor.robust.ball_searched)
    return MISTAKE if counts["error"] else 0


def _explain(card: Callable[[], None], path: Path, facts: dict[str, Any], aloud: bool) -> None:
    """Draw the card of an answer, and name its file where answers are shown."""
    from drq.commands import terminal

    try:
        card()
    except OSError as error:
        remedy = "name a file that can be written"
        raise InputError(f"--explain must {remedy}, got {str(path)!r} ({error.strerror}): choose another folder") from error
    facts["card"] = str(path)
    if aloud:
        terminal.show(f"Why: {path}", "")
