"""Old names of modules and classes of 0.1, which stay importable throughout 0.2, with a DeprecationWarning."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, spec_from_loader
from types import ModuleType
from typing import Any

_ROOMS_OF = {
    "system": ("downloads", "files", "progress", "threads"),
    "search": ("auto_step", "black_box", "gradient", "minimum_norm", "smoothing"),
    "method": ("adapters", "calibration", "race", "regions", "scores"),
    "engine": ("compiled", "slots", "twin"),
    "planes": ("plane", "slices"),
    "report": ("plots", "selective", "statistics", "tables"),
    "serving": ("predict",),
    "commands": ("cli",),
}
MOVED = {f"drq.{name}": f"drq.{room}.{name}" for room, names in _ROOMS_OF.items() for name in names}
MOVED |= dict.fromkeys(("drq.inputs", "drq.setting"), "drq.method.execution")
RENAMED = {  # names of 0.1 in these modules, and what they are called now
    "drq": {"Found": "SearchResult"},
    "drq.search": {"Found": "SearchResult", "Look": "Observation"},
}
ROOMS = {"drq.search": "drq.search.loop", "drq.engine": "drq.engine.drive", "drq.report": "drq.report.html"}  # once modules


def warn(old: str, new: str) -> None:
    """Tell the caller that a name of 0.1 has another one since 0.2."""
    message = f"{old} is {new} since 0.2; the old name goes with 0.3"
    warnings.warn(message, DeprecationWarning, stacklevel=3)  # the importer: frames of Python's own do not count


class OldNames(MetaPathFinder, Loader):
    """Answers an import of a module that moved with the module itself, so that there is never a second one."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Only what moved is found here."""
        return spec_from_loader(name, self) if name in MOVED else None

    def exec_module(self, module: ModuleType) -> None:
        """Put the module at its new place in the old one's: Python takes what is in ``sys.modules`` in the end."""
        old, new = module.__name__, MOVED[module.__name__]
        warn(old, new)
        sys.modules[old] = import_module(new)


def renamed(module: str, name: str) -> str:
    """The present name of something that 0.1 had under ``name`` in this module; the same name where it was not renamed."""
    return RENAMED.get(module, {}).get(name, name)


def of_room(room: str) -> Callable[[str], Any]:
    """The ``__getattr__`` of a room that has the name of a module of 0.1: what that module had is found in it."""

    def found(name: str) -> Any:
        ours = name.startswith("__") or find_spec(f"{room}.{name}") is not None  # a file of the room is no old name
        module, present = None if ours else import_module(ROOMS[room]), renamed(room, name)
        if module is None or not hasattr(module, present):
            raise AttributeError(f"module {room!r} has no attribute {name!r}")
        warn(f"{room}.{name}", f"{ROOMS[room]}.{present}")
        return getattr(module, present)

    return found
