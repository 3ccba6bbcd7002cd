"""Why something came out otherwise here than in the paper, as far as that is known: what reasons.toml says."""

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


def of_claims() -> dict[str, str]:
    """Why claims do not hold, or are undecided, by their names."""
    return dict(_reasons()["claims"])


def of_sign(experiment: str, place: Mapping[str, Any]) -> str | None:
    """Why a gain has another sign than in the paper; ``place`` has the names of the cell. The first reason that fits counts."""
    for each in _reasons()["signs"]:
        names = each.keys() - {"experiment", "why"}
        if each["experiment"] == experiment and all(place[name] == each[name] for name in names):
            return str(each["why"])
    return None
