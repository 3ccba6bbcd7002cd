"""Searches that need no gradient: Square asks for scores, RayS for labels alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from torch import Tensor

from drq.norms import Ball, unit_length
from drq.objectives import Objective, Score
from drq.rows import per_row
from drq.search.loop import Count, Observation, Search, SearchResult, State, check_steps, scored
from drq.seeds import generator


@dataclass(frozen=True)
class Queries(Search):
    """A search whose steps are queries; the part that both share."""

    queries: int

    def __post_init__(self) -> None:
        check_steps("queries", self.queries, "each is one evaluation of the model")

    @property
    def steps(self) -> int:
        return self.queries

    @property
    def in_step(self) -> bool:
        return True

    def shortened(self, steps: int) -> Self:
        return replace(self, queries=min(steps, self.queries))

    def observe(self, objective: Objective, ball: Ball, state: State, count: Count) -> Observation:
        return scored(objective, state)


@dataclass(frozen=True)
class Square(Queries):
    """Random search that changes one square of the image at a time and keeps what helps.

    The first proposal is vertical stripes; then squares, smaller and smaller, get one random sign a channel at full strength.
    Where samples are not images, random features take the place of squares. One draw belongs to each seed and step; all rows
    share it. Published for linf; in l2 and l1 a square of the radius' length is added and the whole projected.

    Reference: Andriushchenko et al., Square Attack, ECCV 2020.

    Args:
        queries: proposals.
        share: of the features in the first squares.
        seed: of the draws.
    """

    queries: int = 5000
    share: float = 0.8
    seed: int = 0

    halvings = (10, 50, 200, 1000, 2000, 4000, 6000, 8000)  # of 10 000 queries: when squares get half as large

    def move(self, observation: Observation, ball: Ball, state: State, best: SearchResult, count: Count) -> State:
        assert isinstance(count, int)
        lowest = torch.where(per_row(observation.score.value < best.value, state.point), state.point, best.point)
        draws, features = generator(self.seed, count), lowest.shape[1:]
        where = torch.ones(features, dtype=torch.bool) if count == 0 else self._patch(features, count, draws)
        shape = (*features[:-2], 1, features[-1] if count == 0 else 1) if len(features) > 1 else features
        signs = (torch.randint(2, shape, generator=draws) * 2 - 1).expand(features)
        where, signs = where.to(lowest.device), signs.to(lowest)
        block = unit_length(torch.where(where, signs, 0)[None], ball.norm) * per_row(ball.radius, lowest)
        proposal = torch.where(where, block, lowest - ball.center)
        return State(ball.project(ball.center + proposal))

    def _patch(self, features: torch.Size, count: int, draws: torch.Generator) -> Tensor:
        """Which features change at this step, as a mask."""
        age = count * 10_000 // self.queries
        share = self.share * 0.5 ** sum(age > halving for halving in self.halvings)
        if len(features) < 2:
            return torch.rand(features, generator=draws) <= max(share, 1 / max(1, math.prod(features)))
        height, width = features[-2:]
        side = max(1, min(height, width, round(math.sqrt(share * height * width))))
        top = int(torch.randint(height - side + 1, (), generator=draws))
        left = int(torch.randint(width - side + 1, (), generator=draws))
        mask = torch.zeros(features, dtype=torch.bool)
        mask[..., top : top + side, left : left + side] = True
        return mask


@dataclass(frozen=True)
class _Ray(State):
    """One direction a row, and what is known about how far along it the answer changes."""

    direction: Tensor  # +1 or -1 for every feature: the best so far
    radius: Tensor  # (N,) at which it changes the answer; before the first success the widest there is
    trial: Tensor  # the direction that is tried now
    low: Tensor  # (N,) along the trial: the answer holds
    high: Tensor  # (N,) it changes; infinite while that is not known
    asked: Tensor  # (N,) the radius of the present query
    turn: Tensor  # (N,) directions tried


@dataclass(frozen=True)
class RayS(Queries):
    """Decision-based search for the direction in which the answer changes soonest, among the corners of the linf ball.

    Signs are flipped block by block, in blocks half as large each time round. A flip is kept where the answer changes at the
    best radius so far; bisection then finds how much sooner it does. Deterministic. It reads nothing but whether the objective
    admits a point, looks beyond the ball, and brings back the nearest admitted point, the first query where there is none.

    Reference: Chen and Gu, RayS: a ray searching method for hard-label adversarial attack, KDD 2020.

    Args:
        queries: evaluations of the model.
        tolerance: at which bisection ends, as a share of the radius of the ball.
    """

    queries: int = 10_000
    tolerance: float = 0.02

    stays_in_ball: ClassVar[bool] = False

    def merit(self, score: Score, point: Tensor, ball: Ball) -> Tensor:
        return ball.norm.length(point - ball.center)

    def begin(self, point: Tensor, ball: Ball) -> State:
        ahead, unknown = torch.ones_like(point), torch.full_like(ball.radius, torch.inf)
        widest = torch.minimum(ball.farthest(), 100 * ball.radius)  # without a box no direction would ever end
        state = _Ray(point, ahead, widest, ahead, torch.zeros_like(widest), unknown, widest, torch.zeros_like(widest).long())
        return replace(state, point=_along(ball, state))

    def move(self, observation: Observation, ball: Ball, state: State, best: SearchResult, count: Count) -> State:
        assert isinstance(state, _Ray)
        changed, probing = observation.score.admitted, state.high == torch.inf
        low = torch.where(changed | probing, state.low, state.asked)
        high = torch.where(changed, state.asked, state.high)
        kept = high - low <= self.tolerance * ball.radius
        over = kept | (probing & ~changed)

        direction = torch.where(per_row(kept, state.trial), state.trial, state.direction)
        radius = torch.where(kept, high, state.radius)
        turn = state.turn + over
        trial = torch.where(per_row(over, direction), _flipped(direction, turn), state.trial)
        low, high = torch.where(over, 0, low), torch.where(over, torch.inf, high)
        ahead = _Ray(state.point, direction, radius, trial, low, high, torch.where(over, radius, (low + high) / 2), turn)
        return replace(ahead, point=_along(ball, ahead))


def _along(ball: Ball, ray: _Ray) -> Tensor:
    return ball.clip(ball.center + ball.thaw(per_row(ray.asked, ray.trial) * ray.trial))


def _flipped(direction: Tensor, turn: Tensor) -> Tensor:
    """The direction with one block of signs turned round: first all, then halves, quarters, ... and all over again."""
    flat = direction.flatten(1)
    features = flat.shape[1]
    rounds = (features - 1).bit_length() + 1  # until a block is a single feature
    turn = (turn[:, None] - 1) % (2**rounds - 1) + 1
    blocks = 2 ** (torch.frexp(turn.double()).exponent.long() - 1)  # the power of 2 below; a logarithm may round
    block = torch.arange(features, device=turn.device) * blocks // features
    return torch.where(block == turn - blocks, -flat, flat).reshape(direction.shape)
