"""How a point is searched: the only loop over steps, and the methods that propose its points.

A method looks at a point (its score, perhaps its gradient) and moves on; the loop remembers the best admitted point. Rows are
independent problems, so results never depend on what else is in the batch; indexing any part selects rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral
from typing import ClassVar, Literal, NamedTuple, Self

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from drq.errors import require
from drq.norms import Ball, unit_length
from drq.objectives import Objective, Score
from drq.rows import Rows, in_order, per_row
from drq.seeds import generator


@dataclass(frozen=True)
class State(Rows):
    """Where each row stands, and what its method remembers between steps."""

    point: Tensor


@dataclass(frozen=True, eq=False)
class Found(Rows):
    """What a search brings back, one entry a row."""

    point: Tensor  # the best admitted point visited; the start where there was none
    value: Tensor  # its objective, infinite where there was none
    merit: Tensor  # what "best" compared: the value, or for `nearest` the distance
    passes: Tensor  # evaluations of the model
    stalled: Tensor  # steps whose gradient was zero, which moved nothing

    @property
    def admitted(self) -> Tensor:
        """Whether any visited point was admitted."""
        return self.merit < torch.inf

    @classmethod
    def nothing(cls, start: Tensor) -> Found:
        """Before any point was visited."""
        unseen = torch.full((len(start),), torch.inf, dtype=start.dtype, device=start.device)
        count = torch.zeros(len(start), dtype=torch.long, device=start.device)
        return cls(start, unseen, unseen, count, count)


class Look(NamedTuple):
    """What a method saw at a point."""

    score: Score
    gradient: Tensor | None
    passes: int  # evaluations of the model that it took


class Search(ABC):
    """A method that proposes points. ``steps`` moves are made, so ``steps + 1`` points are visited, the start included."""

    stays_in_ball: ClassVar[bool] = True  # False for one that looks for the nearest point, wherever that is
    unroll: bool = False  # whether the result is differentiable through the steps
    checkpoint: bool = False  # whether an unrolled step is recomputed in the backward pass

    @property
    @abstractmethod
    def steps(self) -> int:
        """How many moves are made."""

    @property
    def passes(self) -> int:
        """Evaluations of the model that a whole search takes for a row that does not leave early."""
        return self.steps + 1

    def shortened(self, steps: int) -> Self:
        """The same method with at most so many steps, where it knows how: cheaper, and close enough for an attacker."""
        return self

    @abstractmethod
    def move(self, objective: Objective, ball: Ball, state: State, found: Found, count: int) -> tuple[Look, State]:
        """Look at the present points and move on; ``found`` is the best before them, ``count`` the steps done."""

    def begin(self, point: Tensor, ball: Ball) -> State:
        """The first points, and an empty memory."""
        return State(point)

    def merit(self, score: Score, point: Tensor, ball: Ball) -> Tensor:
        """What the best point has least of."""
        return score.value


def search(
    method: Search, objective: Objective, ball: Ball, *, start: Tensor | None = None, enough: Tensor | None = None
) -> Found:
    """Run ``method`` in ``ball`` and return the best admitted point that it visited.

    Its point is differentiable in the centre of the ball: by the envelope rule (the offset is held constant), or through all
    steps when the method is unrolled.

    Args:
        method: how points are proposed.
        objective: what is minimised.
        ball: where.
        start: (N, ...), first points other than the centre of the ball.
        enough: (N,), rows whose best value falls below it leave at once, which saves their remaining steps.
    """
    if not len(ball.center):
        return Found.nothing(ball.center)
    attached = torch.is_grad_enabled() and ball.center.requires_grad
    rows = torch.arange(len(ball.center), device=ball.center.device)
    left: list[tuple[Tensor, Found]] = []
    with torch.inference_mode(False), torch.set_grad_enabled(attached and method.unroll):
        move = partial(recompute, method.move) if method.checkpoint and torch.is_grad_enabled() else method.move
        origin = ball.center
        state = method.begin(origin if start is None else start, ball)
        found = Found.nothing(state.point)
        for count in range(method.steps):
            look, ahead = move(objective, ball, state, found, count)
            found = _remember(found, look, method.merit(look.score, state.point, ball), state.point)
            state = ahead
            if enough is not None and (leaving := found.value < enough).any():
                left.append((rows[leaving], found[leaving]))
                stay = ~leaving
                rows, enough, state, found = rows[stay], enough[stay], state[stay], found[stay]
                objective, ball = objective[stay], ball[stay]
                if not len(rows):
                    break
        else:  # the point after the last step is scored too
            score = objective(state.point)
            found = _remember(found, Look(score, None, 1), method.merit(score, state.point, ball), state.point)
        if left:
            places, parts = zip(*left, (rows, found), strict=True)
            found = in_order(places, parts)
    if attached and not method.unroll:  # the envelope rule: how far the search went is held constant, where it began is not
        found = replace(found, point=found.point + (origin - origin.detach()))
    return found


def _remember(found: Found, look: Look, merit: Tensor, point: Tensor) -> Found:
    """Keep the present point where it is admitted and strictly better than all before."""
    better = look.score.admitted & (merit.detach() < found.merit)
    stalled = 0 if look.gradient is None else (look.gradient == 0).flatten(1).all(1).long()
    return Found(
        point=torch.where(per_row(better, point), point, found.point),
        value=torch.where(better, look.score.value, found.value),
        merit=torch.where(better, merit.detach(), found.merit),
        passes=found.passes + look.passes,
        stalled=found.stalled + stalled,
    )


recompute = partial(checkpoint, use_reentrant=False, preserve_rng_state=False)  # in the backward pass instead of storing


def slope(objective: Objective, point: Tensor) -> tuple[Score, Tensor]:
    """The score of every point and the gradient of its value: one forward and one backward pass.

    Where gradients are enabled, both can be differentiated once more.
    """
    recorded = torch.is_grad_enabled()
    with torch.enable_grad():
        if not (recorded and point.requires_grad):
            point = (point.clone() if point.is_inference() else point).detach().requires_grad_()
        score = objective(point)
        # The sum, never the mean: every row gets its own gradient, whatever the size of the batch.
        (gradient,) = torch.autograd.grad(score.value.sum(), point, create_graph=recorded)
    return score, gradient.nan_to_num(nan=0.0)  # one feature without a slope must not stop the others


class Smoothing(ABC):
    """Replaces the gradient at a point by a weighted average over points near it.

    The average is that of cross-entropy gradients: the gradient of each log-odds weighted by 1 - f, normalised so that it
    survives saturation.
    """

    samples: int

    @abstractmethod
    def neighbour(self, objective: Objective, ball: Ball, point: Tensor, draw: int) -> Tensor:
        """One point near every ``point``; ``draw`` tells the random draws of a search apart."""

    @property
    @abstractmethod
    def passes(self) -> int:
        """Evaluations of the model that one averaged gradient takes."""

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


def check_steps(name: str, steps: int, remedy: str = "a radius of 0 is what searches nothing") -> None:
    """A search makes at least one step."""
    check_count(name, steps, remedy, least=1)


def check_count(name: str, count: int, remedy: str, least: int = 0) -> None:
    """A whole number, not too small."""
    whole = isinstance(count, Integral) and not isinstance(count, bool) and count >= least
    require(whole, name, f"be a whole number of at least {least}", repr(count), remedy)


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
        return replace(self, steps=min(steps, self.steps))

    def move(self, objective: Objective, ball: Ball, state: State, found: Found, count: int) -> tuple[Look, State]:
        if self.smooth is None:
            score, gradient = slope(objective, state.point)
        else:
            score, gradient = objective(state.point), self.smooth.gradient(objective, ball, state.point, count)
        if self.direction == "raw":
            direction = -unit_length(ball.thaw(gradient), ball.norm)
        else:
            direction = ball.steepest_descent(state.point, gradient)
        length = per_row(self.step * ball.radius / self.steps, direction)
        return Look(score, gradient, self._passes_a_step), State(ball.project(state.point + length * direction))

    @property
    def passes(self) -> int:
        return self.steps * self._passes_a_step + 1

    @property
    def _passes_a_step(self) -> int:
        return 1 + (0 if self.smooth is None else self.smooth.passes)


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

    def shortened(self, steps: int) -> Self:
        return replace(self, samples=min(steps, self.samples))

    def move(self, objective: Objective, ball: Ball, state: State, found: Found, count: int) -> tuple[Look, State]:
        return Look(objective(state.point), None, 1), State(ball.sample(generator(self.seed, count)))
