"""Answer from several declared views of a sample, as DRQ may: what several peers have in common."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor, nn

from drq.defences.defence import Peer
from drq.defences.defended import Defended
from drq.views import Views, as_views


@dataclass(frozen=True)
class ViewPeer(Peer):
    """A rule over views.

    Args:
        views: of a sample, itself among them, see :mod:`drq.views`; or text that describes them.
    """

    views: Views | str = "Rotation(90, 13)"

    def __post_init__(self) -> None:
        object.__setattr__(self, "views", as_views(self.views))

    def around(self, model: nn.Module) -> OverViews:
        """Return the model that looks at every view."""
        return OverViews(model, self)

    @abstractmethod
    def scores(self, logits: Tensor) -> Tensor:
        """Return the scores (N, C) that follow from logits at views (V, N, C)."""


class OverViews(Defended):
    """A model defended by a rule over views. Its scores are differentiable where the rule is."""

    peer: Any  # a ViewPeer

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores (N, C)."""
        self.peer.views.check(x)
        scores: Tensor = self.peer.scores(torch.stack([self.model(view(x)) for view in self.peer.views]))
        return scores

    def shortened(self, steps: int) -> Self:
        """Return the same defence: an attacker follows all views."""
        return type(self)(self.model, replace(self.peer))
