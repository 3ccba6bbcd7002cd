"""Define ``drq demo``, which shows DRQ at work by evaluating the spec of digits in the package."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from typing import TYPE_CHECKING, Annotated

import typer

from drq.commands.app import AsJson, Quiet, app, examples, print_to_stderr
from drq.errors import imported, require

if TYPE_CHECKING:
    from drq.evaluation.spec import Spec
    from drq.models.digits import Track


@app.command(epilog=examples("drq demo", "drq demo --images 50 --seed 1", "drq demo --out tour --json > tour.json"))
def demo(
    images: Annotated[int, typer.Option(metavar="N", help="How many test images are used, at most 500.")] = 200,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of noise and spatial shifts.")] = 0,
    out: Annotated[str, typer.Option(metavar="DIR", help="Directory for the run and its report.")] = "drq-demo",
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Show DRQ at work on handwritten digits, with a report.

    The first run trains a small network adversarially on scikit-learn's digits, in some seconds, and keeps it in the folder
    DRQ_CACHE, by default ~/.cache/drq. The network is then evaluated with and without DRQ: on clean images, under noise, blur,
    rotation, translation and attacks, and under a red team that attacks DRQ itself. That takes two minutes on two cores.
    """
    from drq.commands import evaluation_output, terminal
    from drq.evaluation.loop import evaluate
    from drq.report import run_report

    for name, purpose in (("sklearn", "the digits"), ("polars", "records"), ("matplotlib", "the report")):
        imported(name, f"{purpose} of drq demo", "pip install 'decision-region-quantification[demo]'")  # which has all three
    spec = tour(images, seed)
    with terminal.progress(quiet) as track:
        train_model(track, print_to_stderr)
    with evaluation_output.progress(quiet or as_json, False, print_to_stderr) as tell:
        run = evaluate(spec, out, tell=tell)
    page, records = run.path / "report.html", run_report.records_of(run)
    run_report.write(page, run_report.format_run(run, records))
    if as_json:
        typer.echo(json.dumps(run_report.summary(run, records) | {"report": str(page)}, indent=2))
        return
    evaluation_output.show_results(records)
    terminal.show(f"Report: {page}. All of it: drq evaluate digits; drq report {run.path}")


def tour(images: int = 200, seed: int = 0) -> Spec:
    """Return the spec of the demo with this many test images, and this seed for noise and spatial shifts.

    >>> list(tour(5).threats)
    ['clean', 'noise', 'blur', 'rotation', 'translation', 'PGD', 'APGD', 'red team']
    """
    from drq.data.digits import TEST_IMAGES
    from drq.evaluation.sources import as_spec
    from drq.evaluation.spec import Spec

    rule = f"lie between 1 and {TEST_IMAGES}, the number of test images"
    require(1 <= images <= TEST_IMAGES, "images", rule, images, "200 take two minutes")
    table = deepcopy(dict(as_spec("digits").source or {}))
    for threat in table["threats"].values():
        threat["limit"] = min(images, threat.get("limit", images))
    return Spec.of(table | {"name": "drq-demo", "limit": images, "seed": seed})


def train_model(track: Track, notify: Callable[[str], None] = print) -> None:
    """Train the model unless it is cached, before the evaluation, so that its progress is shown separately."""
    from drq.data.digits import split
    from drq.models.digits import Recipe, trained

    trained(Recipe(), split()[0], track, notify)
