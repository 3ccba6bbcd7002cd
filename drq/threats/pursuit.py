"""Define attacks on a defence: each continues from the best point found so far, and is judged by the defence's own answers."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from drq.drq import DRQ
from drq.errors import require
from drq.method.execution import check_mode
from drq.norms import Ball
from drq.objectives import Model
from drq.rows import in_order, per_row
from drq.system.progress import Tell, silent
from drq.threats.drq_target import DRQTarget
from drq.threats.target import Target, Verdict
from drq.threats.threat import BallThreat, Shifted
from drq.threats.views_target import ViewsTarget

logger = logging.getLogger("drq")

ITSELF, NONE = -1, -2  # instead of the number of a member: the sample itself, no member
COSTLY_SAMPLES = 50  # the first samples of a dataset, on which a chain also runs its costliest members
# A lead that other rounding or another batch may reverse: points that fool the defence by less are attacked further.
CLOSE = 0.1


@dataclass(frozen=True, eq=False)
class Standing(Shifted):
    """The state of an attack on N samples: the best point found so far, and what the defence says about it."""

    fooled: Tensor  # (N,) bool: the defence is wrong at x
    static_by: Tensor  # (N,) the member that first fooled the static model; -1 for the sample itself, -2 for none
    lead: Tensor  # (N,) lead of the true class over the best other, in the defence
    rivals: Tensor  # (N, C - 1) wrong classes, the most dangerous at x first
    radius: Tensor  # (N,) the radius in which a DRQ explores
    by: Tensor  # (N,) the member of the chain that first fooled the defence, or came nearest; -1 for the sample itself
    tried: Tensor  # (N, M) bool: which of the M members were run on the sample

    @property
    def static_fooled(self) -> Tensor:
        """Whether (N,) the static model was wrong at some point that was tried."""
        return self.static_by > NONE

    @property
    def clearly_fooled(self) -> Tensor:
        """Whether (N,) the defence is wrong by a clear margin."""
        return self.fooled & (self.lead < -CLOSE)

    @classmethod
    def from_points(cls, x: Tensor, verdict: Verdict, by: int, passes: float, members: int) -> Standing:
        """Make the state for points found by member number ``by`` of ``members``, with the defence's verdict on them."""
        spent = torch.full_like(verdict.lead, passes, dtype=torch.float64)
        finder = torch.full_like(verdict.radius, by, dtype=torch.long)
        static_by = torch.where(verdict.static_fooled, finder, NONE)
        tried = torch.arange(members, device=finder.device) == finder[:, None]
        return cls(x, spent, verdict.fooled, static_by, verdict.lead, verdict.rivals, verdict.radius, finder, tried)

    def updated(self, new: Standing) -> Standing:
        """Keep the better of the current and the new points, and which member first fooled the defence."""
        better = torch.where(self.fooled == new.fooled, new.lead < self.lead, new.fooled)
        columns = {name: torch.where(per_row(better, old), getattr(new, name), old) for name, old in vars(self).items()}
        columns |= {"passes": self.passes + new.passes, "tried": self.tried | new.tried}
        columns["by"] = torch.where(self.fooled, self.by, columns["by"])
        columns["static_by"] = torch.where(self.static_fooled, self.static_by, new.static_by)
        return replace(self, **columns)


@dataclass(frozen=True)
class Pursuit(BallThreat):
    """An attack on a defence, as :class:`drq.threats.Target` describes one; what all of them have in common.

    Alone it starts at the sample; in a :class:`drq.threats.Chain` it continues from the best point so far.
    """

    follows_static: ClassVar[bool] = False  # whether it attacks the static model, which its points then count against, too
    costly: ClassVar[bool] = False  # whether a chain runs it only on the first samples of a dataset
    needs_gradients: ClassVar[bool] = False  # whether it follows gradients of the defence's scores
    for_views: ClassVar[bool] = False  # whether it is meant for defences that look at views, and left out for others

    @abstractmethod
    def pursue(self, target: Target, ball: Ball, y: Tensor, standing: Standing) -> Tensor:
        """Return one new point for every sample."""

    @abstractmethod
    def cost(self, target: Target, x: Tensor) -> int:
        """Return the most passes that this takes for a sample like those in ``x``, not counting the verdict."""

    @property
    def fewest_classes(self) -> int:
        """The number of classes that it needs."""
        return 2

    @property
    def rows(self) -> int:
        """The rows that the model evaluates at once for one sample."""
        return 1

    @property
    def title(self) -> str:
        """Its name in reports."""
        return type(self).__name__

    def shift(self, model: nn.Module | Model | None, x: Tensor, y: Tensor | None, index: Tensor) -> Shifted:
        return run_members(self, (self,), model, x, y, index)


