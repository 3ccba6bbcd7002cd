"""What there is: every threat with one line on it, by family."""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Mapping
from dataclasses import MISSING, Field
from typing import Any, NamedTuple

from drq.threats.adaptive import EndToEnd, Manipulation
from drq.threats.attacks import APGD, PGD, APGDTargeted, LastPlace, PGDAttack, PGDNoise, RandomNoise, RaySAttack, SquareAttack
from drq.threats.corruptions import DESCRIPTIONS, Corruption
from drq.threats.noise import GaussianNoise
from drq.threats.red_team import Chain, RedTeam
from drq.threats.spatial import Rotation, RotationTranslation, Translation
from drq.threats.stronger import DecisionBased, Envelope, FewerSteps, Rivals, Sampling, ScoreBased, Transfer
from drq.threats.third_party import AutoAttack, Foolbox
from drq.threats.threat import Threat, plain, settings

FAMILIES: Mapping[str, tuple[type[Threat], ...]] = {
    "attack on a model": (PGD, APGD, APGDTargeted, RandomNoise, SquareAttack, RaySAttack, LastPlace, AutoAttack, Foolbox),
    "adaptive attack of the paper": (PGDNoise, PGDAttack, EndToEnd, Manipulation),
    "attack on a defence": (Transfer, Envelope, Rivals, Sampling, FewerSteps, ScoreBased, DecisionBased, Chain, RedTeam),
    "noise": (GaussianNoise,),
    "spatial": (Rotation, Translation, RotationTranslation),
}


class Entry(NamedTuple):
    """A threat, described."""

    name: str  # as it is written in Python, behind ``drq.threats.``
    family: str
    summary: str
    settings: dict[str, Any]  # with their defaults; REQUIRED where there is none


REQUIRED = "required"


def describe(kind: type[Threat], family: str) -> Entry:
    """The first paragraph of its docstring, and its settings."""
    summary = " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split())
    return Entry(kind.__name__, family, summary, {each.name: _default(each) for each in settings(kind)})


def _default(setting: Field[Any]) -> Any:
    if setting.default_factory is not MISSING:
        return plain(setting.default_factory())
    return REQUIRED if setting.default is MISSING else plain(setting.default)


def list() -> builtins.list[Entry]:
    """Every threat there is.

    >>> [entry.name for entry in list() if entry.family == "spatial"]
    ['Rotation', 'Translation', 'RotationTranslation']
    """
    entries = [describe(kind, family) for family, kinds in FAMILIES.items() for kind in kinds]
    defaults = describe(Corruption, "").settings
    return entries + [
        Entry(f'Corruption("{kind}")', "corruption", summary, {name: value for name, value in defaults.items() if name != "kind"})
        for kind, summary in DESCRIPTIONS.items()
    ]
