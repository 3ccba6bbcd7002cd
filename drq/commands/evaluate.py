"""Define ``drq evaluate``, which runs the evaluation that a spec describes."""

from __future__ import annotations

import shlex
import sys
from contextlib import redirect_stdout
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

import typer

from drq.commands.app import AllowCode, Quiet, app, examples, print_result, print_to_stderr
from drq.commands.completion import DEVICES, complete_with, data_names
from drq.errors import require

if TYPE_CHECKING:
    from drq.evaluation.sources import Specified
    from drq.serving.stored_defence import StoredDefence


@app.command(
    epilog=examples(
        "drq evaluate digits",
        "drq evaluate table4 --out runs/table4 --device cuda",
        "drq evaluate mine.toml --engine ray",
        "drq evaluate mine.toml --address auto --workers 64",
        "drq evaluate runs/table4",
        "drq evaluate theirs.toml --allow-code",
        "drq evaluate --defence defence.toml --data cifar10 --images 500",
        "drq evaluate --list",
    )
)
def evaluate(
    spec: Annotated[
        str, typer.Argument(metavar="SPEC", help="A TOML file, an experiment of the paper, or a run.", show_default=False)
    ] = "",
    defence: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Evaluate this defence beside its model alone, on the spec's data, or on --data."),
    ] = None,
    data: Annotated[
        str | None, typer.Option(metavar="NAME", help="Data for --defence; see drq data.", autocompletion=data_names)
    ] = None,
    images: Annotated[int | None, typer.Option(metavar="N", help="How many samples, for --defence.")] = None,
    out: Annotated[str | None, typer.Option(metavar="DIR", help="Directory of the run; by default runs/NAME.")] = None,
    engine: Annotated[
        str | None, typer.Option(metavar="NAME", help="Where the work runs: local or ray; by default as in the spec.")
    ] = None,
    address: Annotated[str | None, typer.Option(help="Address of a running Ray cluster; auto finds a local one.")] = None,
    workers: Annotated[
        int | None, typer.Option(metavar="N", help="How many Ray workers run at once; by default all that fit.")
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(help="Where to run: auto, cpu or cuda; by default as in the spec.", autocompletion=complete_with(DEVICES)),
    ] = None,
    only: Annotated[
        str | None, typer.Option(metavar="NAME", help="Run only the part with this model, data, threat or victim.")
    ] = None,
    allow_code: AllowCode = False,
    listed: Annotated[bool, typer.Option("--list", help="List the experiments of the paper.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print progress to standard output as JSON lines.")] = False,
    quiet: Quiet = False,
) -> None:
    """Evaluate models and defences as a spec says.

    Every answer under every threat is recorded. Run the same command again to continue where it stopped; nothing is repeated.
    docs/evaluate.md describes specs.
    """
    from drq.commands import evaluation_output, terminal
    from drq.evaluation.loop import evaluate, run_directory
    from drq.evaluation.paper import experiments
    from drq.evaluation.sources import as_spec
    from drq.serving.defence_specs import called

    if listed:
        titles = {name: as_spec(name).title for name in experiments()}
        print_result(titles, as_json, terminal.show_facts)
        return
    given, stored = _specified(spec, defence, data, images, allow_code)
    try:
        with (
            evaluation_output.progress(quiet, as_json, print_to_stderr) as tell,
            redirect_stdout(sys.stdout if as_json else sys.stderr),
        ):
            options = {"engine": engine, "address": address, "device": device, "only": only}
            run = evaluate(given, out, workers=workers, allow_code=allow_code, tell=tell, **options)
    except KeyboardInterrupt:
        print_to_stderr(f"{run_directory(given, out, allow_code=allow_code)} keeps what was done: the same command goes on")
        raise
    if not as_json:
        if find_spec("polars") is not None:
            evaluation_output.show_results(run.records)
            if defence is not None and stored is not None and stored.threshold.margin:
                evaluation_output.show_abstention(run.records, called(defence), stored.threshold.margin)
        if missing := run.about["missing"]:
            print_to_stderr(f"left out, see above: {', '.join(each['what'] for each in missing)}")
        terminal.show(f"Run: {run.path}. Next: drq report {shlex.quote(str(run.path))}")


def _specified(
    spec: str, defence: str | None, data: str | None, images: int | None, allow_code: bool
) -> tuple[Specified, StoredDefence | None]:
    """Return what is evaluated, and the defence where it is from a file."""
    from drq.serving.defence_file import load_defence
    from drq.serving.defence_specs import spec_of

    if defence is None:
        for name, value in {"--data": data, "--images": images}.items():
            require(value is None, name, "be left out without --defence", value, "a spec names its data and its limit")
        require(spec != "", "spec", "be given", "nothing", "drq evaluate --list names the experiments of the paper")
        return spec, None
    stored = load_defence(defence, allow_code=allow_code)
    return spec_of(stored, defence, spec or None, data, images, allow_code), stored
