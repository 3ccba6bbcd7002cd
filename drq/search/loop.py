"""The loop over the steps of a search, and the interface of the methods that propose points.

At every step a method observes a point (its score, perhaps its gradient) and moves to the next; the loop keeps the best admitted
point. Rows are independent problems, so results never depend on what else is in the batch; indexing any part selects rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from drq.errors import require
from drq.norms import Ball
from drq.objectives import Objective, Score
from drq.rows import Rows, in_order, per_row

if TYPE_CHECKING:
    from drq.search.gradient import Smoothing

Count = int | Tensor  # steps done: one number for all rows, or (N,) one for each


@dataclass(frozen=True)
class State(Rows):
    """Where each row stands, and what its method remembers between steps."""

    point: Tensor


@dataclass(frozen=True, eq=False)
class SearchResult(Rows):
    """The best point that a search has visited so far, and what that took: one entry a row."""

    point: Tensor  # the best admitted point visited; the start where there was none
    value: Tensor  # its objective, infinite where there was none
    merit: Tensor  # what "best" compares: the value, or for `nearest` the distance
    passes: Tensor  # evaluations of the model
    forward_passes: Tensor  # those of them that asked for no gradient
    stalled: Tensor  # steps whose gradient was zero, which moved nothing
    lowest: Tensor  # objective of the best point visited, admitted or not

    @property
    def admitted(self) -> Tensor:
        """Whether any visited point was admitted."""
        return self.merit < torch.inf

    @classmethod
    def empty(cls, start: Tensor) -> SearchResult:
        """The result before any point was visited."""
        unseen = torch.full((len(start),), torch.inf, dtype=start.dtype, device=start.device)
        count = torch.zeros(len(start), dtype=torch.long, device=start.device)
        return cls(start, unseen, unseen, count, count, count, unseen)


class Observation(NamedTuple):
    """The score at a point, its gradient where the method needs one, and what that took."""

    score: Score
    gradient: Tensor | None
    passes: int  # evaluations of the model
    forward_passes: int = 0  # those of them that asked for no gradient


class Search(ABC):
    """A method that proposes points. ``steps`` moves are made, so ``steps + 1`` points are visited, the start included."""

    stays_in_ball: ClassVar[bool] = True  # False for one that looks for the nearest point, wherever that is
    smooth: Smoothing | None = None  # what slopes are averaged over
    unroll: bool = False  # whether the result is differentiable through the steps
    checkpoint: bool = False  # whether an unrolled step is recomputed in the backward pass

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        require(not hasattr(cls, "look"), cls.__name__, "override observe", "look", "rename the method, as 0.2 did")

    @property
    @abstractmethod
    def steps(self) -> int:
        """How many moves are made."""

    @property
    def passes(self) -> int:
        """Evaluations of the model that a whole search takes for a row that does not leave early."""
        return self.passes_of(range(self.steps + 1))

    def passes_of(self, observations: range) -> int:
        """The same for some of its observations; the one after the last step takes no gradient."""
        gradients = len(range(observations.start, min(observations.stop, self.steps)))
        return len(observations) + gradients * (0 if self.smooth is None else self.smooth.passes)

    def shortened(self, steps: int) -> Self:
        """The same method with at most so many steps, where it knows how: cheaper, and close enough for an attacker."""
        return self

    def observe(self, objective: Objective, ball: Ball, state: State, count: Count) -> Observation:
        """The scores and gradients at the present points; a method may do without gradients, or average several."""
        if self.smooth is not None:
            return self.smooth.observe(objective, ball, state, count)
        return Observation(*slope(objective, state.point), passes=1)

    @abstractmethod
    def move(self, observation: Observation, ball: Ball, state: State, best: SearchResult, count: Count) -> State:
        """The next points; ``best`` does not contain ``observation`` yet, ``count`` is the number of steps done."""

    @property
    def in_step(self) -> bool:
        """Whether all rows must be at the same step, as where they share random draws; ``count`` is then a number."""
        return False

    def begin(self, point: Tensor, ball: Ball) -> State:
        """The first points, and an empty memory."""
        return State(point)

    def merit(self, score: Score, point: Tensor, ball: Ball) -> Tensor:
        """The number by which visited points are compared: the best has the smallest."""
        return score.value


@dataclass(frozen=True, eq=False)
class Progress(Rows):
    """How far a search has come, one problem a row."""

    state: State
    best: SearchResult


@dataclass(frozen=True)
class Problems(Rows):
    """What a method is asked to do, one problem a row.

    Args:
        method: how points are proposed.
        objective: what is minimised.
        ball: where.
        progress: how far each row has come.
        observations: numbers of those still to be made: all of 0 to ``method.steps``, or some where others decide who goes on.
        stop_below: (N,), rows whose best value falls below it stop at once, which saves their remaining steps.
    """

    method: Search
    objective: Objective
    ball: Ball
    progress: Progress
    observations: range
    stop_below: Tensor | None = None

    @classmethod
    def new(
        cls, method: Search, objective: Objective, ball: Ball, *, start: Tensor | None = None, stop_below: Tensor | None = None
    ) -> Problems:
        """From the centre of the ball, or ``start``, to the end."""
        point = ball.center if start is None else start
        progress = Progress(method.begin(point, ball), SearchResult.empty(point))
        return cls(method, objective, ball, progress, range(method.steps + 1), stop_below)

    def limited_to(self, observations: range) -> Problems:
        """The same problems, for these observations only."""
        return replace(self, observations=observations)

    def continued_from(self, progress: Progress) -> Problems:
        """The same problems, continued from there."""
        return replace(self, progress=progress)

    def __len__(self) -> int:
        return len(self.ball.center)


def search(
    method: Search, objective: Objective, ball: Ball, *, start: Tensor | None = None, stop_below: Tensor | None = None
) -> SearchResult:
    """Run ``method`` in ``ball`` and return the best admitted point that it visited; see :class:`Problems`."""
    if not len(ball.center):
        return SearchResult.empty(ball.center)
    with torch.inference_mode(False), torch.set_grad_enabled(_attached(ball) and method.unroll):
        problems = Problems.new(method, objective, ball, start=start, stop_below=stop_below)
    return solve(problems).best


def solve(
    problems: Problems, chunk: int | None = None, at_once: int | None = None, count: Callable[[int], None] | None = None
) -> Progress:
    """Make the remaining observations: at most ``chunk`` rows together, of which ``at_once`` go through the model; None for all.

    Only unrolled searches keep their graphs. ``count`` is told the passes of the model, observation by observation.
    """
    if at_once is not None:
        problems = replace(problems, objective=replace(problems.objective, at_once=at_once))
    if chunk is None or len(problems) <= chunk:
        return _solved(problems, count)
    parts = [_solved(problems[first : first + chunk], count) for first in range(0, len(problems), chunk)]
    return parts[0].joined(parts[1:])


def _solved(problems: Problems, count_passes: Callable[[int], None] | None) -> Progress:
    """The readable loop over steps; :mod:`drq.engine.slots` takes the same steps with rows that come and go.

    The best point is differentiable in the centre of the ball: by the envelope rule (the offset is held constant), or through
    all steps when the method is unrolled.
    """
    method, origin, attached = problems.method, problems.ball.center, _attached(problems.ball)
    rows = torch.arange(len(problems), device=origin.device)
    stopped: list[tuple[Tensor, Progress]] = []
    with torch.inference_mode(False), torch.set_grad_enabled(attached and method.unroll):
        step = partial(recompute, advance) if method.checkpoint and torch.is_grad_enabled() else advance
        for count in problems.observations:
            if not len(rows):
                break
            problems = problems.continued_from(step(method, problems.objective, problems.ball, problems.progress, count))
            if count_passes is not None:
                count_passes(len(rows) * method.passes_of(range(count, count + 1)))
            if problems.stop_below is not None and (stops := problems.progress.best.value < problems.stop_below).any():
                stopped.append((rows[stops], problems.progress[stops]))
                rows, problems = rows[~stops], problems[~stops]
        progress = in_order(*zip(*stopped, (rows, problems.progress), strict=True)) if stopped else problems.progress
    if attached and not method.unroll:
        progress = replace(progress, best=replace(progress.best, point=envelope(progress.best.point, origin)))
    return progress


def envelope(point: Tensor, origin: Tensor) -> Tensor:
    """The envelope rule: how far a search went is held constant, where it began is not, so its point moves as that does."""
    return point + (origin - origin.detach())


def advance(
    method: Search, objective: Objective, ball: Ball, progress: Progress, count: Count, compiled_update: Update | None = None
) -> Progress:
    """Observe the present points, keep the best, and move on; the point after the last step is only scored."""
    if isinstance(count, int) and count == method.steps:
        observation = scored(objective, progress.state)
    else:
        observation = method.observe(objective, ball, progress.state, count)
    return (compiled_update or update)(method, observation, ball, progress, count)


def update(method: Search, observation: Observation, ball: Ball, progress: Progress, count: Count) -> Progress:
    """The part of a step that does not need the model: keep the best point, and move on."""
    state, before = progress.state, progress.best
    best = _keep_best(before, observation, method.merit(observation.score, state.point, ball), state.point)
    if isinstance(count, Tensor):  # rows at their last observation do not move, so that a gradient of zero stops nothing there
        on_way = count < method.steps
        forward = torch.where(on_way, best.forward_passes, before.forward_passes + observation.passes)
        best = replace(best, stalled=torch.where(on_way, best.stalled, before.stalled), forward_passes=forward)
    elif count == method.steps:
        return Progress(state, best)
    return Progress(method.move(observation, ball, state, before, count), best)


Update = Callable[[Search, Observation, Ball, Progress, Count], Progress]


def scored(objective: Objective, state: State) -> Observation:
    """The scores at the present points, without gradients."""
    pieces = objective.pieces(len(state.point))
    if len(pieces) == 1:
        return Observation(objective(state.point), None, passes=1, forward_passes=1)
    parts = [objective[rows](state.point[rows]) for rows in pieces]
    return Observation(Score(*map(torch.cat, zip(*parts, strict=True))), None, passes=1, forward_passes=1)


def _attached(ball: Ball) -> bool:
    return torch.is_grad_enabled() and ball.center.requires_grad


def _keep_best(best: SearchResult, observation: Observation, merit: Tensor, point: Tensor) -> SearchResult:
    """The present point where it is admitted and strictly better than all before, else the best so far."""
    better = observation.score.admitted & (merit.detach() < best.merit)
    features = tuple(range(1, point.dim()))
    stalled = 0 if observation.gradient is None else (observation.gradient == 0).all(features).long()
    return SearchResult(
        point=torch.where(per_row(better, point), point, best.point),
        value=torch.where(better, observation.score.value, best.value),
        merit=torch.where(better, merit.detach(), best.merit),
        passes=best.passes + observation.passes,
        forward_passes=best.forward_passes + observation.forward_passes,
        stalled=best.stalled + stalled,
        lowest=torch.fmin(best.lowest, observation.score.value.detach()),  # not a number is not low
    )


recompute = partial(checkpoint, use_reentrant=False, preserve_rng_state=False)  # in the backward pass instead of storing


def slope(objective: Objective, point: Tensor) -> tuple[Score, Tensor]:
    """The score of every point and the gradient of its value: one forward and one backward pass.

    Where gradients are enabled, both can be differentiated once more.
    """
    pieces = objective.pieces(len(point))
    if len(pieces) > 1:  # each goes back before the next goes forward: what a pass stores stays small enough for caches
        scores, gradients = zip(*(slope(objective[rows], point[rows]) for rows in pieces), strict=True)
        return Score(*map(torch.cat, zip(*scores, strict=True))), torch.cat(gradients)
    recorded = torch.is_grad_enabled()
    with torch.enable_grad():
        if not (recorded and point.requires_grad):
            point = (point.clone() if point.is_inference() else point).detach().requires_grad_()
        score = objective(point)
        # The sum, never the mean: every row gets its own gradient, whatever the size of the batch.
        (gradient,) = torch.autograd.grad(score.value.sum(), point, create_graph=recorded)
    return score, gradient.nan_to_num(nan=0.0)  # one feature without a slope must not stop the others


def check_steps(name: str, steps: int, remedy: str = "a radius of 0 is what searches nothing") -> None:
    """A search makes at least one step."""
    check_count(name, steps, remedy, least=1)


def check_count(name: str, count: int, remedy: str, least: int = 0) -> None:
    """A whole number, not too small."""
    whole = isinstance(count, Integral) and not isinstance(count, bool) and count >= least
    require(whole, name, f"be a whole number of at least {least}", repr(count), remedy)
