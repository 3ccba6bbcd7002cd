"""Compress images as JPEG and decompress them, in torch: the result of saving an image with a low quality.

Follows the baseline codec of libjpeg as Pillow sets it up: the tables of ITU-T T.81, Annex K, scaled by the quality; chroma at
half the resolution both ways, interpolated when shown. Entropy coding loses nothing and is left out. Sums run in a fixed order,
so that rounding falls the same way in every batch.
"""

from __future__ import annotations

from math import cos, pi, sqrt

import torch
from torch import Tensor

from drq.threats.corruptions.resample import nearest

LUMINANCE_TABLE = (
    *(16, 11, 10, 16, 24, 40, 51, 61),
    *(12, 12, 14, 19, 26, 58, 60, 55),
    *(14, 13, 16, 24, 40, 57, 69, 56),
    *(14, 17, 22, 29, 51, 87, 80, 62),
    *(18, 22, 37, 56, 68, 109, 103, 77),
    *(24, 35, 55, 64, 81, 104, 113, 92),
    *(49, 64, 78, 87, 103, 121, 120, 101),
    *(72, 92, 95, 98, 112, 100, 103, 99),
)
CHROMINANCE_TABLE = (
    *(17, 18, 24, 47, 99, 99, 99, 99),
    *(18, 21, 26, 66, 99, 99, 99, 99),
    *(24, 26, 56, 99, 99, 99, 99, 99),
    *(47, 66, 99, 99, 99, 99, 99, 99),
    *(99,) * 32,
)
COSINES = [[(sqrt(0.5) if wave == 0 else 1.0) / 2 * cos((2 * k + 1) * wave * pi / 16) for k in range(8)] for wave in range(8)]
TIE = 1e-6  # values this close to a tie are rounded as ties, so that last bits do not matter


def jpeg_compression(x: Tensor, *, quality: int) -> Tensor:
    """Save images as JPEG of that quality and read them again, in steps of 1/255."""
    pixels = (255 * x.double()).round()
    if x.shape[1] == 1:
        return (_coded(pixels, LUMINANCE_TABLE, quality) / 255).to(x.dtype)
    luma, *chroma = _to_luma(*(pixels[:, channel, None] for channel in range(3)))
    luma = _coded(luma, LUMINANCE_TABLE, quality)
    chroma = [_enlarged(_coded(_halved(each), CHROMINANCE_TABLE, quality)) for each in chroma]
    height, width = x.shape[-2:]
    return (_to_colour(luma, *(each[..., :height, :width] for each in chroma)) / 255).to(x.dtype)


def scaled(table: tuple[int, ...], quality: int) -> Tensor:
    """Return the quantisation steps (8, 8) of coefficients, by libjpeg's rule for a quality from 1 to 100."""
    percent = 5000 // quality if quality < 50 else 200 - 2 * quality
    return torch.tensor([min(max((step * percent + 50) // 100, 1), 255) for step in table]).view(8, 8)


def _to_luma(red: Tensor, green: Tensor, blue: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    luma = 0.299 * red + 0.587 * green + 0.114 * blue
    return _rounded(luma), _rounded((blue - luma) / 1.772 + 128), _rounded((red - luma) / 1.402 + 128)


def _to_colour(luma: Tensor, blueness: Tensor, redness: Tensor) -> Tensor:
    red, blue = luma + 1.402 * (redness - 128), luma + 1.772 * (blueness - 128)
    green = luma - 0.344136 * (blueness - 128) - 0.714136 * (redness - 128)
    return _rounded(torch.cat([red, green, blue], 1))


def _rounded(values: Tensor) -> Tensor:
    """Round to whole numbers that fit in 8 bits."""
    return (values + 0.5 + TIE).floor().clamp(0, 255)


def _coded(plane: Tensor, table: tuple[int, ...], quality: int) -> Tensor:
    """Quantise the cosine coefficients of a plane (N, 1, H, W) in 8 x 8 blocks; the border is repeated to fill them."""
    height, width = plane.shape[-2:]
    down, across = (torch.arange(-(-side // 8) * 8, device=plane.device) for side in (height, width))
    filled = plane.index_select(-2, nearest(down, height)).index_select(-1, nearest(across, width)) - 128
    blocks = filled.view(len(plane), 1, len(down) // 8, 8, len(across) // 8, 8).transpose(3, 4)  # 8 x 8 last
    steps, forth = scaled(table, quality).to(plane), torch.tensor(COSINES).to(plane)
    waves = (8 * _product(_product(blocks, forth).mT, forth).mT).round() / 8
    levels = waves / steps
    kept = levels.sign() * (levels.abs() + 0.5 + TIE).floor() * steps
    shown = _product(_product(kept, forth.mT).mT, forth.mT).mT
    return _rounded(shown.transpose(3, 4).reshape(filled.shape)[..., :height, :width] + 128)


def _product(blocks: Tensor, matrix: Tensor) -> Tensor:
    """Return ``blocks @ matrix.T``, summed in a fixed order."""
    total = torch.zeros_like(blocks)
    for k in range(8):
        total += blocks[..., k, None] * matrix[:, k]
    return total


def _halved(plane: Tensor) -> Tensor:
    """Average over 2 x 2 pixels; odd sides repeat their border. Ties are rounded up and down in turn, as libjpeg does."""
    height, width = plane.shape[-2:]
    down, across = (torch.arange(side + side % 2, device=plane.device) for side in (height, width))
    even = plane.index_select(-2, nearest(down, height)).index_select(-1, nearest(across, width))
    total = even[..., ::2, ::2] + even[..., ::2, 1::2] + even[..., 1::2, ::2] + even[..., 1::2, 1::2]
    bias = 1 + torch.arange(total.shape[-1], device=plane.device) % 2
    return ((total + bias) / 4).floor()


def _enlarged(plane: Tensor) -> Tensor:
    """Double the size: three quarters of the nearest value and one quarter of the next, along both axes."""
    for dim in (-2, -1):
        place = torch.arange(plane.shape[dim], device=plane.device)
        before, after = (plane.index_select(dim, nearest(place + step, plane.shape[dim])) for step in (-1, 1))
        pair = torch.stack([0.75 * plane + 0.25 * before, 0.75 * plane + 0.25 * after], dim)
        plane = pair.flatten(dim - 1, dim)
    return _rounded(plane)
