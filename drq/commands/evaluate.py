"""The command that measures: evaluate."""

from __future__ import annotations

import shlex
import sys
from contextlib import redirect_stdout
from importlib.util import find_spec
from typing import Annotated

import typer

from drq.commands.app import AllowCode, Quiet, app, examples, put, say
from drq.commands.completion import DEVICES, offered
from drq.errors import require


@app.command(
    epilog=examples(
        "drq evaluate digits",
        "drq evaluate table4 --out runs/table4 --device cuda",
        "drq evaluate mine.toml --engine ray",
        "drq evaluate mine.toml --address auto --workers 64",
        "drq evaluate runs/table4",
        "drq evaluate theirs.toml --allow-code",
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
    allow_code: AllowCode = False,
    listed: Annotated[bool, typer.Option("--list", help="List the experiments of the paper.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print how far it is as JSON lines to standard output.")] = False,
    quiet: Quiet = False,
) -> None:
    """Evaluate models, data, threats and defences as a spec says, and keep every answer.

    The same command again goes on where it stopped, however it stopped, and repeats nothing. See docs/evaluate.md for specs.
    """
    from drq.commands import screens, terminal
    from drq.evaluation.loop import evaluate, run_directory
    from drq.evaluation.paper import experiments
    from drq.evaluation.sources import as_spec

    if listed:
        titles = {name: as_spec(name).title for name in experiments()}
        put(titles, as_json, terminal.facts)
        return
    require(spec != "", "spec", "be given", "nothing", "drq evaluate --list names the experiments of the paper")
    try:
        with screens.watching(quiet, as_json, say) as tell, redirect_stdout(sys.stdout if as_json else sys.stderr):
            how = {"engine": engine, "address": address, "device": device, "only": only}
            run = evaluate(spec, out, workers=workers, allow_code=allow_code, tell=tell, **how)
    except KeyboardInterrupt:
        say(f"{run_directory(spec, out, allow_code=allow_code)} keeps what was done: the same command goes on")
        raise
    if not as_json:
        if find_spec("polars") is not None:
            screens.outcome(run.records)
        if lacking := run.about["missing"]:
            say(f"left out, see above: {', '.join(each['what'] for each in lacking)}")
        terminal.show(f"Run: {run.path}. Next: drq report {shlex.quote(str(run.path))}")
