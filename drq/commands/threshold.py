"""Define ``drq threshold``, which fits the margin below which a defence abstains."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from drq.commands.app import AllowCode, AsJson, Quiet, app, examples, print_result
from drq.commands.completion import DEVICES, complete_with


@app.command(
    epilog=examples(
        "drq threshold labelled/ --defence defence.toml --risk 0.05",
        "drq threshold labelled/ --defence defence.toml --confidence 0.99",
    )
)
def threshold(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Labelled pictures, in one folder a class.")],
    defence: Annotated[str, typer.Option(metavar="FILE", help="The file of the defence, which is changed.")],
    risk: Annotated[float, typer.Option(metavar="R", help="Share of errors among answers, at most.")] = 0.05,
    confidence: Annotated[float, typer.Option(metavar="P", help="Probability with which that holds.")] = 0.95,
    device: Annotated[str, typer.Option(help="Where to run: auto, cpu or cuda.", autocompletion=complete_with(DEVICES))] = "auto",
    allow_code: AllowCode = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Fit the margin below which a defence abstains, and write it into its file.

    Folders are called as the classes of the model, or by their numbers. With the probability P over the choice of these pictures,
    at most a share R of the answers about new ones of the same kind is wrong. Draw them at random from what you expect: about
    others, and about attacked ones, nothing is promised.
    """
    from drq.commands import terminal
    from drq.evaluation.resources import chosen_device
    from drq.serving.defence_file import load_defence
    from drq.serving.threshold import fit_in_file
    from drq.system.progress import Bar, silent

    where = chosen_device(device)
    stored = load_defence(defence, allow_code=allow_code).to(where)
    found = fit_in_file(Path(defence), stored, folder, risk, confidence, silent if quiet else Bar("deciding", patience=5.0))
    facts = {"defence": defence, "margin": found.margin, "fitted": asdict(found)["fitted"]}
    print_result(facts, as_json, lambda _: terminal.show(f"{defence}: {found}; {found.fitted}."))
