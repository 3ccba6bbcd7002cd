"""Implement attacks on a defence that are stronger than the paper's: they follow its gradients, query it, or transfer."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from drq.errors import require
from drq.norms import Ball, Linf
from drq.objectives import Objective, margin
from drq.search.auto_step import AutoStep
from drq.search.black_box import RayS, Square
from drq.search.loop import Search, SearchResult, check_count, check_steps, search
from drq.seeds import generator
from drq.threats.attacks import APGD, APGDTargeted, SearchAttack, mislabelled, within_reach
from drq.threats.pursuit import Pursuit, Standing
from drq.threats.target import Target
from drq.threats.threat import plain

Static = SearchAttack | APGDTargeted  # attacks on a static model whose cost is known


@dataclass(frozen=True)
class Transfer(Pursuit):
    """Transfer an attack on the static model: the point where its objective is best, not the first that fools the model.

    Args:
        attack: an attack on the static model, in the same norm and radius.
    """

    attack: Static

    follows_static: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        known = isinstance(self.attack, Static)
        require(known, "attack", "be one on a static model, such as drq.threats.APGD", repr(self.attack), "others stand alone")
        same = self.attack.norm == self.norm and self.attack.radius == self.radius
        require(same, "attack", "have the norm and the radius of the transfer", self.attack, "give both the same")

    @property
    def fewest_classes(self) -> int:
        return self.attack.fewest_classes

    @property
    def title(self) -> str:
        aim = f" {plain(self.attack.aim)}" if isinstance(self.attack, APGD) else ""
        return f"Transfer({type(self.attack).__name__}{aim})"

    def pursue(self, target: Target, ball: Ball, y: Tensor, standing: Standing) -> Tensor:
        return self.attack(target.static, ball.center, y)

    def cost(self, target: Target, x: Tensor) -> int:
        return self.attack.passes + 1  # one row is examined first


@dataclass(frozen=True)
class Envelope(Pursuit):
    """Raise the robustness of one rival and lower that of the true class, as DRQ finds them.

    The gradients of both classes are taken at their quantified points and moved to the input, as if the inner searches always
    went the same way (the envelope rule). On another defence it follows its scores, as they are differentiated there.

    Args:
        steps: the steps of the attack.
        inner: the steps of each search of the defence; several lengths are followed at once. Empty for the defence's own:
            searches of another length fail at other points, which often do not fool the defence.
        rank: which rival, 0 for the most dangerous at the best point so far.
        restart: 0 starts at that point, every other number at a random one.
    """

    steps: int = 75
    inner: tuple[int, ...] = field(default=(), kw_only=True)
    rank: int = field(default=0, kw_only=True)
    restart: int = field(default=0, kw_only=True)

    needs_gradients: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_steps("steps", self.steps)
        listed = isinstance(self.inner, tuple)
        require(listed, "inner", "be a tuple of numbers of steps", repr(self.inner), "for example (7,), or () for its own")
        for each in self.inner:
            check_steps("inner", each)
        check_count("rank", self.rank, "0 is the most dangerous rival")
        check_count("restart", self.restart, "0 starts at the best point so far")

    @property
    def fewest_classes(self) -> int:
        return self.rank + 2

    @property
    def rows(self) -> int:
        return 2 * max(1, len(self.inner))  # the true class and the rival, in every version

    @property
    def title(self) -> str:
        through = f" through {'+'.join(map(str, self.inner))}" if self.inner else ""
        restart = f", restart {self.restart}" if self.restart else ""
        return f"{type(self).__name__}(rival {self.rank + 1}, {self.steps} steps{through}{restart})"

    def contest(self, target: Target, y: Tensor, standing: Standing) -> Objective:
        """Return the objective that brings the true class below the rival."""
        return target.contest(y, standing.rivals[:, self.rank], standing.radius, *self.inner)

    @property
    def method(self) -> Search:
        """The search that lowers the lead over the rival."""
        return AutoStep(self.steps)

    def best_point(self, target: Target, ball: Ball, y: Tensor, standing: Standing) -> SearchResult:
        """Search for the point with the smallest lead over the rival."""
        start = ball.sample(generator(self.restart)) if self.restart else standing.x
        return search(self.method, self.contest(target, y, standing), ball, start=start)

    def pursue(self, target: Target, ball: Ball, y: Tensor, standing: Standing) -> Tensor:
        return self.best_point(target, ball, y, standing).point

    def cost(self, target: Target, x: Tensor) -> int:
        return self.method.passes * target.contest_cost(x, *self.inner)


@dataclass(frozen=True)
class Sampling(Envelope):
    """Attack as :class:`Envelope` does, with Square in place of gradients; only two classes are searched for.

    Args:
        steps: the steps of the attack, each a query.
        rank: which rival, 0 for the most dangerous at the best point so far.
        restart: 0 starts at that point, every other number at a random one.
    """

    steps: int = 400

    needs_gradients: ClassVar[bool] = False

    @property
    def method(self) -> Search:
        """The search, each step of which is a query."""
        return Square(self.steps)


@dataclass(frozen=True)
class Rivals(Envelope):
    """Attack with one rival after the other, briefly, since DRQ reports only bounds for most classes.

    Args:
        steps: the steps of the attack on each.
        rank: the rank of the first rival.
        most: the most rivals that are tried.
    """

    steps: int = 25
    rank: int = field(default=2, kw_only=True)
    most: int = field(default=7, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("most", self.most, "so many rivals are followed", least=1)

    @property
    def title(self) -> str:
        return f"{type(self).__name__}({self.rank + 1} to {self.rank + self.most}, {self.steps} steps)"

    def best_point(self, target: Target, ball: Ball, y: Tensor, standing: Standing) -> SearchResult:
        ranks = range(self.rank, min(self.rank + self.most, standing.rivals.shape[1]))
        each = [Envelope.best_point(replace(self, rank=rank), target, ball, y, standing) for rank in ranks]
        best = torch.stack([found.value for found in each]).argmin(0)
        return each[0].joined(each[1:])[best * len(y) + torch.arange(len(y), device=y.device)]

    def cost(self, target: Target, x: Tensor) -> int:
        return self.most * super().cost(target, x)


@dataclass(frozen=True)
class FewerSteps(Pursuit):
    """Follow the scores of the defence, shortened to fewer steps, against all classes at once: BPDA for any defence.

    Args:
        steps: the steps of the attack.
        inner: the steps of each search of the defence.
    """

    steps: int = 25
    inner: int = field(default=5, kw_only=True)

    needs_gradients: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_steps("steps", self.steps)
        check_steps("inner", self.inner)

    def pursue(self, target: Target, ball: Ball, y: Tensor, standing: Standing) -> Tensor:
        return search(AutoStep(self.steps), margin(target.scores(self.inner), y), ball, start=standing.x).point

    def cost(self, target: Target, x: Tensor) -> int:
        return AutoStep(self.steps).passes * target.scores_cost(x, self.inner)


@dataclass(frozen=True)
class QueryAttack(Pursuit):
    """An attack that queries the whole defence and needs no gradients; what both have in common.

    Args:
        queries: the number of evaluations of the defence.
    """

    queries: int = 100

    costly: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_steps("queries", self.queries, "each is one evaluation of the defence")


@dataclass(frozen=True)
class ScoreBased(QueryAttack):
    """Run Square on the scores of the whole defence."""

    def pursue(self, target: Target, ball: Ball, y: Tensor, standing: Standing) -> Tensor:
        return search(Square(self.queries), margin(target.scores(), y), ball, start=standing.x).point

    def cost(self, target: Target, x: Tensor) -> int:
        return Square(self.queries).passes * target.scores_cost(x)


@dataclass(frozen=True)
class DecisionBased(QueryAttack):
    """Run RayS on the labels of the whole defence; linf only."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.norm == Linf(), "norm", "be linf for RayS", self.norm, "ScoreBased works in every norm")

    def pursue(self, target: Target, ball: Ball, y: Tensor, standing: Standing) -> Tensor:
        return within_reach(search(RayS(self.queries), mislabelled(target.labels, y), ball), ball)

    def cost(self, target: Target, x: Tensor) -> int:
        return RayS(self.queries).passes * target.verdict_cost(x)
