"""Define adversarial pNML, which moves a sample towards every class before the model classifies it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from drq.defences.defence import Peer
from drq.defences.defended import Label, check_amount
from drq.defences.movements import MovedInput, check_moves, move_input, sign_descent
from drq.norms import Ball, Bounds, Linf, check_bounds
from drq.objectives import favour, log_odds


@dataclass(frozen=True)
class NormalisedLikelihood(Peer):
    """Adversarial pNML (Pesso et al. 2021): the probability of every class after a step towards it, divided by their sum.

    Of all peers it is closest to DRQ: it explores by one step, and quantifies nothing. It costs ``steps + 1`` passes for
    every class.

    Args:
        steps: the steps towards every class; the authors take one.
        step: the length of a step, in linf.
        radius: the radius of the linf ball that steps stay in.
        bounds: the lowest and the highest value of the input; None for no limit.
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
        """Return the model that classifies the points where the steps towards every class end."""
        return Normalised(model, self)


class Normalised(MovedInput):
    """A model defended by :class:`NormalisedLikelihood`."""

    peer: NormalisedLikelihood

    def forward(self, x: Tensor) -> Tensor:
        """Return the logarithms of the normalised probabilities (N, C)."""
        return logsigmoid(self.odds(x)).log_softmax(1)

    def decide(self, x: Tensor) -> Label:
        """Return the class with the highest log-odds, since several probabilities may be rounded to 1."""
        with torch.no_grad():
            return Label(self.odds(x).argmax(1))

    def odds(self, x: Tensor) -> Tensor:
        """Return the log-odds (N, C) of every class at the point that was moved towards it."""
        first = self._toward(x, 0)  # its shape has the number of classes
        odds = [log_odds(first, _all(x, 0))]
        odds += [log_odds(self._toward(x, label), _all(x, label)) for label in range(1, first.shape[1])]
        return torch.stack(odds, dim=1)

    def _toward(self, x: Tensor, label: int) -> Tensor:
        """Return the logits where the steps towards a class end."""
        peer = self.peer

        def move(start: Tensor) -> Tensor:
            ball = Ball(start, peer.radius, Linf(), peer.bounds)
            return sign_descent(favour(self.model, _all(start, label)), start, peer.steps, peer.step, ball)

        logits: Tensor = self.model(move_input(x, move, peer.bounds))
        return logits


def _all(x: Tensor, label: int) -> Tensor:
    """Return the same class for every sample."""
    return torch.full((len(x),), label, device=x.device)
