"""Decision Region Quantification: more reliable predictions from any differentiable classifier, at test time."""

from drq import data, defences, models, presets, threats
from drq.data import load as load_data
from drq.decision import Decision
from drq.drq import DRQ
from drq.errors import InputError
from drq.evaluation.loop import evaluate
from drq.evaluation.run import Run
from drq.evaluation.spec import Group, Spec, Trial
from drq.method.adapters import Behind, FirstOutput, SingleLogit, Subset
from drq.method.calibration import Calibrated, calibrate
from drq.models import load as load_model
from drq.norms import L1, L2, Ball, Linf, Norm
from drq.objectives import Objective, away_from, confident_elsewhere, dlr, favour, last_place, log_odds, margin, toward
from drq.presets import preset
from drq.restoration import Restoration
from drq.search.auto_step import AutoStep
from drq.search.black_box import RayS, Square
from drq.search.gradient import Gradient, Random
from drq.search.loop import Found, Search
from drq.search.minimum_norm import MinimumNorm, nearest
from drq.search.smoothing import InnerAttack, Noise
from drq.version import __version__

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
    "Found",
    "Gradient",
    "Group",
    "InnerAttack",
    "InputError",
    "Linf",
    "MinimumNorm",
    "Noise",
    "Norm",
    "Objective",
    "Random",
    "RayS",
    "Restoration",
    "Run",
    "Search",
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
