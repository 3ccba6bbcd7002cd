"""The command that answers about pictures: predict."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from drq.commands.app import MISTAKE, AllowCode, AsJson, Quiet, app, examples, parse_number, print_to_stderr
from drq.commands.completion import DEVICES, ENGINES, complete_with, either, model_names
from drq.errors import InputError, require
from drq.registry import NORMS, PRESETS
from drq.system.progress import Bar

if TYPE_CHECKING:
    from drq.serving.answering import Answering, Asked
    from drq.serving.jobs import Tell


@app.command(
    epilog=examples(
        "drq predict photo.jpg",
        "drq predict photo.jpg --preset nature --explain card.png",
        "drq predict photo.jpg --model torchvision:resnet50 --classes 5 --download",
        "drq predict holidays/ more.zip @list.txt --out answers.csv",
        "drq predict photo.jpg --defence defence.toml",
    )
)
def predict(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PICTURE",
            help="Files, folders, zips, tars, @FILE: a list.",
            show_default=False,
        ),
    ],
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The classifier; drq models lists them.", autocompletion=model_names),
    ] = None,
    norm: Annotated[
        str | None,
        typer.Option(
            help=f"Search in {either(NORMS)}; else as of the model.",
            autocompletion=complete_with(NORMS),
        ),
    ] = None,
    radius: Annotated[
        str | None,
        typer.Option(help="How far to search, such as 8/255; else as preset or training say."),
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
    out: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Fill a .csv or .jsonl; once stopped it goes on."),
    ] = None,
    restart: Annotated[bool, typer.Option("--restart", help="Begin the file of --out anew.")] = False,
    engine: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Run --out local, in this process, or on ray.", autocompletion=complete_with(ENGINES)),
    ] = None,
    address: Annotated[str | None, typer.Option(help="Of a Ray cluster that runs; auto finds a local one.")] = None,
    workers: Annotated[int | None, typer.Option(metavar="N", help="Ray workers at once; else all that fit.")] = None,
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

    Without the extra imagenet, cifar10-small answers, which knows ten classes.
    """
    from drq.serving.answering import Asked

    distance = parse_number("--radius", radius)
    asked = Asked(model, preset, norm, distance, classes, views, gate, abstain_below, device, download, defence, allow_code)
    of_jobs = {"--restart": restart or None, "--engine": engine, "--address": address, "--workers": workers}
    of_few = {"--csv": csv, "--explain": explain, "--slice": pixels}
    _require_without(of_few if out is not None else of_jobs, "beside" if out is not None else "without")
    if out is not None:
        return _fill(asked, paths, out, restart, (engine or "local", address, workers), as_json, quiet)
    return _show(asked, paths, csv, explain, pixels, as_json, quiet)


def _require_without(options: Mapping[str, object], how: str) -> None:
    """Refuse options that have no use beside --out, or without it."""
    for name, value in options.items():
        got = name if value is True else repr(value)
        require(value is None, name, f"be left out {how} --out", got, "drq predict --help says what each is for")


def _fill(
    asked: Asked,
    paths: list[str],
    out: str,
    restart: bool,
    where: tuple[str, str | None, int | None],
    as_json: bool,
    quiet: bool,
) -> int:
    """Fill a table with the answers."""
    from drq.commands import terminal
    from drq.evaluation.engines import chosen_engine
    from drq.serving.jobs import fill
    from drq.serving.table import table_path

    path, runner = table_path(out), chosen_engine(*where)  # before a model is loaded
    found = _answering(asked, False, quiet)
    try:
        with redirect_stdout(sys.stderr):
            totals = fill(found, paths, path, runner, restart, _bar(quiet))
    except KeyboardInterrupt:
        print_to_stderr(f"{out} keeps all rows so far: the same command goes on")
        raise
    if as_json:
        typer.echo(json.dumps({"out": out, **asdict(totals)}, indent=2))
    else:
        terminal.show_rows(out, totals)
    return MISTAKE if totals.refused else 0


def _bar(quiet: bool) -> Tell:
    """Return what shows on standard error how far a table is, and the time left."""
    from drq.serving.jobs import silent

    bars: list[Bar] = []

    def tell(rows: int, total: int) -> None:
        if not bars:
            bars.append(Bar("predicting", before=rows / total))
        bars[0](rows / total, f"{rows:,} of {total:,} pictures")

    return silent if quiet else tell


def _answering(asked: Asked, keep_points: bool, quiet: bool) -> Answering:
    """Make what answers, and say what the user should know of it."""
    from drq.serving.answering import answering

    with redirect_stdout(sys.stderr):  # libraries that load models may print
        found = answering(asked, keep_points=keep_points, progress=not quiet)
    for note in () if quiet else found.notes:
        print_to_stderr(note)
    return found


def _show(
    asked: Asked, paths: list[str], csv: str | None, explain: str | None, pixels: int | None, as_json: bool, quiet: bool
) -> int:
    """Show the answers on the terminal, or print them."""
    from drq.commands import terminal
    from drq.serving.listing import listed, pictures
    from drq.serving.predict import card_files
    from drq.serving.prediction import Refusal

    _check_shown(csv, explain, pixels, as_json)
    found, counts, seconds, names = [], Counter[str](), 0.0, listed(paths)
    cards = card_files(explain, len(names))
    with terminal.csv_writer(csv) as put_row:
        predictor = (answers := _answering(asked, bool(cards), quiet)).predictor
        remedy = "views have no slice, their card shows all of them"
        require(
            pixels is None or predictor.robust.ball_searched, "--slice", "be left out where no ball is searched", pixels, remedy
        )
        show = terminal.prediction_printer(names) if csv is None and not as_json else None
        with terminal.picture_progress(len(names), quiet or (csv == "-" and sys.stdout.isatty())) as (tell, draw):
            for place, answer in enumerate(predictor.stream(pictures(paths, read=True), tell=tell)):
                facts = answer.as_json(answers.below)
                put_row(facts)
                counts.update(name for name in ("changed", "abstained", "error") if facts.get(name))
                counts["passes"] += facts.get("passes", 0)
                seconds += facts.get("seconds", 0.0)
                if as_json:
                    found.append(facts)
                if isinstance(answer, Refusal):
                    print_to_stderr(answer.error)
                elif show:
                    show(answer, answers.below)
                if cards and not isinstance(answer, Refusal):
                    card = partial(predictor.explain, answer, cards[place], pixels, draw)
                    _explain(card, cards[place], facts, aloud=show is not None)
    if as_json:
        typer.echo(json.dumps(found, indent=2, allow_nan=False))
    elif csv != "-":
        terminal.show_totals(len(names), counts, seconds, csv, not predictor.robust.ball_searched)
    return MISTAKE if counts["error"] else 0


def _check_shown(csv: str | None, explain: str | None, pixels: int | None, as_json: bool) -> None:
    """Check how answers are shown, before a model is loaded."""
    rule, remedy = "name a file beside --json", "standard output has room for one of them"
    require(not (as_json and csv == "-"), "--csv", rule, "-", remedy)
    drawable = pixels is None or (explain is not None and pixels >= 2)
    require(drawable, "--slice", "be at least 2, beside --explain", pixels, "20 show where regions are, 60 their shape")


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
