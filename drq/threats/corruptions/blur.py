"""Implement blur: every value becomes an average over others."""

from __future__ import annotations

from math import ceil, cos, exp, radians, sin

import torch
from torch import Tensor

from drq.threats.corruptions.draws import Draws
from drq.threats.corruptions.resample import Fold, convolved, magnified, mirrored, nearest, padded

LEAST_HALF_WIDTH = 8  # least half width of the square on which a disk is drawn
NEGLIGIBLE = 1e-12  # smaller weights are skipped


def bell(sigma: float, reach: int) -> list[float]:
    """Return the weights of a Gaussian filter at -reach, ..., reach; a sigma of 0 changes nothing."""
    weights = [exp(-0.5 * (place / sigma) ** 2) if sigma > 0 else float(place == 0) for place in range(-reach, reach + 1)]
    return [weight / sum(weights) for weight in weights]


def gaussian_filter(x: Tensor, sigma: float, *, truncate: float = 4.0, fold: Fold = nearest) -> Tensor:
    """Smooth ``x`` (..., H, W), out to ``truncate`` standard deviations."""
    weights = bell(sigma, int(truncate * sigma + 0.5))
    return convolved(convolved(x, [[weight] for weight in weights], fold), [weights], fold)


def defocus_blur(x: Tensor, *, radius: float, smoothing: float) -> Tensor:
    """Average over a disk whose rim is smoothed."""
    return convolved(x, disk(radius, smoothing).tolist(), mirrored)


def disk(radius: float, smoothing: float) -> Tensor:
    """Return the kernel of a lens out of focus, as small as possible."""
    half = max(LEAST_HALF_WIDTH, ceil(radius))
    place = torch.arange(-half, half + 1, dtype=torch.float64)
    sharp = (place[:, None] ** 2 + place**2 <= radius**2).double()
    weights = bell(smoothing, 1 if radius <= LEAST_HALF_WIDTH else 2)
    kernel = convolved(convolved(sharp / sharp.sum(), [[weight] for weight in weights], mirrored), [weights], mirrored)
    kernel = kernel.where(kernel > NEGLIGIBLE, 0)
    used = int(kernel.sum(0).nonzero().max()) - half
    return kernel[half - used : half + used + 1, half - used : half + used + 1]


def glass_blur(x: Tensor, draws: Draws, *, sigma: float, reach: int, rounds: int) -> Tensor:
    """Smooth the image, displace it pixel by pixel, and smooth it again.

    One pixel after the other, from the lower right, takes the value that another one nearby has by then. The published script
    writes a swap, but its arrays are views of the same memory, so that the other pixel keeps its value; so it does here.
    """
    height, width = x.shape[-2:]
    steps = [(draws.uniform(2, height, width) * (2 * reach)).long() - reach for _ in range(rounds)]
    source = torch.tensor([_displaced(each, reach) for each in torch.stack(steps, 1).cpu()], device=x.device)
    smooth = gaussian_filter(x, sigma).flatten(2)
    moved = smooth.gather(2, source[:, None].expand(-1, x.shape[1], -1)).view_as(x)
    return gaussian_filter(moved, sigma)


def _displaced(steps: Tensor, reach: int) -> list[int]:
    """Return which pixel's value every pixel of a flattened image gets; ``steps`` is (rounds, 2, H, W)."""
    height, width = steps.shape[-2:]
    source = list(range(height * width))
    for down, right in steps:
        offset = (down * width + right).flatten().tolist()
        for row in range(height - reach, reach, -1):
            for place in range(row * width + width - reach, row * width + reach, -1):
                source[place] = source[place + offset[place]]
    return source


def motion_blur(x: Tensor, draws: Draws, *, radius: int, sigma: float) -> Tensor:
    """Average along a line within 45 degrees of the horizontal."""
    return streaked(x, radius, sigma, [90 * number - 45 for (number,) in draws.numbers(1)])


def streaked(x: Tensor, radius: int, sigma: float, angles: list[float]) -> Tensor:
    """Average every image of ``x`` (N, C, H, W) along its own direction, with the weights of half a Gaussian."""
    taps = 2 * radius + 1
    weights = bell(sigma, taps - 1)[taps - 1 :]
    weights = [weight / sum(weights) for weight in weights]
    height, width = x.shape[-2:]
    total, wide = torch.zeros_like(x), padded(x, taps, taps, nearest)
    for image, source, angle in zip(total, wide, angles, strict=True):
        for tap, weight in enumerate(weights):
            top, left = (taps + ceil(tap * along - 0.5) for along in (sin(radians(angle)), cos(radians(angle))))
            image += weight * source[:, top : top + height, left : left + width]
    return total


def zoom_blur(x: Tensor, *, stop: float, step: float) -> Tensor:
    """Average the image and its magnifications by 1, 1 + step, ... below ``stop``."""
    total, factors = x.clone(), torch.arange(1, stop, step, dtype=torch.float64).tolist()
    for factor in factors:
        total += magnified(x, factor)
    return total / (len(factors) + 1)
