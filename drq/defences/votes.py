"""Average predictions over several views of a sample, augmented or noisy: what several peers have in common."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import replace
from typing import Any, Self

import torch
from torch import Tensor

from drq.defences.defended import Defended

TINY = 1e-6  # added to the share of votes, so that its logarithm is finite


class MultiView(Defended):
    """A model that averages over several views. Its scores are the logarithms of the mean probabilities, and differentiable."""

    peer: Any  # a peer with samples

    @abstractmethod
    def view(self, x: Tensor, number: int) -> Tensor:
        """Return the view of the samples with this number."""

    def view_logits(self, x: Tensor, number: int) -> Tensor:
        """Return the logits (N, C) of the view with this number."""
        logits: Tensor = self.model(self.view(x, number))
        return logits

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores (N, C)."""
        logarithms = [self.view_logits(x, number).log_softmax(1) for number in range(self.peer.samples)]
        return torch.stack(logarithms).logsumexp(0) - math.log(len(logarithms))

    def shortened(self, steps: int) -> Self:
        """Return the same defence with at most this many views, the first ones."""
        return type(self)(self.model, replace(self.peer, samples=min(steps, self.peer.samples)))
