"""Define ``drq report``, which reports on a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from drq.commands.app import app, examples, print_to_stderr


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
    compare: Annotated[str | None, typer.Option(metavar="RUN", help="Another run to compare with.")] = None,
    out: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Where to write; by default a page to RUN/report.html, and tables to standard output."),
    ] = None,
    form: Annotated[str, typer.Option("--format", metavar="NAME", help="One of html, markdown, latex or csv.")] = "html",
) -> None:
    """Report on a run, as an HTML page or as tables.

    The page is one file that opens offline. The verdict comes first: what DRQ gains, where it loses, what it costs, and
    whether a gain survives attacks on itself.
    """
    from drq.evaluation.run import Run
    from drq.report import run_report

    opened = Run.open(run)
    records = run_report.records_of(opened)
    text = run_report.format_run(opened, records, form, None if compare is None else Run.open(compare))
    if remaining := run_report.unfinished(opened, records):
        print_to_stderr(f"{opened.path} is not finished: {remaining}")
    if out is None and form != "html":
        typer.echo(text, nl=False)
        return
    path = Path(out) if out is not None else opened.path / "report.html"
    run_report.write(path, text)
    typer.echo(str(path))
