"""Batch norm fitted to the samples that are asked, one or several."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from drq.defences.adaptation import GROUPED, check_norms, check_source, mixed_norms
from drq.defences.defence import Peer
from drq.defences.defended import Defended
from drq.search.loop import check_count


@dataclass(frozen=True)
class NormAdaptation(Peer):
    """Batch norm by the statistics of the test batch (Li et al. 2017), mixed with those of training (Schneider et al. 2020).

    Mean and variance are (source * those of training + n * those of the batch) / (source + n) in a batch of n samples, layer by
    layer. The variance of the batch is the biased one, as in training. One pass a sample.

    Args:
        source: for how many samples the statistics of training count; 0 for the batch alone, infinity for the model as it is.
        batch: samples of one batch at most, in the order given; 1 fits every sample to itself, whatever it comes with.
    """

    name: ClassVar[str] = "bn-adapt"
    summary: ClassVar[str] = "batch-norm statistics of the test batch, mixed with those of training (Schneider et al. 2020)"

    source: float = 16.0
    batch: int = 200

    def __post_init__(self) -> None:
        check_source(self.source)
        check_count("batch", self.batch, GROUPED, least=1)

    @property
    def needs_batch(self) -> bool:
        """Unless every sample is fitted to itself."""
        return self.batch > 1

    def around(self, model: nn.Module) -> nn.Module:
        """The model with other statistics."""
        check_norms(model, self.name)
        return NormAdapted(model, self)


class NormAdapted(Defended):
    """A model with the statistics of :class:`NormAdaptation`."""

    model: nn.Module
    peer: NormAdaptation

    def forward(self, x: Tensor) -> Tensor:
        """Scores (N, C), batch by batch; samples that are fitted to themselves go through the model together."""
        if not self.peer.needs_batch:
            return self._batch(x, 1)
        return torch.cat([self._batch(part, len(part)) for part in torch.split(x, self.peer.batch)])

    def _batch(self, x: Tensor, fitted_to: int) -> Tensor:
        with mixed_norms(self.model, fitted_to / (self.peer.source + fitted_to), each=fitted_to == 1):
            scores: Tensor = self.model(x)
        return scores
