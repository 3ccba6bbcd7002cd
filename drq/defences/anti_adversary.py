"""Define Anti-Adversary, which moves a sample towards its own class before the model classifies it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from drq.defences.defence import Peer
from drq.defences.defended import without_range_warning
from drq.defences.movements import MovedInput, check_moves, move_input, sign_descent
from drq.objectives import favour


@dataclass(frozen=True)
class AntiAdversary(Peer):
    """Anti-Adversary (Alfarra et al., AAAI 2022): a few steps towards the label that the model gives, then its answer there.

    Nothing is projected, neither on a ball nor on a box. It costs ``steps + 2`` passes.

    Args:
        steps: the steps towards the label.
        step: the length of a step, in linf.
    """

    name: ClassVar[str] = "anti-adversary"
    summary: ClassVar[str] = "the answer after a few steps towards the model's own label"

    steps: int = 2
    step: float = 0.15

    def __post_init__(self) -> None:
        check_moves(self)

    def around(self, model: nn.Module) -> AntiAdversarial:
        """Return the model that classifies the points where the steps end."""
        return AntiAdversarial(model, self)


class AntiAdversarial(MovedInput):
    """A model defended by :class:`AntiAdversary`."""

    peer: AntiAdversary

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (N, C) where the steps end."""
        model = without_range_warning(self.model)

        def move(start: Tensor) -> Tensor:
            own = favour(model, self.model(start).argmax(1))
            return sign_descent(own, start, self.peer.steps, self.peer.step)

        return model(move_input(x, move))
