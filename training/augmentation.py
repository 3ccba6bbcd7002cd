"""Random changes of training images, on whole tensors and on the device that they are on."""

from __future__ import annotations

from math import pi

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample, pad


def light(x: Tensor, draws: torch.Generator) -> Tensor:
    """Moved by up to 4 pixels and mirrored at will: what nearly all training on CIFAR does."""
    count, _, height, width = x.shape
    padded = pad(x, (4, 4, 4, 4))
    down, right = torch.randint(9, (2, count, 1), generator=draws, device=x.device)
    rows, columns = down + torch.arange(height, device=x.device), right + torch.arange(width, device=x.device)
    mirrored = torch.rand(count, 1, generator=draws, device=x.device) < 0.5
    columns = torch.where(mirrored, columns.flip(1), columns)
    each = torch.arange(count, device=x.device)[:, None, None]
    return padded[each, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def strong(x: Tensor, draws: torch.Generator) -> Tensor:
    """Also turned, scaled, recoloured, and with a square cut out.

    Brightness and contrast are among the corruptions of CIFAR-10-C: to a model trained so, those two are no unseen shift.
    """
    x = _colours(_turned(light(x, draws), draws), draws)
    return torch.where(_uniform(x, draws, 0, 1) < 0.5, _cut(x, draws), x)


def _uniform(x: Tensor, draws: torch.Generator, low: float, high: float) -> Tensor:
    """One number an image."""
    return low + (high - low) * torch.rand(len(x), 1, 1, 1, generator=draws, device=x.device)


def _turned(x: Tensor, draws: torch.Generator) -> Tensor:
    angle, scale = (_uniform(x, draws, *span).flatten() for span in ((-pi / 12, pi / 12), (0.8, 1.1)))
    cosine, sine, zero = scale * angle.cos(), scale * angle.sin(), torch.zeros_like(angle)
    matrix = torch.stack([torch.stack([cosine, -sine, zero], 1), torch.stack([sine, cosine, zero], 1)], 1)
    return grid_sample(x, affine_grid(matrix, list(x.shape), align_corners=False), align_corners=False)


def _colours(x: Tensor, draws: torch.Generator) -> Tensor:
    grey = x.mean(1, keepdim=True)
    x = grey + (x - grey) * _uniform(x, draws, 0.4, 1.6)
    middle = x.mean((1, 2, 3), keepdim=True)
    x = middle + (x - middle) * _uniform(x, draws, 0.5, 1.5)
    return (x * _uniform(x, draws, 0.6, 1.4)).clamp(0, 1)


def _cut(x: Tensor, draws: torch.Generator, side: int = 10) -> Tensor:
    inside = torch.ones_like(x[:, :1], dtype=torch.bool)
    for dimension, size in ((2, x.shape[2]), (3, x.shape[3])):
        first = torch.randint(size - side // 2, (len(x),), generator=draws, device=x.device)
        place = torch.arange(size, device=x.device) - first[:, None]
        inside &= ((place >= 0) & (place < side)).unsqueeze(1).unsqueeze(5 - dimension)
    return torch.where(inside, 0.5, x)
