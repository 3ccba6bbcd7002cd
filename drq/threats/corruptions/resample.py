"""Interpolate images between their pixels and extend them beyond the border.

Everything here is a sum of products in a fixed order, so that a sample's bits depend neither on its batch nor on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Fold = Callable[[Tensor, int], Tensor]  # a position anywhere and a length -> a position within the length


def nearest(position: Tensor, length: int) -> Tensor:
    """Repeat the border: a a | a b c | c c."""
    return position.clamp(0, length - 1)


def mirrored(position: Tensor, length: int) -> Tensor:
    """Mirror the image at its outermost pixels: c b | a b c | b a."""
    if length == 1:
        return torch.zeros_like(position)
    return (length - 1) - (position % (2 * length - 2) - (length - 1)).abs()


def doubled(position: Tensor, length: int) -> Tensor:
    """Mirror the image at its edge, with the outermost pixels twice: b a | a b c | c b."""
    around = position % (2 * length)
    return torch.minimum(around, 2 * length - 1 - around)


def padded(x: Tensor, rows: int, columns: int, fold: Fold) -> Tensor:
    """Extend ``x`` (..., H, W) by this many rows and columns on either side."""
    height, width = x.shape[-2:]
    down = fold(torch.arange(-rows, height + rows, device=x.device), height)
    across = fold(torch.arange(-columns, width + columns, device=x.device), width)
    return x.index_select(-2, down).index_select(-1, across)


def convolved(x: Tensor, kernel: Sequence[Sequence[float]], fold: Fold) -> Tensor:
    """Correlate ``x`` (..., H, W) with a kernel of odd sides."""
    (height, width), (down, across) = x.shape[-2:], (len(kernel) // 2, len(kernel[0]) // 2)
    wide, total = padded(x, down, across, fold), torch.zeros_like(x)
    for row, weights in enumerate(kernel):
        for column, weight in enumerate(weights):
            if weight != 0:
                total += weight * wide[..., row : row + height, column : column + width]
    return total


def on_lattice(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Interpolate ``x`` (..., H, W) at real rows (h,) and columns (w,), bilinear: (..., h, w)."""
    for dim, position in ((-2, rows), (-1, columns)):
        position = position.to(x.device, torch.float64).clamp(0, x.shape[dim] - 1)
        low = position.floor().long()
        share = (position - low).to(x.dtype)
        share = share[:, None] if dim == -2 else share
        x = x.index_select(dim, low) * (1 - share) + x.index_select(dim, nearest(low + 1, x.shape[dim])) * share
    return x


def at_points(x: Tensor, rows: Tensor, columns: Tensor, fold: Fold) -> Tensor:
    """Interpolate ``x`` (N, C, H, W) at real positions (N, H, W) for every pixel, bilinear."""
    height, width = x.shape[-2:]
    top, left = rows.floor(), columns.floor()
    down, right = (rows - top)[:, None], (columns - left)[:, None]

    def value(row: Tensor, column: Tensor) -> Tensor:
        place = fold(row.long(), height) * width + fold(column.long(), width)
        return x.flatten(2).gather(2, place.flatten(1)[:, None].expand(-1, x.shape[1], -1)).view_as(x)

    above = value(top, left) * (1 - right) + value(top, left + 1) * right
    below = value(top + 1, left) * (1 - right) + value(top + 1, left + 1) * right
    return above * (1 - down) + below * down


def magnified(x: Tensor, factor: float) -> Tensor:
    """Enlarge the centre of ``x`` (..., H, W) to the full size."""
    rows, columns = (_middle(side, factor) for side in x.shape[-2:])
    return on_lattice(x, rows, columns)


def _middle(side: int, factor: float) -> Tensor:
    """Return where the pixels of an enlarged axis come from: cropped to the centre, stretched end to end, trimmed."""
    crop = min(-int(-side // factor), side)
    stretched = round(crop * factor)
    step = (crop - 1) / max(stretched - 1, 1)
    first = (side - crop) // 2 + (stretched - side) // 2 * step
    return first + step * torch.arange(side, dtype=torch.float64)
