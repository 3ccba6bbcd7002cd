"""How a point is searched: what a method is, and the loop over its steps.

A method looks at a point (its score, perhaps its gradient) and moves on; the loop remembers the best admitted point. Rows are
independent problems, so results never depend on what else is in the batch; indexing any part selects rows.
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
class Found(Rows):
    """What a search brings back, one entry a row."""

    point: Tensor  # the best admitted point visited; the start where there was none
    value: Tensor  # its objective, infinite where there was none
    merit: Tensor  # what "best" compared: the value, or for `nearest` the distance
    passes: Tensor  # evaluations of the model
    stalled: Tensor  # steps whose gradient was zero, which moved nothing
    lowest: Tensor  # objective of the best point visited, admitted or not

    @property
    def admitted(self) -> Tensor:
        """Whether any visited point was admitted."""
        return self.merit < torch.inf

    @classmethod
    def nothing(cls, start: Tensor) -> Found:
        """Before any point was visited."""
        unseen = torch.full((len(start),), torch.inf, dtype=start.dtype, device=start.device)
        count = torch.zeros(len(start), dtype=torch.long, device=start.device)
        return cls(start, unseen, unseen, count, count, unseen)


class Look(NamedTuple):
    """What a method saw at a point."""

    score: Score
    gradient: Tensor | None
    passes: int  # evaluations of the model that it took


class Search(ABC):
    """A method that proposes points. ``steps`` moves are made, so ``steps + 1`` points are visited, the start included."""

    stays_in_ball: ClassVar[bool] = True  # False for one that looks for the nearest point, wherever that is
    smooth: Smoothing | None = None  # what slopes are averaged over
    unroll: bool = False  # whether the result is differentiable through the steps
    checkpoint: bool = False  # whether an unrolled step is recomputed in the backward pass

    @property
    @abstractmethod
    def steps(self) -> int:
        """How many moves are made."""

    @property
    def passes(self) -> int:
        """Evaluations of the model that a whole search takes for a row that does not leave early."""
        return self.steps * (1 if self.smooth is None else 1 + self.smooth.passes) + 1

    def shortened(self, steps: int) -> Self:
        """The same method with at most so many steps, where it knows how: cheaper, and close enough for an attacker."""
        return self

    def look(self, objective: Objective, ball: Ball, state: State, count: Count) -> Look:
        """Look at the present points: their scores and slopes, unless a method makes do without slopes, or wants more."""
        if self.smooth is not None:
            return self.smooth.look(objective, ball, state, count)
        return Look(*slope(objective, state.point), passes=1)

    @abstractmethod
    def move(self, look: Look, ball: Ball, state: State, found: Found, count: Count) -> State:
        """Move on from what was seen; ``found`` is the best before that, ``count`` the steps done."""

    @property
    def in_step(self) -> bool:
        """Whether all rows must be at the same step, as where they share random draws; ``count`` is then a number."""
        return False

    def begin(self, point: Tensor, ball: Ball) -> State:
        """The first points, and an empty memory."""
        return State(point)

    def merit(self, score: Score, point: Tensor, ball: Ball) -> Tensor:
        """What the best point has least of."""
        return score.value


@dataclass(frozen=True, eq=False)
class Going(Rows):
    """A search under way, one problem a row."""

    state: State
    found: Found


@dataclass(frozen=True)
class Problems:
    """What a method is asked to do, one problem a row: indexing selects rows.

    Args:
        method: how points are proposed.
        objective: what is minimised.
        ball: where.
        going: how far each has come.
        looks: the looks that are due: all ``method.steps + 1`` of them, or some where others decide who goes on.
        enough: (N,), rows whose best value falls below it leave at once, which saves their remaining steps.
    """

    method: Search
    objective: Objective
    ball: Ball
    going: Going
    looks: range
    enough: Tensor | None = None

    @classmethod
    def new(
        cls, method: Search, objective: Objective, ball: Ball, *, start: Tensor | None = None, enough: Tensor | None = None
    ) -> Problems:
        """From the centre of the ball, or ``start``, to the end."""
        point = ball.center if start is None else start
        going = Going(method.begin(point, ball), Found.nothing(point))
        return cls(method, objective, ball, going, range(method.steps + 1), enough)

    def due(self, looks: range) -> Problems:
        """The same, for so many looks."""
        return replace(self, looks=looks)

    def resumed(self, going: Going) -> Problems:
        """The same, further on."""
        return replace(self, going=going)

    def __len__(self) -> int:
        return len(self.ball.center)

    def __getitem__(self, rows: Tensor | slice) -> Problems:
        parts = {name: getattr(self, name)[rows] for name in ("objective", "ball", "going")}
        return replace(self, enough=None if self.enough is None else self.enough[rows], **parts)


def search(
    method: Search, objective: Objective, ball: Ball, *, start: Tensor | None = None, enough: Tensor | None = None
) -> Found:
    """Run ``method`` in ``ball`` and return the best admitted point that it visited; see :class:`Problems`."""
    if not len(ball.center):
        return Found.nothing(ball.center)
    with torch.inference_mode(False), torch.set_grad_enabled(_attached(ball) and method.unroll):
        problems = Problems.new(method, objective, ball, start=start, enough=enough)
    return solve(problems).found


def solve(problems: Problems, chunk: int | None = None, at_once: int | None = None) -> Going:
    """Take the looks that are due: at most ``chunk`` rows together, of which ``at_once`` go through the model; None for all.

    Only unrolled searches keep their graphs.
    """
    if at_once is not None:
        problems = replace(problems, objective=replace(problems.objective, at_once=at_once))
    if chunk is None or len(problems) <= chunk:
        return _solved(problems)
    parts = [_solved(problems[first : first + chunk]) for first in range(0, len(problems), chunk)]
    return parts[0].joined(parts[1:])


def _solved(problems: Problems) -> Going:
    """This is the readable loop; :mod:`drq.engine.slots` takes the same steps with rows that come and go.

    The best point is differentiable in the centre of the ball: by the envelope rule (the offset is held constant), or through
    all steps when the method is unrolled.
    """
    method, origin, attached = problems.method, problems.ball.center, _attached(problems.ball)
    rows = torch.arange(len(problems), device=origin.device)
    left: list[tuple[Tensor, Going]] = []
    with torch.inference_mode(False), torch.set_grad_enabled(attached and method.unroll):
        take = partial(recompute, advance) if method.checkpoint and torch.is_grad_enabled() else advance
        for count in problems.looks:
            if not len(rows):
                break
            problems = problems.resumed(take(method, problems.objective, problems.ball, problems.going, count))
            if problems.enough is not None and (leaving := problems.going.found.value < problems.enough).any():
                left.append((rows[leaving], problems.going[leaving]))
                rows, problems = rows[~leaving], problems[~leaving]
        going = in_order(*zip(*left, (rows, problems.going), strict=True)) if left else problems.going
    if attached and not method.unroll:
        going = replace(going, found=replace(going.found, point=envelope(going.found.point, origin)))
    return going


def envelope(point: Tensor, origin: Tensor) -> Tensor:
    """The envelope rule: how far a search went is held constant, where it began is not, so its point moves as that does."""
    return point + (origin - origin.detach())


def advance(method: Search, objective: Objective, ball: Ball, going: Going, count: Count, then: Follow | None = None) -> Going:
    """Look at the present points, remember the best, and move on; the point after the last step is only scored.

    ``then`` may be a compiled :func:`follow`.
    """
    if isinstance(count, int) and count == method.steps:
        look = scored(objective, going.state)
    else:
        look = method.look(objective, ball, going.state, count)
    return (then or follow)(method, look, ball, going, count)


def follow(method: Search, look: Look, ball: Ball, going: Going, count: Count) -> Going:
    """What comes of a look, which the model has no part in."""
    state, found = going.state, going.found
    known = _remember(found, look, method.merit(look.score, state.point, ball), state.point)
    if isinstance(count, Tensor):  # rows that are at their last look do not move: a slope of zero stops nothing
        known = replace(known, stalled=torch.where(count < method.steps, known.stalled, found.stalled))
    elif count == method.steps:
        return Going(state, known)
    return Going(method.move(look, ball, state, found, count), known)


Follow = Callable[[Search, Look, Ball, Going, Count], Going]


def scored(objective: Objective, state: State) -> Look:
    """A look without slopes."""
    pieces = objective.pieces(len(state.point))
    if len(pieces) == 1:
        return Look(objective(state.point), None, passes=1)
    parts = [objective[rows](state.point[rows]) for rows in pieces]
    return Look(Score(*map(torch.cat, zip(*parts, strict=True))), None, passes=1)


def _attached(ball: Ball) -> bool:
    return torch.is_grad_enabled() and ball.center.requires_grad


def _remember(found: Found, look: Look, merit: Tensor, point: Tensor) -> Found:
    """Keep the present point where it is admitted and strictly better than all before."""
    better = look.score.admitted & (merit.detach() < found.merit)
    features = tuple(range(1, point.dim()))
    stalled = 0 if look.gradient is None else (look.gradient == 0).all(features).long()
    return Found(
        point=torch.where(per_row(better, point), point, found.point),
        value=torch.where(better, look.score.value, found.value),
        merit=torch.where(better, merit.detach(), found.merit),
        passes=found.passes + look.passes,
        stalled=found.stalled + stalled,
        lowest=torch.fmin(found.lowest, look.score.value.detach()),  # not a number is not low
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
