"""Define threats to inputs: attacks, corruptions and spatial shifts. Each is called as ``threat(model, x, y)``."""

from drq.threats.adaptive import Differentiated, EndToEnd, Manipulation
from drq.threats.attacks import (
    APGD,
    PGD,
    APGDTargeted,
    LastPlace,
    PGDAttack,
    PGDNoise,
    RandomNoise,
    RaySAttack,
    SearchAttack,
    SquareAttack,
)
from drq.threats.corruptions import Corruption
from drq.threats.listing import Entry, list
from drq.threats.noise import GaussianNoise
from drq.threats.paper_ensemble import ensemble
from drq.threats.pursuit import Pursuit, Standing
from drq.threats.red_team import Chain, RedTeam
from drq.threats.spatial import PAPER_ROTATION, PAPER_TRANSLATION, Rotation, RotationTranslation, Spatial, Translation
from drq.threats.stronger import DecisionBased, Envelope, FewerSteps, Rivals, Sampling, ScoreBased, Transfer
from drq.threats.target import Target
from drq.threats.third_party import AutoAttack, Foolbox
from drq.threats.threat import Attack, BallThreat, Shifted, Threat
from drq.threats.through_views import AllViews, SingleViews, ViewRivals, ViewSampling

__all__ = [
    "APGD",
    "PAPER_ROTATION",
    "PAPER_TRANSLATION",
    "PGD",
    "APGDTargeted",
    "AllViews",
    "Attack",
    "AutoAttack",
    "BallThreat",
    "Chain",
    "Corruption",
    "DecisionBased",
    "Differentiated",
    "EndToEnd",
    "Entry",
    "Envelope",
    "FewerSteps",
    "Foolbox",
    "GaussianNoise",
    "LastPlace",
    "Manipulation",
    "PGDAttack",
    "PGDNoise",
    "Pursuit",
    "RandomNoise",
    "RaySAttack",
    "RedTeam",
    "Rivals",
    "Rotation",
    "RotationTranslation",
    "Sampling",
    "ScoreBased",
    "SearchAttack",
    "Shifted",
    "SingleViews",
    "Spatial",
    "SquareAttack",
    "Standing",
    "Target",
    "Threat",
    "Transfer",
    "Translation",
    "ViewRivals",
    "ViewSampling",
    "ensemble",
    "list",
]
