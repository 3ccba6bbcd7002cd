"""The experiments of the paper: a spec for every table and figure, and the numbers that the paper has there."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drq.errors import InputError, nearest, require
from drq.evaluation.records import require_polars

if TYPE_CHECKING:
    import polars

PACKAGE = Path(__file__).parent.parent
PLACES = (PACKAGE / "experiments", PACKAGE.parent / "experiments")  # in a wheel, in a clone of the project
PAPER, CLAIMS, GAPS = "paper.toml", "claims.toml", "gaps.toml"  # what the paper shows, says, and leaves open
KEYS = ("experiment", "model", "data", "suite", "threat", "defence")


def experiments() -> dict[str, Path]:
    """The specs, by name.

    >>> [name for name in experiments() if name.startswith("figure")]
    ['figure1', 'figure2', 'figure3', 'figure4', 'figure5']
    """
    beside = (PAPER, CLAIMS, GAPS)
    return {path.stem: path for path in sorted(folder().glob("*.toml")) if path.name not in beside}


def published(experiment: str | None = None, quantity: str = "accuracy") -> polars.DataFrame:
    """The numbers of the paper: the columns of :data:`KEYS`, with the names that the specs have, and ``value``.

    The threat "worst case" is the worst over its suite, the data set ``cifar10-c/*/5`` the mean over all corruptions. What
    stands in for a model of the paper has its numbers as well: :func:`stand_ins`.

    Args:
        experiment: the name of its spec, as "table4"; None for all.
        quantity: "accuracy" in percent, "difference" to the undefended model in points (Table 8), or what Figure 5 shows of
            cosines: "median", "lower quartile", "upper quartile", "lower whisker", "upper whisker" or "outlier".

    >>> published("table4").filter(model="cifar10-linf", defence="DRQ linf")["value"].item()
    48.52
    """
    cells = [*_cells()]
    _check("quantity", quantity, {cell["quantity"] for cell in cells})
    if experiment is not None:
        _check("experiment", experiment, _paper()["notes"].keys() | {cell["experiment"] for cell in cells})
    chosen = [cell for cell in cells if cell["quantity"] == quantity and experiment in (None, cell["experiment"])]
    beside = [{**cell, "model": name} for name, model in stand_ins().items() for cell in chosen if cell["model"] == model]
    pl = require_polars()
    schema = dict.fromkeys(KEYS, pl.String) | {"value": pl.Float64}
    frame: polars.DataFrame = pl.DataFrame([{name: cell[name] for name in schema} for cell in chosen + beside], schema=schema)
    return frame


def stand_ins() -> dict[str, str]:
    """The model of the paper behind each model that stands in for one.

    >>> stand_ins()["cifar10-l2"]
    'robustbench:cifar10/L2/Rice2020Overfitting'
    """
    return dict(_paper()["stand_ins"])


def notes() -> dict[str, str]:
    """What a reader of the numbers should know, by experiment: where the paper contradicts itself, or has no numbers.

    >>> notes()["figure3"]
    'Both plots carry the same numbers, though one varies exploration and the other quantification.'
    """
    return dict(_paper()["notes"])


def _cells() -> Iterator[dict[str, Any]]:
    """Every number with its place."""
    for block in _paper()["blocks"]:
        shared = {key: block[key] for key in KEYS if key in block}
        columns = [dict(zip(block["columns"], names, strict=True)) for names in zip(*block["columns"].values(), strict=True)]
        for row, values in block["cells"].items():
            for column, value in zip(columns, values, strict=True):
                cell = {"quantity": "accuracy", **shared, block["rows"]: row, **column, "value": float(value)}
                yield {"suite": cell["threat"], **cell}


def _check(name: str, value: str, known: Iterable[str]) -> None:
    known = sorted(known)
    require(
        value in known, name, f"be one of {', '.join(known)}", repr(value), nearest(str(value), known, "the paper has no other")
    )


def folder() -> Path:
    """Where the specs are."""
    found = next((place for place in PLACES if (place / PAPER).is_file()), None)
    if found is None:
        raise InputError(f"{PLACES[0]} must come with the package, got no such folder: install it anew")
    return found


@cache
def _paper() -> dict[str, Any]:
    return tomllib.loads((folder() / PAPER).read_text(encoding="utf-8"))
