"""Define Gaussian noise on every feature of any input: images, tables, sound."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from numbers import Real

import torch
from torch import Tensor, nn

from drq.errors import require
from drq.norms import Ball, Bounds, check_bounds
from drq.objectives import Model
from drq.seeds import generator
from drq.threats.threat import Shifted, Threat


@dataclass(frozen=True)
class GaussianNoise(Threat):
    """Independent Gaussian noise on every feature; it looks at neither model nor labels.

    Args:
        deviation: the standard deviation, in the units of the input.
        seed: with the sample's index, the seed of the random numbers, whatever the deviation.
        bounds: the lowest and the highest value of the input, at which it is clipped; None for no limit.

    >>> GaussianNoise(0.1)(None, torch.full((2, 3), 0.5), None).shape
    torch.Size([2, 3])
    """

    deviation: float = 0.1
    seed: int = field(default=0, kw_only=True)
    bounds: Bounds | None = field(default=(0.0, 1.0), kw_only=True)

    def __post_init__(self) -> None:
        number = isinstance(self.deviation, Real) and not isinstance(self.deviation, bool)
        above = number and 0 <= self.deviation < math.inf
        require(above, "deviation", "be a number of at least 0", repr(self.deviation), "0.1 is visible in an image")
        whole = isinstance(self.seed, int) and not isinstance(self.seed, bool)
        require(whole, "seed", "be a whole number", repr(self.seed), "0 is the default")
        check_bounds(self.bounds)

    def shift(self, model: nn.Module | Model | None, x: Tensor, y: Tensor | None, index: Tensor) -> Shifted:
        draws = [torch.randn(x.shape[1:], generator=generator(self.seed, int(each)), dtype=torch.float64) for each in index]
        noisy = x + self.deviation * torch.stack(draws).to(x)
        return Shifted(Ball(x, 0.0, "linf", self.bounds).clip(noisy), torch.zeros(len(x), dtype=torch.long, device=x.device))
