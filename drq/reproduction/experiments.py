"""Everything that can be repeated: tables, figures and claims of the paper, what goes beyond it, and the experiments behind."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from drq.errors import nearest, require
from drq.evaluation.loop import Tell, evaluate, silent
from drq.evaluation.paper import GAPS, experiments, folder
from drq.evaluation.run import Run
from drq.evaluation.sources import as_spec
from drq.reproduction.claims import claims

BEYOND = {  # what the paper has not, in experiments that can be run one by one
    "redteam": tuple(f"redteam-{each}" for each in ("linf", "small", "l2", "augment", "noise", "peers", "full")),
    "peers": ("peers", "peers-single"),
    "improve": ("improve", *(f"improve-{each}" for each in ("augment", "front", "shift", "search", "attacked", "digits"))),
}


@dataclass(frozen=True)
class Entry:
    """A table, figure or claim of the paper, or what goes beyond it.

    Args:
        name: what it is called.
        kind: which of them.
        title: what it is about.
        experiments: whose records show it, by the names of their specs.
    """

    name: str
    kind: Literal["table", "figure", "claim", "beyond"]
    title: str
    experiments: tuple[str, ...]


@dataclass(frozen=True)
class Gap:
    """What the paper leaves open, or contradicts itself in.

    Args:
        where: in the paper.
        paper: what it says, or does not say.
        ours: what is done here.
    """

    where: str
    paper: str
    ours: str


@cache
def entries() -> dict[str, Entry]:
    """All of them by name: tables, figures, claims, and what goes beyond the paper.

    >>> [name for name in entries() if name.startswith("table")][:3]
    ['table1', 'table2', 'table3']
    """
    found = {}
    for kind in ("table", "figure"):
        for name in experiments():
            if name.startswith(kind):
                found[name] = Entry(name, kind, as_spec(name).title.partition(": ")[2], (name,))
    for name, claim in claims().items():
        found[name] = Entry(name, "claim", claim.says, tuple(claim.experiments))
    for name, parts in BEYOND.items():
        found[name] = Entry(name, "beyond", as_spec(parts[0]).title, parts)
    return found


def wanted(names: Sequence[str]) -> dict[str, None]:
    """The experiments behind entries, or experiments by their own names, in order and each once."""
    known: dict[str, Entry] = entries()
    found: dict[str, None] = {}
    require(bool(names), "name", "be given", "nothing", "drq reproduce --list has all")
    for name in names:
        choices = (*known, *experiments(), "all")
        remedy = nearest(name, choices, "drq reproduce --list has all")
        require(name in choices, "name", "be a table, figure or claim of the paper", repr(name), remedy)
        behind = [each for entry in known.values() for each in entry.experiments] if name == "all" else None
        found |= dict.fromkeys(behind or (known[name].experiments if name in known else (name,)))
    return found


def repeat(
    name: str,
    out: Path = Path("runs"),
    limit: int | None = None,
    device: str | None = None,
    tell: Tell = silent,
    only: str | None = None,
) -> Run:
    """Run an experiment into a directory of its name below ``out``.

    Several of them in one process are quicker: what one has attacked, answered or compiled serves the next.

    Args:
        name: of the experiment.
        out: where the runs lie.
        limit: of samples, in place of the paper's where it is lower: a first look.
        device: "auto", "cpu", "cuda" ...
        tell: told how far the work is.
        only: see :func:`drq.evaluate`.
    """
    source = as_spec(name).source
    assert source is not None
    spec = source if limit is None else smaller(source, limit)
    return evaluate(spec, out / (name if limit is None else f"{name}-{limit}"), device=device, only=only, tell=tell)


def smaller(source: Mapping[str, Any], limit: int) -> dict[str, Any]:
    """The same spec with at most so many samples of everything.

    >>> smaller({"limit": 1000, "threats": {"clean": {}, "slow": {"limit": 5}}}, 10)
    {'limit': 10, 'threats': {'clean': {}, 'slow': {'limit': 5}}}
    """
    table = deepcopy(dict(source))
    for place in (table, *table.get("groups", ()), *table.get("threats", {}).values()):
        if place is table or "limit" in place:
            place["limit"] = min(limit, place.get("limit", limit))
    return table


@cache
def gaps() -> list[Gap]:
    """What the paper leaves open, and what is done here."""
    table = tomllib.loads((folder() / GAPS).read_text(encoding="utf-8"))
    return [Gap(**each) for each in table["gaps"]]
