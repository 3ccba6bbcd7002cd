"""What peers share that look at a sample several times, at other views or in noise, and let the looks vote."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import replace
from typing import Any, Self

import torch
from torch import Tensor

from drq.defences.defended import Defended

TINY = 1e-6  # the share of a class that nobody voted for, so that its logarithm is finite


class Looks(Defended):
    """Several looks at a sample. The scores are the logarithms of the mean probabilities, and differentiable."""

    peer: Any  # one of those that look several times

    @abstractmethod
    def view(self, x: Tensor, number: int) -> Tensor:
        """What is seen at look ``number``, which is the same for all samples."""

    def look(self, x: Tensor, number: int) -> Tensor:
        """The logits (N, C) at look ``number``."""
        logits: Tensor = self.model(self.view(x, number))
        return logits

    def forward(self, x: Tensor) -> Tensor:
        """The scores (N, C)."""
        looks = [self.look(x, number).log_softmax(1) for number in range(self.peer.samples)]
        return torch.stack(looks).logsumexp(0) - math.log(len(looks))

    def shortened(self, steps: int) -> Self:
        """The same with at most so many looks, the first ones."""
        return type(self)(self.model, replace(self.peer, samples=min(steps, self.peer.samples)))
