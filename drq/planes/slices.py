"""The slice of the input space that explains a decision: through the input and the explored points of its two best classes."""

from __future__ import annotations

import torch
from torch import Tensor

from drq.decision import Decision
from drq.errors import require
from drq.planes.plane import Decider, Extent, Plane, through
from drq.seeds import generator

ROOM = 1.6  # times the largest distance between the three points: what the slice shows around them
NOTHING = 1e-6  # share of its length by which a direction must depart from another one


def sliced(robust: Decider, decision: Decision, pixels: int) -> Plane:
    """The plane; :meth:`drq.DRQ.slice` says what the arguments are."""
    u, v = directions(decision)
    assert decision.x is not None
    return through(robust, decision.x, u, v, _window(decision, u, v), pixels, clip=True)


def directions(decision: Decision) -> tuple[Tensor, Tensor]:
    """Two orthogonal directions (...) of Euclidean length 1 from the input: u to the explored point of the winner, v to what
    that of the runner-up adds.

    One rule for all that is degenerate: where a direction adds nothing, since the point is the input itself, lies on the same
    line or does not exist, a random direction stands in for it, always the same one.
    """
    require(len(decision) == 1, "decision", "be about one sample", len(decision), "decision[i : i + 1] is about one")
    shape, features = decision.points_of(decision.label)[0].shape[1:], _offsets(decision).shape[1]
    require(features > 1, "decision", "be about at least 2 features", features, "a line has no slices")
    found: list[Tensor] = []
    for number, offset in enumerate(_offsets(decision)):
        rest = _beyond(offset, found)
        if not float(rest.norm()) > NOTHING * float(offset.norm()):  # nor where there is none, since NaN is not above anything
            drawn = torch.randn(features, generator=generator(number), dtype=torch.float64)
            rest = _beyond(drawn, found)
        found.append(rest / rest.norm())
    u, v = (each.reshape(shape) for each in found)
    return u, v


def _offsets(decision: Decision) -> Tensor:
    """(2, D) from the input to the explored points of the winner and of the runner-up, in float64 on the CPU."""
    points = [decision.points_of(label)[0] for label in (decision.label, decision.runner_up)]
    assert decision.x is not None
    return (torch.cat(points) - decision.x).flatten(1).double().cpu()


def _beyond(vector: Tensor, found: list[Tensor]) -> Tensor:
    """What a vector adds to orthogonal ones of length 1; twice, so that rounding leaves nothing of them."""
    for each in 2 * found:
        vector = vector - (vector @ each) * each
    return vector


def _window(decision: Decision, u: Tensor, v: Tensor) -> Extent:
    """A square around the three points, with room; 1 wide to all sides where they are one."""
    at = torch.cat([torch.zeros(1, 2, dtype=torch.float64), _offsets(decision).nan_to_num() @ torch.stack([u, v]).flatten(1).T])
    low, high = at.amin(0), at.amax(0)
    half = ROOM * float((high - low).max()) / 2 or 1.0
    (left, bottom), (right, top) = (((low + high) / 2 + sign * half).tolist() for sign in (-1, 1))
    return left, right, bottom, top
