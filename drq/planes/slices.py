"""Compute the slice that explains a decision: the plane through the input and the explored points of its two best classes."""

from __future__ import annotations

import torch
from torch import Tensor

from drq.decision import Decision
from drq.errors import require
from drq.planes.plane import Decider, Extent, Plane, through
from drq.seeds import generator
from drq.system.progress import ProgressOption

WIDTH = 1.6  # side of the slice, as a multiple of the largest distance between the three points
LEAST_DEPARTURE = 1e-6  # share of its length by which a direction must depart from the others


def sliced(robust: Decider, decision: Decision, pixels: int, progress: ProgressOption = False) -> Plane:
    """Compute the slice; for the arguments see :meth:`drq.DRQ.slice`."""
    u, v = directions(decision)
    assert decision.x is not None
    return through(robust, decision.x, u, v, _window(decision, u, v), pixels, clip=True, progress=progress)


def directions(decision: Decision) -> tuple[Tensor, Tensor]:
    """Return orthonormal directions from the input: u towards the winner's explored point, v towards what the runner-up's adds.

    In degenerate cases, where a point is the input itself, lies on the same line or does not exist, a random direction with a
    fixed seed replaces it.
    """
    require(len(decision) == 1, "decision", "be about one sample", len(decision), "decision[i : i + 1] is about one")
    shape, features = decision.points_of(decision.label)[0].shape[1:], _offsets(decision).shape[1]
    require(features > 1, "decision", "be about at least 2 features", features, "a line has no slices")
    orthonormal: list[Tensor] = []
    for number, offset in enumerate(_offsets(decision)):
        rest = _component_beyond(offset, orthonormal)
        if not float(rest.norm()) > LEAST_DEPARTURE * float(offset.norm()):  # true for NaN, too: a point that does not exist
            drawn = torch.randn(features, generator=generator(number), dtype=torch.float64)
            rest = _component_beyond(drawn, orthonormal)
        orthonormal.append(rest / rest.norm())
    u, v = (each.reshape(shape) for each in orthonormal)
    return u, v


def _offsets(decision: Decision) -> Tensor:
    """Return the offsets (2, D) from the input to the explored points of winner and runner-up, in float64 on the CPU."""
    points = [decision.points_of(label)[0] for label in (decision.label, decision.runner_up)]
    assert decision.x is not None
    return (torch.cat(points) - decision.x).flatten(1).double().cpu()


def _component_beyond(vector: Tensor, orthonormal: list[Tensor]) -> Tensor:
    """Return the component of a vector that is orthogonal to these; removed twice, to get rid of rounding errors."""
    for each in 2 * orthonormal:
        vector = vector - (vector @ each) * each
    return vector


def _window(decision: Decision, u: Tensor, v: Tensor) -> Extent:
    """Return a square around the three points with a margin; where all three coincide, it extends 1 to each side."""
    at = torch.cat([torch.zeros(1, 2, dtype=torch.float64), _offsets(decision).nan_to_num() @ torch.stack([u, v]).flatten(1).T])
    low, high = at.amin(0), at.amax(0)
    half = WIDTH * float((high - low).max()) / 2 or 1.0
    (left, bottom), (right, top) = (((low + high) / 2 + sign * half).tolist() for sign in (-1, 1))
    return left, right, bottom, top
