"""Recognise what was likely meant otherwise: what is wrong for certain is refused, what may be intended is warned of."""

from __future__ import annotations

import sys
import warnings
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor

from drq.errors import require
from drq.norms import Space
from drq.objectives import Model

SUM, CERTAIN = 5e-3, 1e-6  # by which rounding moves the sum of probabilities, in bfloat16, and one of them beyond 0 or 1
WIDTHS, SHARE = 2, 0.1  # of the box: a radius of so many widths, and of such a share of the way across, was meant in other units
LIBRARIES = (str(Path(__file__).parents[1]), str(Path(torch.__file__).parent))  # frames of these are not the caller's


def check_batched(model: Model, x: Tensor) -> None:
    """What a model refuses is not one sample that it would take as a batch of one."""
    try:
        with torch.no_grad():
            logits = model(x[None])
    except Exception:  # whatever it is: then the batch is not what is missing
        return
    alone = isinstance(logits, Tensor) and logits.dim() == 2 and len(logits) == 1 and logits.shape[1] >= 2
    require(not alone, "x", "be a batch (N, ...)", f"one sample of shape {tuple(x.shape)}", "x[None] is a batch of one")


def warn_of_probabilities(model: Model, row: Tensor, logits: Tensor) -> None:
    """Logits are no probabilities already, of which another softmax would leave next to nothing."""
    again = logits
    with torch.no_grad(), suppress(Exception):  # one row may be so by chance; a model may refuse another
        again = model(0.9 * row) if _are_probabilities(logits) else logits
    if _are_probabilities(again):
        remedy = "leave out its softmax, or wrap it in drq.Probabilities, which takes logarithms"
        _warn(f"model should return logits, got probabilities, which sum to 1: {remedy}")


def _are_probabilities(logits: Tensor) -> bool:
    inside = (logits >= -CERTAIN) & (logits <= 1 + CERTAIN)
    return bool(inside.all() and ((logits.sum(1) - 1).abs() <= SUM).all())


def warn_of_radius(radius: object, space: Space, x: Tensor) -> None:
    """A radius is in the units of the inputs: a ball leaves most of their box outside."""
    if isinstance(radius, Tensor) or not isinstance(radius, int | float) or space.bounds is None or not len(x):
        return
    low, high = (torch.as_tensor(each) for each in space.bounds)
    width, across = float((high - low).max()), float(space.ball(x.detach(), torch.zeros(())).farthest().max())
    if radius > across > 0 or (radius >= WIDTHS * width and radius >= SHARE * across):
        grey = f", such as {radius:g}/255 for {radius:g} levels of grey in [0, 1]" if radius >= 1 >= width else ""
        found = f"{radius:g} where no input is farther away than {across:.3g} in {space.norm}"
        _warn(f"radius should be small beside the box of inputs, got {found}: it is in the units of x{grey}")


def _warn(message: str) -> None:
    """Warn where this package was called from."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(LIBRARIES):
        level, frame = level + 1, frame.f_back
    warnings.warn(f"drq: {message}", stacklevel=level)
