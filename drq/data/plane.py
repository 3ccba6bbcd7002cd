"""Points of two Gaussians in the unit square: two features, so that all that DRQ does can be drawn (Figure 1 of the paper)."""

from __future__ import annotations

import torch
from torch import Tensor

from drq.data.dataset import Data, InMemory, check_view
from drq.data.known import BOTH, KnownData
from drq.data.places import DataRequest
from drq.seeds import generator

MEANS = ((0.35, 0.35), (0.65, 0.65))
DEVIATION = 0.15  # the best rule, a straight line, is right for about 92 points in 100
COUNTS = {"train": 200, "test": 1000}


def points(split: str) -> tuple[Tensor, Tensor]:
    """Points (N, 2) and the Gaussian that each is from (N,), always the same; one that leaves the square is drawn again."""
    draws, y = generator(tuple(COUNTS).index(split)), torch.arange(COUNTS[split]) % 2
    centre = torch.tensor(MEANS)[y]
    x = torch.full_like(centre, torch.nan)
    while (outside := ~((x >= 0) & (x <= 1)).all(1)).any():
        drawn = centre + DEVIATION * torch.randn(x.shape, generator=draws)
        x = torch.where(outside[:, None], drawn, x)
    return x, y


def load_gaussians(request: DataRequest) -> Data:
    """The points as a data set."""
    x, y = points(request.split)
    check_view(request.view, tuple(x.shape[1:]))
    return Data(request.name, InMemory(x, y), ("1", "2"))


GAUSSIANS = KnownData("1200 points of two Gaussians in the unit square", load_gaussians, BOTH, source="drawn at once")
