"""Implement the paper's attacks on the whole pipeline of DRQ; its attacks on the static model are in ``attacks``."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from drq.drq import DRQ
from drq.errors import require
from drq.norms import L2, Ball
from drq.objectives import Model, Objective, Score, margin
from drq.rows import per_row
from drq.search.gradient import Gradient
from drq.search.loop import Count, Observation, SearchResult, State, check_steps, search
from drq.threats.drq_target import DRQTarget
from drq.threats.pursuit import Standing, as_target
from drq.threats.stronger import Envelope
from drq.threats.target import Target
from drq.threats.threat import BallThreat, Shifted


@dataclass(frozen=True, eq=False)
class Differentiated(Shifted):
    """The result of the end-to-end attack on N samples, with diagnostics of the gradient through the pipeline."""

    ratio: Tensor  # (N,) gradient length at x over that at the quantified points; far from 1 it vanished or exploded
    zero: Tensor  # (N,) bool: the gradient at x is zero
    infinite: Tensor  # (N,) bool: some entry of it is infinite or not a number


@dataclass(frozen=True)
class EndToEnd(BallThreat):
    """PGD through the whole of DRQ, all inner steps included (Appendix of the paper).

    The inner searches follow the gradient instead of its sign, so that they can be differentiated; calibration is skipped: each
    sample keeps the radius that it has before the attack. The lead of the true class is lowered rather than the cross-entropy
    raised, whose gradient is zero where a single class is reached.

    Args:
        steps: the steps of the attack.
        inner: the steps of each inner search; None for those of the DRQ.
        clip: the longest gradient, in l2, that an inner step passes back; None for no limit.
    """

    steps: int = 20
    inner: int | None = field(default=None, kw_only=True)
    clip: float | None = field(default=100.0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_steps("steps", self.steps)
        if self.inner is not None:
            check_steps("inner", self.inner)
        require(self.clip is None or self.clip > 0, "clip", "be None or above 0", self.clip, "None lets gradients explode")

    def shift(self, model: nn.Module | Model | None, x: Tensor, y: Tensor | None, index: Tensor) -> Differentiated:
        remedy = "other defences are attacked through their scores by APGD"
        require(isinstance(model, DRQ), "model", "be a drq.DRQ", type(model).__name__, remedy)
        assert isinstance(model, DRQ)
        for name, method in (("explore", model.explore), ("quantify", model.quantify)):
            require(isinstance(method, Gradient), name, "be a drq.Gradient", repr(method), "no other search can be unrolled")
        x, y, execution = self.prepare_batch(as_target(model).static, x, y)
        pieces = execution.pieces(len(x), size=model.classes or execution.classes)
        parts = [self._attack(model, x[rows], y[rows]) for rows in pieces]
        return parts[0].joined(parts[1:])

    def _attack(self, robust: DRQ, x: Tensor, y: Tensor) -> Differentiated:
        target = DRQTarget(robust)
        with target.counting_rows() as meter:
            radius = target.answer(x).radius
            versions = (self._version(target.followed, radius, unroll=each) for each in (True, False))
            through, around = (partial(target.look, each) for each in versions)
            point = search(Gradient(self.steps), margin(through, y), self.ball(x)).point
            first, last = (_gradient(margin(each, y), point) for each in (through, around))
        length, rest = L2().length(first), L2().length(last)
        passes = torch.full_like(length, meter.rows / len(x), dtype=torch.float64)
        infinite = ~first.isfinite().flatten(1).all(1)
        return Differentiated(point, passes, length / rest.clamp(min=1e-30), length == 0, infinite)

    def _version(self, robust: DRQ, radius: Tensor, unroll: bool) -> DRQ:
        options: dict[str, Any] = {"direction": "raw", "unroll": unroll, "checkpoint": unroll, "clip": self.clip}
        searches: dict[str, Any] = {}
        for name, method in (("explore", robust.explore), ("quantify", robust.quantify)):
            assert isinstance(method, Gradient)
            searches[name] = Clipped(self.inner or method.steps, method.step, smooth=method.smooth, **options)
        return robust.variant(radius=radius, prune="none", **searches)


def _gradient(objective: Objective, point: Tensor) -> Tensor:
    """Return the gradient as it is, with NaN and infinity."""
    with torch.enable_grad():
        point = point.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(objective(point).value.sum(), point)
    return gradient


@dataclass(frozen=True)
class Clipped(Gradient):
    """A gradient search whose steps, where they are differentiated, pass back gradients of a bounded length."""

    clip: float | None = None

    def move(self, look: Observation, ball: Ball, state: State, found: SearchResult, count: Count) -> State:
        ahead = super().move(look, ball, state, found, count)
        if self.clip is None or not ahead.point.requires_grad:
            return ahead
        return State(_PassBack.apply(ahead.point, self.clip))  # type: ignore[no-untyped-call]


class _PassBack(torch.autograd.Function):
    """The identity, whose backward pass shortens each row of the gradient to a given length."""

    @staticmethod
    def forward(ctx: Any, point: Tensor, longest: float) -> Tensor:
        ctx.longest = longest
        return point.view_as(point)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        length = L2().length(gradient)
        return gradient * per_row((ctx.longest / length.clamp(min=1e-30)).clamp(max=1), gradient), None


@dataclass(frozen=True)
class Manipulation(Envelope):
    """Leave the label of the static model as it is, and move towards a boundary, so that quantification misjudges the class.

    The paper warns of this attack where the base label is not explored, ``drq.DRQ(..., explore_base=False)``. The same attack on
    the full DRQ shows what exploring achieves.
    """

    def pursue(self, target: Target, ball: Ball, y: Tensor, standing: Standing) -> Tensor:
        kind = type(target.defence).__name__
        require(isinstance(target.defence, DRQ), "model", "be a drq.DRQ", kind, "other defences explore nothing")
        contest, label = self.contest(target, y, standing), target.static(ball.center).argmax(1)

        def measure(point: Tensor, label: Tensor, *given: Tensor) -> Score:
            return contest.measure(point, *given)._replace(admitted=target.static(point).argmax(1) == label)

        unchanged = replace(contest, measure=measure, given=(label, *contest.given))
        return search(self.method, unchanged, ball, start=standing.x).point

    def cost(self, target: Target, x: Tensor) -> int:
        return super().cost(target, x) + self.method.passes + 1
