"""Restore contrast and fine detail of a picture, which weather, lenses and sensors take away."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import conv2d, pad

from drq.errors import require

LEAST = 1e-3  # contrast, and share of detail, below which a picture is taken to have none that could be scaled up
MOST = 3.0  # times which detail is scaled up at most: further up there is nothing but rounding and noise


@dataclass(frozen=True)
class Restoration:
    """Stretch every channel to its full range, then scale fine detail to the share of contrast that it has in clear pictures.

    Fog and low contrast narrow a channel, blur takes detail away, noise adds some: both statistics are known of clear pictures,
    and a single picture tells its own. Differentiable, so that an attacker can follow it: ``drq.DRQ(model, front=Restoration())``
    has no masked gradients. Stretching makes perturbations of dull pictures larger: under attack it takes robustness away.

    Args:
        detail: standard deviation of what a 3 x 3 blur takes away, relative to that of the picture. It depends on the size of
            pictures: :meth:`like` measures it. None leaves detail as it is.

    >>> dull = torch.rand(1, 3, 32, 32) / 4 + 0.5
    >>> clear = Restoration()(dull)
    >>> bool(clear.std() > 2 * dull.std())
    True
    """

    detail: float | None = 0.25

    def __post_init__(self) -> None:
        number = self.detail is None or (isinstance(self.detail, int | float) and 0 < self.detail < math.inf)
        remedy = "0.25 suits 32 x 32 pixels; Restoration.like measures it"
        require(number, "detail", "be None or a number above 0", repr(self.detail), remedy)

    @classmethod
    def like(cls, x: Tensor) -> Restoration:
        """For pictures such as the clear ones ``x`` (N, C, H, W); some dozens are enough, without labels."""
        with torch.no_grad():
            return cls(float(_share(_stretched(_checked(x))).median()))

    def __call__(self, x: Tensor) -> Tensor:
        """The pictures (N, C, H, W) in [0, 1], restored."""
        clear = _stretched(_checked(x))
        if self.detail is None:
            return clear
        scale = (self.detail / _share(clear).clamp(min=LEAST)).clamp(max=MOST)
        return (clear + (scale - 1) * (clear - blurred(clear))).clamp(0, 1)


def _checked(x: Tensor) -> Tensor:
    fits = isinstance(x, Tensor) and x.dim() == 4 and min(x.shape[2:]) >= 2 and x.is_floating_point()
    what = f"shape {tuple(x.shape)} of {x.dtype}" if isinstance(x, Tensor) else type(x).__name__
    remedy = "other inputs have no contrast to restore: leave front out"
    if isinstance(x, Tensor) and x.dim() == 3:
        remedy = "x[None] is a batch of one picture"
    require(fits, "x", "be pictures (N, C, H, W) in [0, 1]", what, remedy)
    return x


def _stretched(x: Tensor) -> Tensor:
    """Each channel from 0 to 1; one without contrast stays as it is."""
    low, high = x.amin((2, 3), keepdim=True), x.amax((2, 3), keepdim=True)
    return torch.where(high - low > LEAST, (x - low) / (high - low).clamp(min=LEAST), x)


def blurred(x: Tensor) -> Tensor:
    """Each channel, blurred by a binomial 3 x 3 kernel."""
    line = torch.tensor([0.25, 0.5, 0.25], dtype=x.dtype, device=x.device)
    kernel = (line[:, None] * line).expand(x.shape[1], 1, 3, 3)
    return conv2d(pad(x, (1, 1, 1, 1), "reflect"), kernel, groups=x.shape[1])


def _share(x: Tensor) -> Tensor:
    """(N, 1, 1, 1) the contrast of what a blur takes away, relative to the whole."""
    whole, detail = (_contrast(each) for each in (x, x - blurred(x)))
    return detail / whole.clamp(min=LEAST)


def _contrast(x: Tensor) -> Tensor:
    """(N, 1, 1, 1) the standard deviation, with a slope of 0 where there is none."""
    variance = (x - x.mean((1, 2, 3), keepdim=True)).square().mean((1, 2, 3), keepdim=True)
    return (variance + 1e-12).sqrt()
