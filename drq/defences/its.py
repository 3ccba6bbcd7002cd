"""Define inverse transformation search (ITS), which answers as the model does at the one view that looks most familiar."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from drq.defences.over_views import ViewPeer
from drq.errors import require


@dataclass(frozen=True)
class InverseTransformation(ViewPeer):
    """Answer at the view with the lowest energy, or with the lowest entropy of the prediction (Schmidt and Stober).

    The energy is minus the logarithm of the sum of the exponentiated logits. Here views are tried all at once, and not one
    kind of change after the other.

    Args:
        views: of a sample, itself among them.
        by: "energy" or "entropy".
    """

    name: ClassVar[str] = "its"
    summary: ClassVar[str] = "the answer at the view with the lowest energy or entropy"

    by: Literal["energy", "entropy"] = "energy"

    def __post_init__(self) -> None:
        super().__post_init__()
        known = self.by in ("energy", "entropy")
        require(known, "by", "be 'energy' or 'entropy'", repr(self.by), "'energy' is the default")

    def scores(self, logits: Tensor) -> Tensor:
        """Return the log-probabilities at the chosen view."""
        likely = logits.log_softmax(2)
        cost = -logits.logsumexp(2) if self.by == "energy" else -(likely.exp() * likely).sum(2)
        chosen = cost.detach().argmin(0)
        return likely[chosen, torch.arange(logits.shape[1], device=logits.device)]
