"""Read reasons.toml: why results differ from the paper's, as far as that is known."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_suffix(".toml")


@cache
def _reasons() -> dict[str, Any]:
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def for_claims() -> dict[str, str]:
    """Return why claims do not hold, or are undecided, by name."""
    return dict(_reasons()["claims"])


def for_sign(experiment: str, place: Mapping[str, Any]) -> str | None:
    """Return why a gain has another sign than in the paper: the first reason that fits the names of the cell in ``place``."""
    for each in _reasons()["signs"]:
        names = each.keys() - {"experiment", "why"}
        if each["experiment"] == experiment and all(place[name] == each[name] for name in names):
            return str(each["why"])
    return None
