"""Implement attacks on a static model: each is one search for a worse point within the ball.

They do not stop at the first success, since a defence is harder to fool than the model that it wraps: they return the point at
which their objective is best. Given a defence as ``model``, they attack its scores.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from drq.errors import require
from drq.method.execution import Execution
from drq.norms import Ball, Linf
from drq.objectives import Model, Objective, Score, away_from, dlr, dlr_toward, last_place, margin
from drq.rows import per_row
from drq.search.auto_step import AutoStep
from drq.search.black_box import RayS, Square
from drq.search.gradient import Gradient, Random, Smoothing
from drq.search.loop import Search, SearchResult, check_count, check_steps, search
from drq.search.smoothing import InnerAttack, Noise
from drq.seeds import generator
from drq.threats.threat import Attack, Shifted

logger = logging.getLogger("drq")

Aim = Callable[[Model, Tensor], Objective]


@dataclass(frozen=True)
class SearchAttack(Attack):
    """An attack that is one search; what PGD and its variants have in common.

    Args:
        norm: "linf", "l2", "l1" or a :class:`drq.Norm`.
        radius: the radius of the ball around every sample.
        bounds, frozen, chunk: see :class:`drq.threats.BallThreat`.
        aim: what is minimised, given the model and ``y``: ``drq.away_from`` for the cross-entropy, ``drq.dlr``, ``drq.margin``.
            A targeted attack is ``drq.favour``, with the target as ``y``.
        restarts: the number of searches, the first from the sample itself, the others from random points; the best is kept.
        seed: the seed of those points, which all samples share.
    """

    aim: Aim = field(default=away_from, kw_only=True)
    restarts: int = field(default=1, kw_only=True)
    seed: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_steps("restarts", self.restarts, "1 is a single search")
        require(callable(self.aim), "aim", "be an objective such as drq.away_from", repr(self.aim), "drq.dlr is another")
        assert self.method.passes > 0  # its own checks run when it is made

    @property
    @abstractmethod
    def method(self) -> Search:
        """The search that the attack makes."""

    @property
    def passes(self) -> int:
        """The evaluations of the model for one sample."""
        return self.restarts * self.method.passes

    @property
    def fewest_classes(self) -> int:
        """The number of classes that the objective needs."""
        return 3 if self.aim is dlr else 2

    def attack(self, execution: Execution, x: Tensor, y: Tensor, index: Tensor) -> Shifted:
        objective, ball, tries = self.aim(execution.model, y), self.ball(x), []
        for restart in range(self.restarts):
            start = ball.sample(generator(self.seed, restart)) if restart else None
            tries.append(search(self.renewed(restart), objective, ball, start=start))
        lost = torch.stack([each.stalled for each in tries]).sum(0) >= self.restarts * self.method.steps
        if 2 * lost.sum() > len(x):
            logger.warning(
                "drq: %s found no gradient for %d of %d samples: they show nothing", type(self).__name__, lost.sum(), len(x)
            )
        return best_of(tries)

    def renewed(self, restart: int) -> Search:
        """Return the search for one restart; random searches get another seed."""
        return self.method


def best_of(tries: list[SearchResult]) -> Shifted:
    """Return the best point of several searches with the same objective."""
    best = torch.stack([each.merit for each in tries]).argmin(0)
    points = torch.stack([each.point for each in tries])
    return Shifted(points[best, torch.arange(len(best), device=best.device)], torch.stack([each.passes for each in tries]).sum(0))


@dataclass(frozen=True)
class PGD(SearchAttack):
    """Projected gradient descent (Madry et al. 2018).

    Args:
        norm, radius, bounds, frozen, chunk, aim, restarts, seed: see :class:`drq.threats.SearchAttack`.
        steps: the number of steps.
        step: the length of a step, as a multiple of radius / steps.
        smooth: None, or what gradients are averaged over.

    >>> model = torch.nn.Linear(2, 2, bias=False).eval()
    >>> _ = model.weight.data.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    >>> PGD("linf", 0.1)(model, torch.tensor([[0.5, 0.25]]), torch.tensor([0]))
    tensor([[0.4000, 0.3500]])
    """

    steps: int = 100
    step: float = field(default=2.5, kw_only=True)
    smooth: Smoothing | None = field(default=None, kw_only=True)

    @property
    def method(self) -> Search:
        return Gradient(self.steps, self.step, smooth=self.smooth)


@dataclass(frozen=True)
class PGDNoise(PGD):
    """The paper's adaptive attack PGD_noise: every gradient is a weighted average over 10 noisy points.

    Args:
        smooth: the noise, drawn from a ball of the attack's own radius around the current point.
    """

    smooth: Smoothing | None = field(default=Noise(10), kw_only=True)


@dataclass(frozen=True)
class PGDAttack(PGD):
    """The paper's adaptive attack PGD_attack: every gradient is a weighted average over 4 points that PGD-7 made worse for it.

    Args:
        smooth: the inner attacks, within a ball of the attack's own radius around the current point.
    """

    smooth: Smoothing | None = field(default=InnerAttack(4, steps=7), kw_only=True)


@dataclass(frozen=True)
class APGD(SearchAttack):
    """Auto-PGD (Croce and Hein 2020): gradient descent that chooses its own step; with ``aim=drq.dlr`` it is APGD-DLR.

    Settings are those of :class:`drq.threats.SearchAttack`, and the number of ``steps``. In l1 a step moves a single feature,
    which is weaker than the published l1 variant.
    """

    steps: int = 100

    @property
    def method(self) -> Search:
        return AutoStep(self.steps)


@dataclass(frozen=True)
class APGDTargeted(Attack):
    """Auto-PGD on the targeted DLR loss, towards each of the likeliest wrong classes; the point with the smallest lead is kept.

    Args:
        steps: the steps of each search.
        targets: how many classes are tried; fewer where the model has fewer.
        first: how many of the likeliest classes are left out.
    """

    steps: int = 100
    targets: int = field(default=9, kw_only=True)
    first: int = field(default=0, kw_only=True)

    fewest_classes: ClassVar[int] = 4  # that the objective needs

    def __post_init__(self) -> None:
        super().__post_init__()
        check_steps("steps", self.steps)
        check_steps("targets", self.targets, "9 is AutoAttack's number")
        check_count("first", self.first, "0 is the likeliest wrong class")

    @property
    def passes(self) -> int:
        """The evaluations of the model for one sample, where it has enough classes."""
        return self.targets * (AutoStep(self.steps).passes + 1) + 1

    def attack(self, execution: Execution, x: Tensor, y: Tensor, index: Tensor) -> Shifted:
        rivals = execution.model(x).scatter(1, y[:, None], -torch.inf).argsort(dim=1, descending=True, stable=True)
        ranks = range(self.first, min(self.first + self.targets, execution.classes - 1))
        require(
            len(ranks) > 0, "first", f"lie below {execution.classes - 1}, the wrong classes", self.first, "0 is the likeliest"
        )
        tries = []
        for rank in ranks:
            found = search(AutoStep(self.steps), dlr_toward(execution.model, y, rivals[:, rank]), self.ball(x))
            lead = margin(execution.model, y)(found.point).value
            tries.append(replace(found, value=lead, merit=lead, passes=found.passes + 1))
        shifted = best_of(tries)
        return Shifted(shifted.x, shifted.passes + 1)


@dataclass(frozen=True)
class LastPlace(APGD):
    """Push the true class to the last logit: why DRQ on the ``classes=k`` likeliest classes is not safe under attack."""

    aim: Aim = field(default=last_place, kw_only=True)


@dataclass(frozen=True)
class RandomNoise(SearchAttack):
    """Uniform random points of the ball, of which the worst is kept (Section 5.3 of the paper).

    Args:
        draws: the number of points; all samples share them.
    """

    draws: int = 1000

    @property
    def method(self) -> Search:
        return self.renewed(0)

    def renewed(self, restart: int) -> Search:
        return Random(self.draws, self.seed + restart)


@dataclass(frozen=True)
class SquareAttack(SearchAttack):
    """Random squares, from scores alone (Andriushchenko et al. 2020); on a defence it runs through the whole of it.

    Args:
        queries: the number of evaluations of the model.
    """

    queries: int = 5000
    aim: Aim = field(default=margin, kw_only=True)

    @property
    def method(self) -> Search:
        return self.renewed(0)

    def renewed(self, restart: int) -> Search:
        return Square(self.queries, seed=self.seed + restart)


@dataclass(frozen=True)
class RaySAttack(Attack):
    """Directions in which the label changes soonest, from labels alone (Chen and Gu 2020); linf only.

    Args:
        queries: the number of evaluations of the model.
    """

    queries: int = 10_000

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.norm == Linf(), "norm", "be linf for RayS", self.norm, "SquareAttack works in every norm")
        assert RayS(self.queries).passes > 0  # its own checks run when it is made

    def attack(self, execution: Execution, x: Tensor, y: Tensor, index: Tensor) -> Shifted:
        found = search(RayS(self.queries), mislabelled(execution.model, y), self.ball(x))
        return Shifted(within_reach(found, self.ball(x)), found.passes)


def mislabelled(model: Model, label: Tensor) -> Objective:
    """Return the objective of any class other than ``label``; it reads only the argmax of the scores."""

    def measure(logits: Tensor, label: Tensor) -> Score:
        wrong = logits.argmax(1) != label
        return Score(-wrong.to(logits.dtype), wrong, torch.zeros_like(logits[:, 0]))

    return Objective(model, measure, (label,))


def within_reach(found: SearchResult, ball: Ball) -> Tensor:
    """Project what a search beyond the ball found onto the ball; the centre where it found nothing."""
    return torch.where(per_row(found.admitted, found.point), ball.project(found.point), ball.center)
