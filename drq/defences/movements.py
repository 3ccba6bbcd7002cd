"""What peers share that move a sample before they classify it.

Their steps are signs of gradients. How far a sample was moved is held constant in the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

import torch
from torch import Tensor

from drq.defences.defended import Defended, check_amount
from drq.method.execution import checked
from drq.norms import Ball, Bounds, Linf
from drq.objectives import Objective
from drq.search.loop import check_steps, envelope, slope


class Moved(Defended):
    """A model that looks at samples after they were moved."""

    peer: Any  # one of those that take steps

    def shortened(self, steps: int) -> Self:
        """The same with at most so many steps."""
        return type(self)(self.model, replace(self.peer, steps=min(steps, self.peer.steps)))


def carried(x: Tensor, move: Callable[[Tensor], Tensor], bounds: Bounds | None = None) -> Tensor:
    """Where ``move`` brings the samples; to a derivative it is as if they all moved by a constant."""
    with torch.inference_mode(False), torch.no_grad():
        moved = move(checked(x.detach(), bounds, None))
    return envelope(moved, x)


def descended(objective: Objective, point: Tensor, steps: int, step: float, ball: Ball | None = None) -> Tensor:
    """Where so many sign steps down the objective end, each projected on the ball, if there is one."""
    for _ in range(steps):
        point = point - step * Linf().steepest(slope(objective, point)[1])
        point = point if ball is None else ball.project(point)
    return point


def check_moves(peer: Any) -> None:
    """Steps that move."""
    check_steps("steps", peer.steps, "a step of length 0 moves nothing")
    check_amount("step", peer.step, "it is the length of a step, in linf")
