"""The command that shows DRQ at work: demo. It evaluates the spec of digits that comes with the package."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from typing import TYPE_CHECKING, Annotated

import typer

from drq.commands.app import AsJson, Quiet, app, examples, say
from drq.errors import require

if TYPE_CHECKING:
    from drq.evaluation.spec import Spec
    from drq.models.digits import Track


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
    from drq.commands import screens, terminal
    from drq.evaluation.loop import evaluate
    from drq.report import run_report

    run_report.require_all()
    spec = tour(images, seed)
    with terminal.progress(quiet) as track:
        prepare(track, say)
    with screens.watching(quiet or as_json, False, say) as tell:
        run = evaluate(spec, out, tell=tell)
    page, records = run.path / "report.html", run_report.rows(run)
    run_report.write(page, run_report.shown(run, records))
    if as_json:
        typer.echo(json.dumps(run_report.summary(run, records) | {"report": str(page)}, indent=2))
        return
    screens.outcome(records)
    terminal.show(f"Report: {page}. All of it: drq evaluate digits; drq report {run.path}")


def tour(images: int = 200, seed: int = 0) -> Spec:
    """The spec: so many test images, and this seed for noise and movements.

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


def prepare(track: Track, say: Callable[[str], None] = print) -> None:
    """Train the model, unless that was done before: some seconds, which are shown here and not in the evaluation."""
    from drq.data.digits import split
    from drq.models.digits import Recipe, trained

    trained(Recipe(), split()[0], track, say)
