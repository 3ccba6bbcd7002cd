"""Adversarial pNML: a sample moves towards every class before the model classifies it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from drq.defences.defence import Peer
from drq.defences.defended import Label, check_amount
from drq.defences.movements import Moved, carried, check_moves, descended
from drq.norms import Ball, Bounds, Linf, check_bounds
from drq.objectives import favour, log_odds


@dataclass(frozen=True)
class NormalisedLikelihood(Peer):
    """Adversarial pNML (Pesso et al. 2021): the probability of every class after a step towards it, divided by their sum.

    It is the nearest relative of DRQ: it explores by one step, and quantifies nothing. It costs ``steps + 1`` passes for
    every class.

    Args:
        steps: towards every class; the authors take one.
        step: length of a step, in linf.
        radius: of the linf ball that steps stay in.
        bounds: lowest and highest value of the input; None for no limit.
    """

    name: ClassVar[str] = "pnml"
    summary: ClassVar[str] = "the probability of every class after a step towards it, normalised"

    steps: int = 1
    step: float = 0.03
    radius: float = 0.03
    bounds: Bounds | None = (0.0, 1.0)

    def __post_init__(self) -> None:
        check_moves(self)
        check_amount("radius", self.radius, "0.03 is what the authors use for CIFAR-10")
        check_bounds(self.bounds)

    def around(self, model: nn.Module) -> Normalised:
        """The model that looks where the steps towards every class end."""
        return Normalised(model, self)


class Normalised(Moved):
    """A model behind :class:`NormalisedLikelihood`."""

    peer: NormalisedLikelihood

    def forward(self, x: Tensor) -> Tensor:
        """Log of the normalised probabilities (N, C)."""
        return logsigmoid(self.odds(x)).log_softmax(1)

    def decide(self, x: Tensor) -> Label:
        """The class with the highest log-odds: its probability is highest, too, but may be rounded to the 1 of others."""
        with torch.no_grad():
            return Label(self.odds(x).argmax(1))

    def odds(self, x: Tensor) -> Tensor:
        """Log-odds (N, C) of every class at the point that was moved towards it."""
        first = self._toward(x, 0)  # it tells how many classes there are
        odds = [log_odds(first, _all(x, 0))]
        odds += [log_odds(self._toward(x, label), _all(x, label)) for label in range(1, first.shape[1])]
        return torch.stack(odds, dim=1)

    def _toward(self, x: Tensor, label: int) -> Tensor:
        """The logits where the steps towards a class end."""
        peer = self.peer

        def move(start: Tensor) -> Tensor:
            ball = Ball(start, peer.radius, Linf(), peer.bounds)
            return descended(favour(self.model, _all(start, label)), start, peer.steps, peer.step, ball)

        logits: Tensor = self.model(carried(x, move, peer.bounds))
        return logits


def _all(x: Tensor, label: int) -> Tensor:
    """The same class for every sample."""
    return torch.full((len(x),), label, device=x.device)
