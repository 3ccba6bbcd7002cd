"""Define ZERO, which lets the most confident views vote (Farina et al. 2024)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from drq.defences.over_views import ViewPeer
from drq.errors import require


@dataclass(frozen=True)
class Zero(ViewPeer):
    """The class with most votes of those views whose predictions have the lowest entropy; a softmax of temperature zero.

    Among classes with equally many votes the mean probability of these views decides.

    Args:
        views: of a sample, itself among them.
        share: of the views that vote; at least one does.
    """

    name: ClassVar[str] = "zero"
    summary: ClassVar[str] = "votes of the most confident among declared views"

    share: float = 0.3

    def __post_init__(self) -> None:
        super().__post_init__()
        number = isinstance(self.share, Real) and not isinstance(self.share, bool)
        require(number and 0 < self.share <= 1, "share", "lie above 0, 1 at most", repr(self.share), "1 lets all views vote")

    def scores(self, logits: Tensor) -> Tensor:
        """Return the votes of each class, with the mean probability as a fraction of one."""
        likely = logits.log_softmax(2)
        entropy = -(likely.exp() * likely).sum(2).detach()
        voting = entropy.argsort(dim=0, stable=True)[: max(1, math.floor(self.share * len(logits)))]
        chosen = likely[voting, torch.arange(logits.shape[1], device=logits.device)]
        votes = one_hot(chosen.argmax(2), logits.shape[2]).sum(0)
        return votes.to(logits.dtype) + chosen.exp().mean(0) / 2
