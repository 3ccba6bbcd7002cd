"""Anti-Adversary (Alfarra et al. 2022), a test-time defence whose gain is known to vanish: the red team is tried on it."""

from typing import NamedTuple, Self

import torch
from torch import Tensor, nn

from drq.adapters import Wrapper
from drq.objectives import away_from
from drq.search import slope


class Label(NamedTuple):
    label: Tensor


class AntiAdversary(Wrapper):
    """Moves an input by a few sign steps towards the label that the model gives it, then classifies. Nothing is projected.

    The movement is held constant in the backward pass, as in the authors' implementation.
    """

    def __init__(self, model: nn.Module, steps: int = 2, step: float = 0.15) -> None:
        super().__init__(model)
        self.steps, self.step = steps, step

    def forward(self, x: Tensor) -> Tensor:
        own = away_from(self.model, self.model(x).argmax(1))
        moved = x.detach()
        for _ in range(self.steps):
            with torch.no_grad():
                moved = moved + self.step * slope(own, moved)[1].sign()
        return self.model(x + (moved - x).detach())

    def decide(self, x: Tensor) -> Label:
        with torch.no_grad():
            return Label(self(x).argmax(1))

    def shortened(self, steps: int) -> Self:
        return type(self)(self.model, min(steps, self.steps), self.step)
