"""Anti-Adversary: a sample moves towards its own class before the model classifies it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from drq.defences.defence import Peer
from drq.defences.defended import out_of_range
from drq.defences.movements import Moved, carried, check_moves, descended
from drq.objectives import favour


@dataclass(frozen=True)
class AntiAdversary(Peer):
    """Anti-Adversary (Alfarra et al., AAAI 2022): a few steps towards the label that the model gives, then its answer there.

    Nothing is projected, neither on a ball nor on a box. It costs ``steps + 2`` passes.

    Args:
        steps: towards the label.
        step: length of a step, in linf.
    """

    name: ClassVar[str] = "anti-adversary"
    summary: ClassVar[str] = "the answer after a few steps towards the model's own label"

    steps: int = 2
    step: float = 0.15

    def __post_init__(self) -> None:
        check_moves(self)

    def around(self, model: nn.Module) -> AntiAdversarial:
        """The model that looks where the steps end."""
        return AntiAdversarial(model, self)


class AntiAdversarial(Moved):
    """A model behind :class:`AntiAdversary`."""

    peer: AntiAdversary

    def forward(self, x: Tensor) -> Tensor:
        """The logits (N, C) where the steps end."""
        look = out_of_range(self.model)

        def move(start: Tensor) -> Tensor:
            own = favour(look, self.model(start).argmax(1))
            return descended(own, start, self.peer.steps, self.peer.step)

        return look(carried(x, move))
