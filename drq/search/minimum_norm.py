"""The Fast Minimum-Norm attack: the nearest point at which any objective is at most 0."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from drq.norms import L2, Ball, Bounds, Norm, unit_length
from drq.objectives import Objective, Score
from drq.rows import per_row
from drq.search.loop import Count, Observation, Search, SearchResult, State, check_steps, search, slope


@dataclass(frozen=True)
class _Sized(State):
    """A point, the radius of the ball that it was projected on, and the largest radius that makes sense inside the box."""

    radius: Tensor
    limit: Tensor


@dataclass(frozen=True)
class MinimumNorm(Search):
    r"""The Fast Minimum-Norm attack: the nearest point to the centre at which the objective is at most 0.

    The ball shrinks by a share :math:`\gamma` after a success and grows after a failure; before the first success its radius is
    the first-order distance to the boundary. The step is a share :math:`\eta` of the Euclidean length of the present
    perturbation (or of its first-order estimate), not of 1, so the search does not depend on the scale of the input; in a box
    it follows the edges. docs/method.md lists what differs from the published attack, and why.

    Reference: Pintor et al., Fast minimum-norm adversarial attacks through adaptive norm constraints, NeurIPS 2021.
    """

    steps: int = 100

    stays_in_ball: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_steps("steps", self.steps)

    def begin(self, point: Tensor, ball: Ball) -> State:
        return _Sized(point, torch.full_like(ball.radius, torch.inf), ball.farthest())

    def merit(self, score: Score, point: Tensor, ball: Ball) -> Tensor:
        return ball.norm.length(point - ball.center)

    def observe(self, objective: Objective, ball: Ball, state: State, count: Count) -> Observation:
        score, gradient = slope(objective, state.point)
        return Observation(score, torch.where(ball.movable(state.point, gradient), gradient, 0), passes=1)

    def move(self, observation: Observation, ball: Ball, state: State, best: SearchResult, count: Count) -> State:
        assert isinstance(state, _Sized)
        assert observation.gradient is not None
        score, gradient = observation.score, observation.gradient
        perturbation = state.point - ball.center
        distance = ball.norm.length(perturbation)
        closest = torch.where(score.admitted, torch.minimum(best.merit, distance), best.merit)
        progress = (ball.radius.new_full((1,), count) if isinstance(count, int) else count.to(ball.radius)) / self.steps
        gamma, eta = _cosine(progress, 0.05, 0.001), _cosine(progress, 1.5, 0.01)

        # A rounding error short of the boundary would stay short for ever, hence 1 + 1e-6.
        ahead = _first_order(score.value, ball.norm.dual_length(gradient))
        boundary = (1 + 1e-6) * (distance + ahead)
        missed = torch.where(closest < torch.inf, state.radius * (1 + gamma), boundary)
        radius = torch.where(score.admitted, torch.minimum(state.radius * (1 - gamma), closest), missed)
        radius = torch.minimum(radius, state.limit)

        euclidean = L2()  # the step is Euclidean in every norm: the projection gives it the norm's shape
        if ball.norm != euclidean:
            distance, ahead = euclidean.length(perturbation), _first_order(score.value, euclidean.dual_length(gradient))
        length = eta * torch.maximum(distance, ahead)

        # The ball pulls features back from the edge of the box, and where their scales differ the search may go round in
        # circles. A row that found nothing by half-time goes straight for the boundary, without a ball.
        lost = (closest == torch.inf) & (2 * progress >= 1)
        radius, length = torch.where(lost, torch.inf, radius), torch.where(lost, (1 + 1e-6) * ahead, length)
        point = replace(ball, radius=radius).project(state.point - per_row(length, gradient) * unit_length(gradient, euclidean))
        return _Sized(point, radius, state.limit)


def _first_order(value: Tensor, slope_length: Tensor) -> Tensor:
    """The distance at which a linear function with this value and slope is 0; 0 where it is flat."""
    flat = slope_length == 0
    return torch.where(flat, 0, value.abs() / torch.where(flat, 1, slope_length))


def _cosine(progress: Tensor, first: float, last: float) -> Tensor:
    return last + (first - last) * (1 + torch.cos(math.pi * progress)) / 2


def nearest(
    objective: Objective,
    center: Tensor,
    norm: str | Norm,
    *,
    steps: int = 100,
    bounds: Bounds | None = (0.0, 1.0),
    frozen: Tensor | None = None,
) -> SearchResult:
    """The nearest point to ``center`` at which ``objective`` admits, by :class:`MinimumNorm`; its ``merit`` is the distance.

    >>> model = torch.nn.Linear(2, 2, bias=False)
    >>> _ = model.weight.data.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    >>> from drq.objectives import confident_elsewhere
    >>> x, label = torch.tensor([[0.8, 0.2]]), torch.tensor([0])
    >>> nearest(confident_elsewhere(model, label, confidence=0), x, "linf").merit
    tensor([0.3000])
    """
    return search(MinimumNorm(steps), objective, Ball(center, torch.inf, norm, bounds, frozen))