def run_members(
    attack: BallThreat,
    members: Sequence[Pursuit],
    model: nn.Module | Model | None,
    x: Tensor,
    y: Tensor | None,
    index: Tensor,
    budget: float = float("inf"),
    tell: Tell = silent,
) -> Standing:
    """Run the members one after the other, on one piece of the batch at a time; ``attack`` has the ball and the chunk."""
    target = as_target(model)
    x, y, setting = attack.prepare_batch(target.static, x, y)
    target.detect_randomness(x[:4])
    costs = plan(members, target, x[:1], setting.classes, budget)
    parts, pieces = [], setting.pieces(len(x), size=max(members[number].rows for number in costs))
    for piece, rows in enumerate(pieces):
        standing, ahead, done = _begin(target, x[rows], y[rows], len(members)), sum(costs.values()), 0
        for number, cost in costs.items():
            tell((piece + done / ahead) / len(pieces), members[number].title)
            standing = _advance(members[number], number, target, attack.ball(x[rows]), y[rows], index[rows], standing)
            done += cost
        parts.append(_confirmed(target, y[rows], standing))
    tell(1.0, "done")
    return parts[0].joined(parts[1:])


def as_target(model: nn.Module | Model | None) -> Target:
    """Return the model as a target of attacks; refuse what cannot be one."""
    require(isinstance(model, nn.Module), "model", "be a torch.nn.Module", type(model).__name__, "wrap it in a module")
    assert isinstance(model, nn.Module)
    inner = getattr(model, "model", None) if hasattr(model, "decide") else model
    remedy = "a defence has the classifier in it as .model, whose evaluations are counted"
    require(isinstance(inner, nn.Module), "model.model", "be a torch.nn.Module", type(inner).__name__, remedy)
    check_mode(model)
    radius = getattr(model, "radius", None)
    each_its_own = isinstance(radius, Tensor) and radius.numel() > 1
    remedy = "samples are attacked in other batches than they were given in; use a number or drq.Calibrated()"
    require(not each_its_own, "model.radius", "not be one number for each sample", "a tensor", remedy)
    if not isinstance(model, DRQ):
        return Target(model)
    return DRQTarget(model) if model.ball_searched else ViewsTarget(model)


def plan(members: Sequence[Pursuit], target: Target, x: Tensor, classes: int, budget: float) -> dict[int, int]:
    """Return the most passes of each member that is run, with its verdict, by number; warn of those that are not run."""
    verdict, slopes, chosen = target.verdict_cost(x), target.has_gradients(x), {}
    budget -= verdict * (1 + (target.draws > 1))  # for the sample itself; for a random defence once more at the end
    for number, member in enumerate(members):
        if member.for_views and not target.over_views:
            continue
        if classes < member.fewest_classes:
            why = f"it needs {member.fewest_classes} classes, the model has {classes}"
        elif member.needs_gradients and not slopes:
            why = "the scores of the defence have no gradient"
        elif (cost := member.cost(target, x) + verdict) > budget:
            why = f"it may take {cost} passes an image where {budget:g} are left"
        else:
            chosen[number] = cost
            budget -= cost
            continue
        logger.warning("drq: %s is not run: %s", member.title, why)
    titles = ", ".join(member.title for member in members)
    remedy = "the warnings say what each lacks; a larger budget (strength='full') may do"
    require(bool(chosen), "members", "have one that can be run on this defence", titles, remedy)
    return chosen


def _begin(target: Target, x: Tensor, y: Tensor, members: int) -> Standing:
    with target.counting_rows() as meter:
        verdict = target.judge(x, y)
    return Standing.from_points(x, verdict, ITSELF, meter.rows / len(x), members)


def _confirmed(target: Target, y: Tensor, standing: Standing) -> Standing:
    """Judge a random defence once more, since of many points some fool it by chance."""
    if target.draws == 1:
        return standing
    with target.counting_rows() as meter:
        fooled = target.judge(standing.x, y).fooled
    return replace(standing, fooled=standing.fooled & fooled, passes=standing.passes + meter.rows / len(y))


def _advance(member: Pursuit, number: int, target: Target, ball: Ball, y: Tensor, index: Tensor, standing: Standing) -> Standing:
    """Run one member on the samples that are not clearly fooled; its passes are divided among them."""
    remaining = ~standing.clearly_fooled | (~standing.static_fooled & member.follows_static)
    if member.costly:
        remaining &= (index < COSTLY_SAMPLES).to(remaining.device)
    if not remaining.any():
        return standing
    rows, others = remaining.nonzero()[:, 0], (~remaining).nonzero()[:, 0]
    with target.counting_rows() as meter:
        points = ball[rows].project(member.pursue(target, ball[rows], y[rows], standing[rows]))
        verdict = target.judge(points, y[rows])
    updated = standing[rows].updated(
        Standing.from_points(points, verdict, number, meter.rows / len(rows), standing.tried.shape[1])
    )
    return in_order([rows, others], [updated, standing[others]])
