"""Gates of models by name, which ``python -m tools.gates`` learns: each belongs to its weights and views, and to no others."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from drq.method.execution import InPrecision
from drq.models import weights
from drq.views.gate import Gate

FILE = Path(__file__).with_suffix(".json")
OPEN = {"threshold": -math.inf}  # infinite numbers are left out of the file: JSON has none


class Learnt(NamedTuple):
    """A gate, and what it was learnt from."""

    preset: str  # whose views they are
    views: str
    changes: float  # the share of answers that was allowed to change
    data: str
    first: int  # position of the first input
    gate: Gate


class Gates(NamedTuple):
    """The gates of one model."""

    sha256: str  # of the file of its weights
    contents: str  # checksum of its weights in memory
    learnt: tuple[Learnt, ...]


@cache
def known(path: Path = FILE) -> Mapping[str, Gates]:
    """The gates of every model that has some, by its name."""
    return {name: _read(each) for name, each in json.loads(path.read_text()).items()} if path.is_file() else {}


def _read(record: Mapping[str, Any]) -> Gates:
    learnt = (Learnt(**each | {"gate": Gate.read(OPEN | each["gate"])}) for each in record["learnt"])
    return Gates(record["sha256"], record["contents"], tuple(learnt))


def gates_of(name: str, sha256: str | None) -> dict[str, Gate]:
    """The gates of the model of this name, whose file has this checksum, by the preset whose views they are for."""
    gates = known().get(name)
    return {} if gates is None or gates.sha256 != sha256 else {each.preset: each.gate for each in gates.learnt}


def gate_for(name: str, sha256: str | None, model: nn.Module, views: str) -> Gate | None:
    """The gate of the model of this name for these views; None where there is none, or where its weights are others."""
    gates = known().get(name)
    if gates is None or gates.sha256 != sha256:
        return None
    found = next((each.gate for each in gates.learnt if each.views == views), None)
    return found if found is not None and checksum(model) == gates.contents else None


def identity(name: str) -> str:
    """A checksum of all gates of the model of this name, also where it has none."""
    return hashlib.sha256(repr(known().get(name)).encode()).hexdigest()


def checksum(model: nn.Module) -> str:
    """A checksum of all that a model holds, as it is in memory; in which precision it runs is another matter."""
    if isinstance(model, InPrecision) and isinstance(model.model, nn.Module):
        model = model.model
    return weights.checksum(model)
