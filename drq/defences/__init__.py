"""Ways to answer with a given model, behind one call, so that they can be compared."""

from drq.defences.adaptation import Memo, NormAdaptation, Tent
from drq.defences.answers import Answers, answered
from drq.defences.catalogue import PEERS
from drq.defences.defence import Custom, Defence, Peer, Quantified, Standard
from drq.defences.movements import AntiAdversary, Hedge, NormalisedLikelihood
from drq.defences.votes import Augmentation, Smoothing

__all__ = [
    "PEERS",
    "Answers",
    "AntiAdversary",
    "Augmentation",
    "Custom",
    "Defence",
    "Hedge",
    "Memo",
    "NormAdaptation",
    "NormalisedLikelihood",
    "Peer",
    "Quantified",
    "Smoothing",
    "Standard",
    "Tent",
    "answered",
]
