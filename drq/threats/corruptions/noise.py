"""Implement noise corruptions, which change every value independently."""

from __future__ import annotations

import torch
from torch import Tensor

from drq.threats.corruptions.draws import Draws


def gaussian_noise(x: Tensor, draws: Draws, *, scale: float) -> Tensor:
    """Add normal noise of standard deviation ``scale``."""
    return x + scale * draws.normal(*x.shape[1:])


def shot_noise(x: Tensor, draws: Draws, *, photons: float) -> Tensor:
    """Count photons: Poisson of mean ``photons * x``, divided by ``photons``."""
    counts = poisson_quantile(draws.uniform(*x.shape[1:]), photons * x.double())
    return (counts / photons).to(x.dtype)


def impulse_noise(x: Tensor, draws: Draws, *, amount: float) -> Tensor:
    """Set a share ``amount`` of the values to 0 or 1, with equal chances."""
    struck, extreme = draws.uniform(*x.shape[1:]) < amount, draws.uniform(*x.shape[1:]) < 0.5
    return torch.where(struck, extreme.to(x.dtype), x)


def poisson_quantile(probability: Tensor, rate: Tensor) -> Tensor:
    """Return the smallest count that a Poisson variable of that rate does not exceed with that probability.

    Inverting the distribution turns one uniform number into noise of every strength, which a sampler does not. A normal guess,
    its skew corrected, is off by a few counts at most; the distribution itself, an incomplete gamma function, settles the rest.
    """
    normal: Tensor = torch.special.ndtri(probability.clamp(1e-16, 1 - 1e-16))
    count = (rate + rate.sqrt() * normal + (normal**2 - 1) / 6).floor().clamp(min=0).flatten()
    chance, mean = probability.flatten(), rate.flatten()
    unsettled = everywhere = torch.arange(len(count), device=count.device)
    while len(unsettled := unsettled[_at_most(count[unsettled], mean[unsettled]) < chance[unsettled]]):
        count[unsettled] += 1
    unsettled = everywhere
    while len(unsettled := unsettled[_at_most(count[unsettled] - 1, mean[unsettled]) >= chance[unsettled]]):
        count[unsettled] -= 1
    return count.view_as(rate)


def _at_most(count: Tensor, rate: Tensor) -> Tensor:
    """Return the probability of at most ``count`` events: 1 at rate 0, and below every probability for a count below 0."""
    known: Tensor = torch.special.gammaincc((count + 1).clamp(min=1), rate)
    return known.where(count >= 0, -1)
