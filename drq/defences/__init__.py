"""Define ways to answer with a given model, with a common interface, so that they can be compared."""

from collections.abc import Mapping

from drq import registry
from drq.defences.answers import Answers, answered
from drq.defences.anti_adversary import AntiAdversary
from drq.defences.augmentation import Augmentation
from drq.defences.defence import Custom, Defence, Peer, Quantified, Standard
from drq.defences.hedge import Hedge
from drq.defences.its import InverseTransformation
from drq.defences.learnt_gate import LearntGate
from drq.defences.memo import Memo
from drq.defences.norm_adaptation import NormAdaptation
from drq.defences.normalised_likelihood import NormalisedLikelihood
from drq.defences.smoothing import Smoothing
from drq.defences.tent import Tent
from drq.defences.view_mean import ViewMean
from drq.defences.zero import Zero

__all__ = [
    "PEERS",
    "Answers",
    "AntiAdversary",
    "Augmentation",
    "Custom",
    "Defence",
    "Hedge",
    "InverseTransformation",
    "LearntGate",
    "Memo",
    "NormAdaptation",
    "NormalisedLikelihood",
    "Peer",
    "Quantified",
    "Smoothing",
    "Standard",
    "Tent",
    "ViewMean",
    "Zero",
    "answered",
]

PEERS: Mapping[str, type[Peer]] = registry.PEERS  # the defences of other authors that have a name in specs
