"""Define the adaptation of batch norm's statistics to test samples, one or several at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from drq.defences.adaptation import BATCH_REMEDY, check_norms, check_source, mixed_statistics
from drq.defences.defence import Peer
from drq.defences.defended import Defended
from drq.search.loop import check_count


@dataclass(frozen=True)
class NormAdaptation(Peer):
    """Batch norm by the statistics of the test batch (Li et al. 2017), mixed with those of training (Schneider et al. 2020).

    Mean and variance are (source * those of training + n * those of the batch) / (source + n) in a batch of n samples, layer by
    layer. The variance of the batch is the biased one, as in training. One pass a sample.

    Args:
        source: the weight of the training statistics, in samples; 0 for the batch alone, infinity for the model as it is.
        batch: the most samples of a batch, in the order given; 1 adapts to every sample by itself.
    """

    name: ClassVar[str] = "bn-adapt"
    summary: ClassVar[str] = "batch-norm statistics of the test batch, mixed with those of training (Schneider et al. 2020)"

    source: float = 16.0
    batch: int = 200

    def __post_init__(self) -> None:
        check_source(self.source)
        check_count("batch", self.batch, BATCH_REMEDY, least=1)

    @property
    def needs_batch(self) -> bool:
        """Whether batch norm is adapted to several samples together."""
        return self.batch > 1

    def around(self, model: nn.Module) -> nn.Module:
        """Return the model with adapted statistics."""
        check_norms(model, self.name)
        return NormAdapted(model, self)


class NormAdapted(Defended):
    """A model defended by :class:`NormAdaptation`."""

    model: nn.Module
    peer: NormAdaptation

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores (N, C), batch by batch; with statistics for each sample, all samples run together."""
        if not self.peer.needs_batch:
            return self._batch(x, 1)
        return torch.cat([self._batch(part, len(part)) for part in torch.split(x, self.peer.batch)])

    def _batch(self, x: Tensor, fitted_to: int) -> Tensor:
        with mixed_statistics(self.model, fitted_to / (self.peer.source + fitted_to), each=fitted_to == 1):
            scores: Tensor = self.model(x)
        return scores
