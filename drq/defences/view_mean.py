"""Define the mean of the probabilities over declared views: test-time augmentation with the views of DRQ."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from drq.defences.over_views import ViewPeer


@dataclass(frozen=True)
class ViewMean(ViewPeer):
    """The class with the highest mean probability over the views."""

    name: ClassVar[str] = "view-mean"
    summary: ClassVar[str] = "the mean of the probabilities over declared views"

    def scores(self, logits: Tensor) -> Tensor:
        """Return the logarithms of the mean probabilities."""
        return logits.log_softmax(2).logsumexp(0) - math.log(len(logits))
