"""List the tables, figures and claims that can be repeated, and run the experiments behind them."""

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

BEYOND = {  # experiments that the paper does not have; each can be run by itself
    "redteam": tuple(f"redteam-{each}" for each in ("linf", "small", "l2", "augment", "noise", "peers", "views", "full")),
    "peers": ("peers", "peers-single"),
    "networks": ("networks", "networks-plain", "networks-mnist", "imagenet-lite", "imagenet-instant", "redteam-networks"),
    "improve": ("improve", *(f"improve-{each}" for each in ("augment", "front", "shift", "search", "attacked", "digits"))),
    "views": ("views", "views-photographs", "views-costly"),
    "views-first": ("views-first", "view-gates", "ball-gate"),
}


@dataclass(frozen=True)
class Entry:
    """A table, figure or claim of the paper, or a result beyond it.

    Args:
        name: its name on the command line.
        kind: one of these kinds.
        title: its title, or the claim.
        experiments: names of the specs whose records it is made of.
    """

    name: str
    kind: Literal["table", "figure", "claim", "beyond"]
    title: str
    experiments: tuple[str, ...]


@dataclass(frozen=True)
class Gap:
    """A detail that the paper leaves open, or on which it contradicts itself.

    Args:
        where: the place in the paper.
        paper: what the paper says there, or leaves out.
        ours: what this implementation does.
    """

    where: str
    paper: str
    ours: str


@cache
def entries() -> dict[str, Entry]:
    """Return all entries by name: tables, figures, claims, and results beyond the paper.

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


def experiments_behind(names: Sequence[str]) -> dict[str, None]:
    """Return the experiments that these entries are made of, each once and in order; experiments may be named directly."""
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


def run_experiment(
    name: str,
    out: Path = Path("runs"),
    limit: int | None = None,
    device: str | None = None,
    tell: Tell = silent,
    only: str | None = None,
) -> Run:
    """Run an experiment into a directory of its name below ``out``.

    Several experiments in one process are faster, since attacks, answers and compiled models are reused.

    Args:
        name: the name of the experiment.
        out: the folder for runs.
        limit: at most this many samples, for a quick first look.
        device: "auto", "cpu", "cuda" ...
        tell: called with events of progress.
        only: see :func:`drq.evaluate`.
    """
    source = as_spec(name).source
    assert source is not None
    spec = source if limit is None else with_limit(source, limit)
    return evaluate(spec, out / (name if limit is None else f"{name}-{limit}"), device=device, only=only, tell=tell)


def with_limit(source: Mapping[str, Any], limit: int) -> dict[str, Any]:
    """Return the spec with every limit of samples lowered to at most this one.

    >>> with_limit({"limit": 1000, "threats": {"clean": {}, "slow": {"limit": 5}}}, 10)
    {'limit': 10, 'threats': {'clean': {}, 'slow': {'limit': 5}}}
    """
    table = deepcopy(dict(source))
    for place in (table, *table.get("groups", ()), *table.get("threats", {}).values()):
        if place is table or "limit" in place:
            place["limit"] = min(limit, place.get("limit", limit))
    return table


@cache
def gaps() -> list[Gap]:
    """Return the details that the paper leaves open, and what is done here."""
    table = tomllib.loads((folder() / GAPS).read_text(encoding="utf-8"))
    return [Gap(**each) for each in table["gaps"]]
