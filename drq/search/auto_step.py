"""Gradient descent that chooses its own step size: the search of Auto-PGD."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from drq.norms import Ball
from drq.rows import per_row
from drq.search.loop import Count, Observation, Search, SearchResult, State, check_steps


@dataclass(frozen=True)
class AutoStepState(State):
    """Where each row stands, how far it steps, and whether that pays."""

    previous: Tensor  # the point before
    length: Tensor  # (N,) of a step
    value: Tensor  # (N,) at the point before
    best_point: Tensor
    best_gradient: Tensor
    best_value: Tensor  # (N,)
    milestone: Tensor  # (N,) the best value at the last checkpoint
    gains: Tensor  # (N,) steps since then that lowered the value
    halved: Tensor  # (N,) bool: whether the step was halved then


@dataclass(frozen=True)
class AutoStep(Search):
    """Projected steepest descent with momentum, whose step starts at the diameter and is halved where it stops paying.

    At checkpoints, closer and closer to each other, a row whose value fell in too few of its steps, or whose best value did not
    change since the last one, goes back to its best point with half the step.

    Reference: Croce and Hein, Reliable evaluation of adversarial robustness with an ensemble of diverse parameter-free attacks,
    ICML 2020.

    Args:
        steps: number of steps.
    """

    steps: int = 100

    momentum = 0.25  # share of the last movement in the next
    enough_gains = 0.75  # share of steps that must lower the value

    def __post_init__(self) -> None:
        check_steps("steps", self.steps)

    def shortened(self, steps: int) -> Self:
        return replace(self, steps=min(steps, self.steps))

    @property
    def checkpoints(self) -> dict[int, int]:
        """After how many steps the step size is reviewed, and how many steps the review looks back.

        >>> list(AutoStep(100).checkpoints)
        [22, 41, 57, 70, 80, 87, 93, 99]
        """
        shortest, shrink = max(int(0.06 * self.steps), 1), max(int(0.03 * self.steps), 1)
        window, at, reviews = max(int(0.22 * self.steps), 1), 0, {}
        while (at := at + window) < self.steps:
            reviews[at] = window
            window = max(window - shrink, shortest)
        return reviews

    def begin(self, point: Tensor, ball: Ball) -> AutoStepState:
        unseen, unmoved = torch.full_like(ball.radius, torch.inf), torch.zeros_like(point)
        gains, halved = torch.zeros_like(unseen), torch.ones_like(unseen, dtype=torch.bool)
        return AutoStepState(point, point, 2 * ball.radius, unseen, point, unmoved, unseen, unseen, gains, halved)

    def move(self, observation: Observation, ball: Ball, state: State, best: SearchResult, count: Count) -> State:
        assert isinstance(state, AutoStepState)
        assert observation.gradient is not None
        here = _observed(state, observation.score.value, observation.gradient)
        base, slope_there = state.point, observation.gradient
        window = self._window(count, like=here.gains)
        review = window > 0
        halve = review & ((here.gains < self.enough_gains * window) | (~here.halved & (here.milestone <= here.best_value)))
        base, slope_there = _where(halve, here.best_point, base), _where(halve, here.best_gradient, slope_there)
        here = replace(
            here,
            length=torch.where(halve, here.length / 2, here.length),
            milestone=torch.where(review, here.best_value, here.milestone),
            gains=torch.where(review, 0, here.gains),
            halved=torch.where(review, halve, here.halved),
        )
        ahead = ball.project(base + per_row(here.length, base) * ball.steepest_descent(base, slope_there))
        carried = ball.project(base + (1 - self.momentum) * (ahead - base) + self.momentum * (base - state.previous))
        first = state.value == torch.inf  # nothing was seen before: there is no movement to carry on
        return replace(here, point=_where(first, ahead, carried), previous=base)

    def _window(self, count: Count, like: Tensor) -> Tensor:
        """How many steps the review after ``count`` steps looks back; 0 where there is none."""
        if isinstance(count, int):
            return torch.full_like(like, self.checkpoints.get(count, 0))
        windows = torch.zeros_like(like)
        for at, window in self.checkpoints.items():
            windows = torch.where(count == at, window, windows)
        return windows


def _observed(state: AutoStepState, value: Tensor, gradient: Tensor) -> AutoStepState:
    """The state with what was observed at its point; the first point has none before it to gain upon."""
    lower = value < state.best_value
    return replace(
        state,
        value=value,
        best_point=_where(lower, state.point, state.best_point),
        best_gradient=_where(lower, gradient, state.best_gradient),
        best_value=torch.where(lower, value, state.best_value),
        gains=state.gains + ((value < state.value) & (state.value < torch.inf)),
    )


def _where(rows: Tensor, yes: Tensor, no: Tensor) -> Tensor:
    return torch.where(per_row(rows, yes), yes, no)
