"""Decision Region Quantification: more reliable predictions from any differentiable classifier, at test time.

Names are loaded when they are first used, so that what needs no model, such as ``drq --help``, does not wait for torch.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from drq.old_names import RENAMED, OldNames, warn
from drq.version import __version__

if TYPE_CHECKING:
    from drq import data, defences, models, presets, threats
    from drq.data import load as load_data
    from drq.decision import Decision
    from drq.drq import DRQ
    from drq.errors import InputError
    from drq.evaluation.loop import evaluate
    from drq.evaluation.run import Run
    from drq.evaluation.spec import Group, Spec, Trial
    from drq.method.adapters import Behind, FirstOutput, Probabilities, SingleLogit, Subset
    from drq.method.calibration import Calibrated, calibrate
    from drq.models import load as load_model
    from drq.norms import L1, L2, Ball, Linf, Norm
    from drq.objectives import Objective, away_from, confident_elsewhere, dlr, favour, last_place, log_odds, margin, toward
    from drq.presets import preset
    from drq.restoration import Restoration
    from drq.search.auto_step import AutoStep
    from drq.search.black_box import RayS, Square
    from drq.search.gradient import Gradient, Random
    from drq.search.loop import Search, SearchResult
    from drq.search.minimum_norm import MinimumNorm, nearest
    from drq.search.smoothing import InnerAttack, Noise
    from drq.serving.defence_file import load_defence

__all__ = [
    "DRQ",
    "L1",
    "L2",
    "AutoStep",
    "Ball",
    "Behind",
    "Calibrated",
    "Decision",
    "FirstOutput",
    "Gradient",
    "Group",
    "InnerAttack",
    "InputError",
    "Linf",
    "MinimumNorm",
    "Noise",
    "Norm",
    "Objective",
    "Probabilities",
    "Random",
    "RayS",
    "Restoration",
    "Run",
    "Search",
    "SearchResult",
    "SingleLogit",
    "Spec",
    "Square",
    "Subset",
    "Trial",
    "__version__",
    "away_from",
    "calibrate",
    "confident_elsewhere",
    "data",
    "defences",
    "dlr",
    "evaluate",
    "favour",
    "last_place",
    "load_data",
    "load_defence",
    "load_model",
    "log_odds",
    "margin",
    "models",
    "nearest",
    "preset",
    "presets",
    "threats",
    "toward",
]

_HOMES = {  # where each name is; a test holds this to the imports above, which type checkers read
    "drq.decision": ("Decision",),
    "drq.drq": ("DRQ",),
    "drq.errors": ("InputError",),
    "drq.evaluation.loop": ("evaluate",),
    "drq.evaluation.run": ("Run",),
    "drq.evaluation.spec": ("Group", "Spec", "Trial"),
    "drq.method.adapters": ("Behind", "FirstOutput", "Probabilities", "SingleLogit", "Subset"),
    "drq.method.calibration": ("Calibrated", "calibrate"),
    "drq.norms": ("L1", "L2", "Ball", "Linf", "Norm"),
    "drq.objectives": (
        *("Objective", "away_from", "confident_elsewhere", "dlr", "favour"),
        *("last_place", "log_odds", "margin", "toward"),
    ),
    "drq.presets": ("preset",),
    "drq.restoration": ("Restoration",),
    "drq.search.auto_step": ("AutoStep",),
    "drq.search.black_box": ("RayS", "Square"),
    "drq.search.gradient": ("Gradient", "Random"),
    "drq.search.loop": ("Search", "SearchResult"),
    "drq.search.minimum_norm": ("MinimumNorm", "nearest"),
    "drq.search.smoothing": ("InnerAttack", "Noise"),
    "drq.serving.defence_file": ("load_defence",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}
_LOADERS = {"load_data": "drq.data", "load_model": "drq.models"}  # each calls its own ``load``

sys.meta_path.append(OldNames())  # last, so that every other import is as quick as before


if not TYPE_CHECKING:  # type checkers would believe that there is every name

    def __getattr__(name: str) -> Any:
        """A name, loaded now and kept; modules of the package are names of it, too."""
        if name in RENAMED["drq"]:  # not kept, so that every use of the old name is told
            warn(f"drq.{name}", f"drq.{RENAMED['drq'][name]}")
            return __getattr__(RENAMED["drq"][name])
        if name in _LOADERS:
            found = import_module(_LOADERS[name]).load
        elif name in _HOME:
            found = getattr(import_module(_HOME[name]), name)
        elif not name.startswith("_") and find_spec(f"drq.{name}") is not None:
            found = import_module(f"drq.{name}")
        else:
            raise AttributeError(f"module 'drq' has no attribute {name!r}")
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
