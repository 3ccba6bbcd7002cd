"""The defences of other authors that have a name in specs."""

from __future__ import annotations

from drq.defences.anti_adversary import AntiAdversary
from drq.defences.augmentation import Augmentation
from drq.defences.defence import Peer
from drq.defences.hedge import Hedge
from drq.defences.memo import Memo
from drq.defences.norm_adaptation import NormAdaptation
from drq.defences.normalised_likelihood import NormalisedLikelihood
from drq.defences.smoothing import Smoothing
from drq.defences.tent import Tent

PEERS: dict[str, type[Peer]] = {
    each.name: each for each in (Augmentation, Smoothing, NormalisedLikelihood, AntiAdversary, Hedge, NormAdaptation, Tent, Memo)
}
