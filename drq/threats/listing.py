"""List every threat by family, with a one-line summary and its settings."""

from __future__ import annotations

import builtins
import inspect
import re
from collections.abc import Mapping
from dataclasses import MISSING, Field
from typing import Any, NamedTuple

from drq.registry import CORRUPTIONS, THREATS
from drq.threats.corruptions import Corruption
from drq.threats.corruptions.constants import TABLE
from drq.threats.threat import Threat, plain, settings

FAMILIES: Mapping[str, Mapping[str, type[Threat]]] = THREATS


class Entry(NamedTuple):
    """The description of a threat."""

    name: str  # as it is written in Python, behind ``drq.threats.``
    family: str
    summary: str
    settings: dict[str, Any]  # names and defaults; REQUIRED where there is no default


REQUIRED = "required"
MARKUP = re.compile(r":\w+:`([^`]+)`|``([^`]+)``")  # of docstrings, which a terminal shows as it is


def describe(kind: type[Threat], family: str) -> Entry:
    """Describe a threat by the first paragraph of its docstring and its settings."""
    summary = " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split())
    return Entry(kind.__name__, family, MARKUP.sub(r"\1\2", summary), {each.name: _default(each) for each in settings(kind)})


def _default(setting: Field[Any]) -> Any:
    if setting.default_factory is not MISSING:
        return plain(setting.default_factory())
    return REQUIRED if setting.default is MISSING else plain(setting.default)


def list() -> builtins.list[Entry]:
    """Return the descriptions of all threats.

    >>> [entry.name for entry in list() if entry.family == "spatial"]
    ['Rotation', 'Translation', 'RotationTranslation']
    """
    entries = [describe(kind, family) for family, kinds in FAMILIES.items() for kind in kinds.values()]
    defaults = {name: value for name, value in describe(Corruption, "").settings.items() if name != "kind"}
    return entries + [
        Entry(f'Corruption("{kind}")', "corruption", TABLE[kind].description, dict(defaults)) for kind in CORRUPTIONS
    ]
