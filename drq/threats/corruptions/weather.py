"""Implement weather and light: snow, fog, brightness and contrast."""

from __future__ import annotations

import torch
from torch import Tensor

from drq.threats.corruptions.blur import streaked
from drq.threats.corruptions.draws import Draws
from drq.threats.corruptions.resample import magnified


def grey(x: Tensor) -> Tensor:
    """Return the luminance (..., 1, H, W) of ``x`` (..., C, H, W); a single channel is its own luminance."""
    if x.shape[-3] == 1:
        return x
    red, green, blue = x.unbind(-3)
    return (0.299 * red + 0.587 * green + 0.114 * blue).unsqueeze(-3)


def snow(
    x: Tensor,
    draws: Draws,
    *,
    mean: float,
    spread: float,
    zoom: float,
    threshold: float,
    radius: int,
    sigma: float,
    kept: float,
) -> Tensor:
    """Whiten the image and let two layers of flakes fall, one the other turned by half a circle."""
    flakes = magnified(mean + spread * draws.normal(1, *x.shape[-2:]), zoom)
    flakes = flakes.where(flakes >= threshold, 0).clamp(0, 1)
    flakes = streaked(flakes, radius, sigma, [90 * number - 135 for (number,) in draws.numbers(1)])
    pale = torch.maximum(x, 1.5 * grey(x) + 0.5)
    return kept * x + (1 - kept) * pale + flakes + flakes.flip(-2, -1)


def fog(x: Tensor, draws: Draws, *, strength: float, decay: float) -> Tensor:
    """Add a fractal haze, and darken as much as keeps the brightest value."""
    brightest = x.amax((1, 2, 3), keepdim=True)
    haze = plasma(draws, max(x.shape[-2:]), decay)[:, None, : x.shape[-2], : x.shape[-1]].to(x.dtype)
    return (x + strength * haze) * brightest / (brightest + strength)


def plasma(draws: Draws, side: int, decay: float) -> Tensor:
    """Return clouds (N, S, S) from 0 to 1 by the diamond-square rule on a torus; S is the next power of 2.

    Every round halves the spacing of the points: first the middle of each square becomes the mean of its corners plus noise, then
    the middle of each edge that of the four points around it. The noise shrinks by ``decay`` squared.
    """
    size = 1 << max(side - 1, 1).bit_length()
    cloud, reach = 0 * draws.uniform(1, 1), 1.0  # one point, the corner of the torus
    while cloud.shape[-1] < size:
        points = cloud.shape[-1]
        noise = reach * (2 * draws.uniform(3, points, points) - 1)
        right, below = cloud.roll(-1, 2), cloud.roll(-1, 1)
        middle = (cloud + right + below + right.roll(-1, 1)) / 4 + noise[:, 0]
        top = (cloud + right + middle + middle.roll(1, 1)) / 4 + noise[:, 1]
        side_left = (cloud + below + middle + middle.roll(1, 2)) / 4 + noise[:, 2]
        rows = torch.stack([torch.stack([cloud, top], 3).flatten(2), torch.stack([side_left, middle], 3).flatten(2)], 2)
        cloud, reach = rows.flatten(1, 2), reach / decay**2
    lowest, highest = cloud.amin((1, 2), keepdim=True), cloud.amax((1, 2), keepdim=True)
    return (cloud - lowest) / (highest - lowest)


def brightness(x: Tensor, *, rise: float) -> Tensor:
    """Raise the value of every colour, its largest channel, and keep hue and saturation: the channels grow in proportion."""
    value = x.amax(1, keepdim=True)
    raised = (value + rise).clamp(max=1)
    return torch.where(value > 0, x * (raised / value.where(value > 0, 1)), raised)


def contrast(x: Tensor, *, kept: float) -> Tensor:
    """Draw every channel towards its mean."""
    mean = torch.stack(
        [image.mean((1, 2), keepdim=True) for image in x]
    )  # one by one, so that the last bits do not depend on the batch
    return (x - mean) * kept + mean
