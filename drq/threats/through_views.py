"""Implement attacks on DRQ over views, for where the slopes of its best view lead nowhere: other views, and no slopes at all."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from drq.errors import require
from drq.norms import Ball
from drq.objectives import Objective
from drq.rows import per_row
from drq.search.auto_step import AutoStep
from drq.search.loop import check_count, check_steps, search
from drq.threats.pursuit import Pursuit, Standing
from drq.threats.stronger import Envelope, Rivals, Sampling
from drq.threats.target import Target
from drq.threats.views_target import ViewsTarget


@dataclass(frozen=True)
class ViewSampling(Sampling):
    """Do as :class:`Sampling` against a defence that looks at views, at every strength, in case gradients mislead.

    Args:
        steps: the steps of the attack, each a query.
        rank: which rival, 0 for the most dangerous at the best point so far.
        restart: 0 starts at that point, every other number at a random one.
    """

    steps: int = 100

    for_views: ClassVar[bool] = True

    def cost(self, target: Target, x: Tensor) -> int:
        assert isinstance(target, ViewsTarget)
        return self.method.passes * target.query_cost(x)


@dataclass(frozen=True)
class AllViews(Envelope):
    """Do as :class:`Envelope`, with slopes of all views that are not far behind the best one, on both sides of a gate.

    Args:
        steps: the steps of the attack.
        inner: unused: views are not searched.
        rank: which rival, 0 for the most dangerous at the best point so far.
        restart: 0 starts at that point, every other number at a random one.
        softness: log-odds by which a view may be behind the best one and still count.
    """

    steps: int = 50
    softness: float = field(default=2.0, kw_only=True)

    for_views: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.softness > 0, "softness", "be above 0", self.softness, "Envelope follows the best view alone")

    def contest(self, target: Target, y: Tensor, standing: Standing) -> Objective:
        assert isinstance(target, ViewsTarget)
        return target.contest(y, standing.rivals[:, self.rank], standing.radius, softness=self.softness)


@dataclass(frozen=True)
class SingleViews(Pursuit):
    """Make the model sure of a wrong class at one view, whatever the others say; those views where it is nearest to that.

    Args:
        steps: the steps of the attack on each.
        most: the most views that are tried.
    """

    steps: int = 40
    most: int = 5

    for_views: ClassVar[bool] = True
    needs_gradients: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_steps("steps", self.steps)
        check_count("most", self.most, "so many views are followed", least=1)

    def pursue(self, target: Target, ball: Ball, y: Tensor, standing: Standing) -> Tensor:
        assert isinstance(target, ViewsTarget)
        with torch.no_grad():
            nearest = target.wrong_at_views(standing.x, y).amax(2).argsort(dim=1, descending=True, stable=True)
            point, lead = standing.x, target.lead(standing.x, y, standing.rivals[:, 0])
        for number in nearest[:, : self.most].unbind(1):
            found = search(AutoStep(self.steps), target.at_view(number, y), ball, start=standing.x).point
            with torch.no_grad():
                rival = target.wrong_at(found, number, y).argmax(1)
                reached = target.lead(found, y, rival)
            point, lead = torch.where(per_row(reached < lead, point), found, point), torch.minimum(reached, lead)
        return point

    def cost(self, target: Target, x: Tensor) -> int:
        assert isinstance(target, ViewsTarget)
        looks = target.query_cost(x)
        return 2 * looks + min(self.most, looks) * (AutoStep(self.steps).passes + 1 + looks)


@dataclass(frozen=True)
class ViewRivals(Rivals):
    """Do as :class:`Rivals` against a defence that looks at views, at every strength.

    Args:
        steps: the steps of the attack on each.
        rank: the rank of the first rival.
        most: the most rivals that are tried.
    """

    most: int = field(default=3, kw_only=True)

    for_views: ClassVar[bool] = True
