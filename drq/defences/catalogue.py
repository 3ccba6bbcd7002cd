"""The defences of other authors that have a name in specs."""

from __future__ import annotations

from drq.defences.adaptation import Memo, NormAdaptation, Tent
from drq.defences.defence import Peer
from drq.defences.movements import AntiAdversary, Hedge, NormalisedLikelihood
from drq.defences.votes import Augmentation, Smoothing

PEERS: dict[str, type[Peer]] = {
    each.name: each for each in (Augmentation, Smoothing, NormalisedLikelihood, AntiAdversary, Hedge, NormAdaptation, Tent, Memo)
}
