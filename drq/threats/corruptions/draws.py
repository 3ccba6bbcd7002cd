"""Draw random numbers that depend only on the seed and the sample."""

from __future__ import annotations

import torch
from torch import Tensor

from drq.seeds import generator


class Draws:
    """Streams of random numbers, one for each sample.

    They are drawn on the CPU in float64, so that every device and precision sees the same ones.
    """

    def __init__(self, seed: int, index: Tensor, kind: int, like: Tensor) -> None:
        self._streams = [generator(seed, position, kind) for position in index.tolist()]
        self._like = like

    def uniform(self, *shape: int) -> Tensor:
        """Return uniform numbers (N, *shape) in [0, 1); in float64, since float32 would round some of them to 1."""
        draws = torch.stack([torch.rand(shape, generator=each, dtype=torch.float64) for each in self._streams])
        return draws.to(self._like.device)

    def normal(self, *shape: int) -> Tensor:
        """Return standard normal numbers (N, *shape) in the precision of the images."""
        return torch.stack([torch.randn(shape, generator=each, dtype=torch.float64) for each in self._streams]).to(self._like)

    def numbers(self, count: int) -> list[list[float]]:
        """Return ``count`` uniform numbers in [0, 1) for each sample, as Python floats."""
        return [torch.rand(count, generator=each, dtype=torch.float64).tolist() for each in self._streams]
