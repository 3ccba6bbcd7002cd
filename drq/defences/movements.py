"""Move samples by sign gradient steps before they are classified: what several peers have in common.

How far a sample was moved is held constant in the backward pass.
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


class MovedInput(Defended):
    """A model that classifies samples after they were moved."""

    peer: Any  # a peer with steps

    def shortened(self, steps: int) -> Self:
        """Return the same defence with at most this many steps."""
        return type(self)(self.model, replace(self.peer, steps=min(steps, self.peer.steps)))


def move_input(x: Tensor, move: Callable[[Tensor], Tensor], bounds: Bounds | None = None) -> Tensor:
    """Return the samples moved by ``move``; in the backward pass the movement counts as a constant."""
    with torch.inference_mode(False), torch.no_grad():
        moved = move(checked(x.detach(), bounds, None))
    return envelope(moved, x)


def sign_descent(objective: Objective, point: Tensor, steps: int, step: float, ball: Ball | None = None) -> Tensor:
    """Return the points where this many sign steps down the objective end, each step projected on the ball, if given."""
    for _ in range(steps):
        point = point - step * Linf().steepest(slope(objective, point)[1])
        point = point if ball is None else ball.project(point)
    return point


def check_moves(peer: Any) -> None:
    """Check the number of steps and their length."""
    check_steps("steps", peer.steps, "a step of length 0 moves nothing")
    check_amount("step", peer.step, "it is the length of a step, in linf")
