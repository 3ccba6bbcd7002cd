"""Commands that measure: demo, evaluate, report."""

from __future__ import annotations

import json
import shlex
import sys
from contextlib import redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from drq.commands.app import AsJson, Quiet, app, examples, put, say
from drq.completion import DEVICES, offered
from drq.errors import require


@app.command(epilog=examples("drq demo", "drq demo --images 50 --seed 1", "drq demo --out tour --json > tour.json"))
def demo(
    images: Annotated[int, typer.Option(metavar="N", help="Test images to measure, at most 500.")] = 200,
    seed: Annotated[int, typer.Option(metavar="N", help="Of noise and movements.")] = 0,
    out: Annotated[str, typer.Option(metavar="DIR", help="Directory of the run and its report.")] = "drq-demo",
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Take the tour: a small classifier with and without DRQ, shifted and attacked, and a report on it.

    Trains an adversarially trained network on scikit-learn's digits (seconds, once: it is kept in DRQ_CACHE, by default
    ~/.cache/drq), then evaluates it alone and under DRQ: clean, noise, blur, rotation, translation, attacks, and a red team that
    attacks DRQ itself. Two minutes on two cores. What it prints is what came out, whoever is ahead.
    """
    from drq import demo, screens, terminal
    from drq.evaluate import evaluate
    from drq.reporting import runs

    runs.require_all()
    spec = demo.tour(images, seed)
    with terminal.progress(quiet) as track:
        demo.prepare(track, say)
    with screens.watching(quiet or as_json, False, say) as tell:
        run = evaluate(spec, out, tell=tell)
    page, records = run.path / "report.html", runs.rows(run)
    runs.write(page, runs.shown(run, records))
    if as_json:
        typer.echo(json.dumps(runs.summary(run, records) | {"report": str(page)}, indent=2))
        return
    screens.outcome(records)
    terminal.show(f"Report: {page}. All of it: drq evaluate digits; drq report {run.path}")


@app.command(
    epilog=examples(
        "drq evaluate digits",
        "drq evaluate table4 --out runs/table4 --device cuda",
        "drq evaluate mine.toml --engine ray",
        "drq evaluate mine.toml --address auto --workers 64",
        "drq evaluate runs/table4",
        "drq evaluate --list",
    )
)
def evaluate(
    spec: Annotated[
        str, typer.Argument(metavar="SPEC", help="A TOML file, an experiment of the paper, or a run.", show_default=False)
    ] = "",
    out: Annotated[str | None, typer.Option(metavar="DIR", help="Directory of the run; runs/NAME by default.")] = None,
    engine: Annotated[str | None, typer.Option(metavar="NAME", help="local or ray; by default that of the spec.")] = None,
    address: Annotated[str | None, typer.Option(help="Of a running Ray cluster; auto finds the one here.")] = None,
    workers: Annotated[int | None, typer.Option(metavar="N", help="Of Ray at once; as many as fit by default.")] = None,
    device: Annotated[
        str | None, typer.Option(help="auto, cpu, cuda; by default that of the spec.", autocompletion=offered(DEVICES))
    ] = None,
    only: Annotated[str | None, typer.Option(metavar="NAME", help="Of a model, data, threat or victim; the rest waits.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the experiments of the paper.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print how far it is as JSON lines to standard output.")] = False,
    quiet: Quiet = False,
) -> None:
    """Evaluate models, data, threats and defences as a spec says, and keep every answer.

    The same command again goes on where it stopped, however it stopped, and repeats nothing. See docs/evaluate.md for specs.
    """
    from drq import screens, terminal
    from drq.evaluate import evaluate, home
    from drq.evaluation.published import experiments
    from drq.evaluation.sources import as_spec

    if listed:
        titles = {name: as_spec(name).title for name in experiments()}
        put(titles, as_json, terminal.facts)
        return
    require(spec != "", "spec", "be given", "nothing", "drq evaluate --list names the experiments of the paper")
    try:
        with screens.watching(quiet, as_json, say) as tell, redirect_stdout(sys.stdout if as_json else sys.stderr):
            run = evaluate(spec, out, engine=engine, address=address, workers=workers, device=device, only=only, tell=tell)
    except KeyboardInterrupt:
        say(f"{home(spec, out)} keeps what was done: the same command goes on")
        raise
    if not as_json:
        if find_spec("polars") is not None:
            screens.outcome(run.records)
        if lacking := run.about["missing"]:
            say(f"left out, see above: {', '.join(each['what'] for each in lacking)}")
        terminal.show(f"Run: {run.path}. Next: drq report {shlex.quote(str(run.path))}")


@app.command(
    epilog=examples(
        "drq report runs/digits",
        "drq report runs/digits --compare runs/other --out both.html",
        "drq report runs/digits --format markdown",
        "drq report runs/digits --format csv --out digits.csv",
    )
)
def report(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Directory of a run.", show_default=False)],
    compare: Annotated[str | None, typer.Option(metavar="RUN", help="Another run, to put beside it.")] = None,
    out: Annotated[str | None, typer.Option(metavar="FILE", help="RUN/report.html by default; tables are printed.")] = None,
    form: Annotated[str, typer.Option("--format", metavar="NAME", help="html, markdown, latex or csv.")] = "html",
) -> None:
    """Report on a run: one HTML file that opens offline, or its tables.

    The verdict comes first: what DRQ gains, where it loses, what it costs, and whether a gain survives attacks on itself.
    """
    from drq.evaluation.run import Run
    from drq.reporting import runs

    opened = Run.open(run)
    records = runs.rows(opened)
    text = runs.shown(opened, records, form, None if compare is None else Run.open(compare))
    if left := runs.unfinished(opened, records):
        say(f"{opened.path} is not finished: {left}")
    if out is None and form != "html":
        typer.echo(text, nl=False)
        return
    path = Path(out) if out is not None else opened.path / "report.html"
    runs.write(path, text)
    typer.echo(str(path))
