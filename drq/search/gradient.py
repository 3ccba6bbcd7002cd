"""The two methods of the paper: steepest descent inside a ball, and random points of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Literal, Self

import torch
from torch import Tensor

from drq.errors import require
from drq.norms import Ball, unit_length
from drq.objectives import Objective
from drq.rows import per_row
from drq.search.loop import Count, Observation, Search, SearchResult, State, check_steps, scored, slope
from drq.seeds import generator

FEW = 2  # points of an average that is thinned


class Smoothing(ABC):
    """Replaces the gradient at a point by a weighted average over points near it.

    The average is that of cross-entropy gradients: the gradient of each log-odds weighted by 1 - f, normalised so that it
    survives saturation.
    """

    samples: int

    @property
    def thinned(self) -> Self:
        """The same over few points: cheaper, and close enough for an attacker."""
        return replace(self, samples=min(FEW, self.samples))  # type: ignore[type-var]  # subclasses are dataclasses

    @abstractmethod
    def neighbour(self, objective: Objective, ball: Ball, point: Tensor, draw: int) -> Tensor:
        """One point near every ``point``; ``draw`` tells the random draws of a search apart."""

    @property
    @abstractmethod
    def passes(self) -> int:
        """Evaluations of the model that one averaged gradient takes."""

    @property
    def forward_passes(self) -> int:
        """Those of them that ask for no gradient."""
        return 0

    def observe(self, objective: Objective, ball: Ball, state: State, count: Count) -> Observation:
        """The scores at the present points, and the averaged gradients around them."""
        assert isinstance(count, int)
        score, gradient = objective(state.point), self.gradient(objective, ball, state.point, count)
        return Observation(score, gradient, 1 + self.passes, 1 + self.forward_passes)

    def gradient(self, objective: Objective, ball: Ball, point: Tensor, count: int) -> Tensor:
        """The averaged gradient around every ``point`` at step ``count``."""
        gradients, log_weights = [], []
        for sample in range(self.samples):
            near = self.neighbour(objective, ball, point, count * self.samples + sample)
            score, gradient = slope(objective, near)
            gradients.append(gradient)
            log_weights.append(score.log_weight.detach())
        shares = torch.stack(log_weights).softmax(0)
        return torch.stack([per_row(share, g) * g for share, g in zip(shares, gradients, strict=True)]).sum(0)


@dataclass(frozen=True)
class Gradient(Search):
    """Projected steepest descent from the centre: PGD, when the objective is a classifier's.

    Args:
        steps: number of steps.
        step: length of a step, as a multiple of radius / steps.
        direction: "steepest" moves along the steepest direction of the norm (sign for linf); "raw" along the gradient itself,
            scaled to length 1 in the norm, which is differentiable where the sign is not.
        smooth: None, or what gradients are averaged over.
        unroll: keep the graph through all steps, so that the result is differentiable end to end.
        checkpoint: recompute the steps of an unrolled search in its backward pass instead of storing them.
    """

    steps: int = 20
    step: float = 2.5
    direction: Literal["steepest", "raw"] = "steepest"
    smooth: Smoothing | None = None
    unroll: bool = False
    checkpoint: bool = False

    def __post_init__(self) -> None:
        check_steps("steps", self.steps)
        require(self.step > 0, "step", "be above 0", self.step, "2.5 lets a search cross its ball")
        known = self.direction in ("steepest", "raw")
        require(known, "direction", "be 'steepest' or 'raw'", repr(self.direction), "'steepest' is the paper's")
        averaged = self.smooth is None or isinstance(self.smooth, Smoothing)
        require(averaged, "smooth", "be None, drq.Noise or drq.InnerAttack", repr(self.smooth), "for example drq.Noise(10)")
        sensible = self.unroll or not self.checkpoint
        require(sensible, "checkpoint", "go with unroll=True", self.checkpoint, "without unroll nothing is stored")

    def shortened(self, steps: int) -> Self:
        return replace(self, steps=min(steps, self.steps), smooth=None if self.smooth is None else self.smooth.thinned)

    def move(self, observation: Observation, ball: Ball, state: State, best: SearchResult, count: Count) -> State:
        assert observation.gradient is not None
        if self.direction == "raw":
            direction = -unit_length(ball.thaw(observation.gradient), ball.norm)
        else:
            direction = ball.steepest_descent(state.point, observation.gradient)
        length = per_row(self.step * ball.radius / self.steps, direction)
        return State(ball.project(torch.addcmul(state.point, length, direction)))

    @property
    def in_step(self) -> bool:
        return self.smooth is not None


@dataclass(frozen=True)
class Random(Search):
    """Uniform random points of the ball instead of a gradient search: the paper's ablation.

    Args:
        samples: points drawn; the centre is looked at as well.
        seed: one draw belongs to each seed and step; all rows share it.
    """

    samples: int = 20
    seed: int = 0

    def __post_init__(self) -> None:
        check_steps("samples", self.samples)

    @property
    def steps(self) -> int:
        return self.samples

    @property
    def in_step(self) -> bool:
        return True

    def shortened(self, steps: int) -> Self:
        return replace(self, samples=min(steps, self.samples))

    def observe(self, objective: Objective, ball: Ball, state: State, count: Count) -> Observation:
        return scored(objective, state)

    def move(self, observation: Observation, ball: Ball, state: State, best: SearchResult, count: Count) -> State:
        assert isinstance(count, int)
        return State(ball.sample(generator(self.seed, count)))
