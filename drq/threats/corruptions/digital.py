"""Implement digital corruptions: elastic distortion and pixelation."""

from __future__ import annotations

import torch
from torch import Tensor

from drq.threats.corruptions.blur import gaussian_filter
from drq.threats.corruptions.draws import Draws
from drq.threats.corruptions.resample import at_points, doubled, mirrored


def elastic_transform(x: Tensor, draws: Draws, *, amplitude: float, sigma: float, corner: float) -> Tensor:
    """Move three corners at random, which tilts the image, then displace every pixel by smooth noise."""
    height, width = x.shape[-2:]
    side = min(height, width)
    tilt, noise = 2 * draws.uniform(3, 2) - 1, 2 * draws.uniform(2, height, width) - 1
    rows, columns = torch.meshgrid(*(torch.arange(length, device=x.device).double() for length in (height, width)), indexing="ij")
    if corner > 0:
        origin = _tilted(corner * side * tilt, rows, columns).to(x.dtype)
        x = at_points(x, origin[0], origin[1], mirrored)
    down, right = (amplitude * side * gaussian_filter(noise, sigma * side, truncate=3.0, fold=doubled)).unbind(1)
    return at_points(x, (rows + down).to(x.dtype), (columns + right).to(x.dtype), doubled)


def _tilted(shift: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Return where every pixel comes from (2, N, H, W), rows first, when three inner corners move by ``shift`` (N, 3, 2)."""
    height, width = rows.shape
    reach = max(min(height, width) // 3, 1)
    first, second, third = shift.unbind(1)  # of the corners at (1, 1), (1, -1) and (-1, -1), in units of the reach
    across, down = (second - third) / (2 * reach), (first - second) / (2 * reach)
    turn = torch.stack([across, down], 2) + torch.eye(2, dtype=shift.dtype, device=shift.device)
    start = (first + third) / 2  # of the centre
    column, row = columns - width // 2 - start[:, 0, None, None], rows - height // 2 - start[:, 1, None, None]
    a, b, c, d = turn.flatten(1)[..., None, None].unbind(1)
    size = a * d - b * c
    return torch.stack([(a * row - c * column) / size + height // 2, (d * column - b * row) / size + width // 2])


def pixelate(x: Tensor, *, fraction: float) -> Tensor:
    """Average over boxes, and show every box as one large pixel."""
    return _boxed(_boxed(x, fraction).mT, fraction).mT


def _boxed(x: Tensor, fraction: float) -> Tensor:
    """Divide the last axis into boxes: every pixel gets the mean of the box in which its centre lies."""
    length = x.shape[-1]
    count = max(int(length * fraction), 1)
    edges = [int(box * length / count + 0.5) for box in range(count + 1)]
    sums = torch.nn.functional.pad(x.double().cumsum(-1), (1, 0))[..., edges]
    means = sums.diff() / torch.tensor(edges, device=x.device).diff()
    return means[..., [int((pixel + 0.5) * count / length) for pixel in range(length)]].to(x.dtype)
