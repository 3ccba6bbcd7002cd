"""Define the red team: a standard chain of attacks on a defence, with nothing to tune, at two strengths, and its summary."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from drq.errors import require
from drq.norms import Linf
from drq.objectives import Model, dlr
from drq.system.progress import Bar, Tell, silent
from drq.threats.attacks import APGD, APGDTargeted, PGDAttack, PGDNoise
from drq.threats.pursuit import ITSELF, Pursuit, Standing, as_target, run_members
from drq.threats.stronger import DecisionBased, Envelope, FewerSteps, Rivals, Sampling, Static, Transfer
from drq.threats.threat import BallThreat, Shifted
from drq.threats.through_views import AllViews, SingleViews, ViewRivals, ViewSampling

BUDGETS = {"quick": 32_000, "full": 150_000}  # most passes for an image
ANSWERS = 60  # the budget always allows for so many answers, so that a costly defence is not attacked less


class Team(BallThreat):
    """Attacks on a defence, one after the other, each from the best point so far, on the samples that are not clearly fooled.

    ``run`` returns a :class:`drq.threats.Standing`; ``summary`` describes it, the static model beside the defence.
    """

    members: tuple[Pursuit, ...]  # in the order in which they are run
    budget: float  # passes for a sample, at most; members that do not fit are left out, and a warning names them

    def findings(self, standing: Standing) -> dict[str, Any]:
        """Return what was found: accuracies in percent, and for each member how many samples it was run on and first fooled."""
        known = isinstance(standing, Standing) and standing.tried.shape[1] == len(self.members)
        require(known, "standing", "be what run() of this team returned", type(standing).__name__, "call run first")
        titles = ["the sample itself", *(member.title for member in self.members)]
        found: dict[str, Any] = {"samples": len(standing.fooled)}
        for name, fooled, by in (
            ("static", standing.static_fooled, standing.static_by),
            ("defended", standing.fooled, standing.by),
        ):
            fell = torch.bincount(by[fooled] - ITSELF, minlength=len(titles)).tolist()
            found[name] = {
                "clean": 100 - 100 * fell[0] / len(fooled),
                "worst_case": 100 - 100 * sum(fell) / len(fooled),
                "fell_to": {title: count for title, count in zip(titles, fell, strict=True) if count},
            }
        tried = dict(zip(titles[1:], standing.tried.sum(0).tolist(), strict=True))
        passes = {"mean": standing.passes.mean().item(), "most": standing.passes.max().item(), "limit": self.budget}
        gain = found["defended"]["worst_case"] - found["static"]["worst_case"]
        return found | {"gain": gain, "tried": tried, "passes": passes}

    def summary(self, standing: Standing) -> str:
        """Return what was found as text. The static model's worst case is over all points that were tried against it."""
        found = self.findings(standing)
        lines = [f"{found['samples']} samples{'clean':>12}{'worst case':>13}"]
        for name in ("static", "defended"):
            lines.append(f"{name:12}{found[name]['clean']:12.1f}{found[name]['worst_case']:13.1f}")
        lines.append(f"worst case, defended minus static: {found['gain']:+.1f} points")
        for title, count in found["defended"]["fell_to"].items():
            lines.append(f"  fell to {title}: {count}")
        extra = {member.title for member in self.members if member.for_views}
        if idle := [title for title, count in found["tried"].items() if not count and title not in extra]:
            lines.append(f"  not run, or nobody was left to run on: {', '.join(idle)}")
        passes = found["passes"]
        lines.append(f"passes an image: {passes['mean']:.0f} on average, {passes['most']:.0f} at most, limit {passes['limit']:g}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Chain(Team):
    """Attacks on a defence of your choice, one after the other, each from the best point so far.

    Args:
        members: the attacks, in the same norm and radius.
        budget: the most passes for a sample; members that do not fit are left out with a warning.
        tell: called with progress.
    """

    members: tuple[Pursuit, ...]
    budget: float = field(default=float("inf"), kw_only=True)
    tell: Tell = field(default=silent, kw_only=True, compare=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        given = list(self.members) if isinstance(self.members, tuple | list) else [self.members]
        kinds = ", ".join(type(each).__name__ for each in given) or "none"
        listed = isinstance(self.members, tuple | list) and given and all(isinstance(each, Pursuit) for each in given)
        remedy = "drq.threats.Transfer takes an attack on the static model in"
        require(bool(listed), "members", "be one or more attacks on a defence, as a tuple", kinds, remedy)
        same = all(each.norm == self.norm and each.radius == self.radius for each in given)
        require(same, "members", "have the norm and the radius of the chain", kinds, "give all of them the same")
        object.__setattr__(self, "members", tuple(given))

    def shift(self, model: nn.Module | Model | None, x: Tensor, y: Tensor | None, index: Tensor) -> Shifted:
        return run_members(self, self.members, model, x, y, index, self.budget, self.tell)


@dataclass(frozen=True)
class RedTeam(Team):
    """The standard chain against a defence, with nothing to tune.

    Args:
        strength: "quick", at most 32 000 passes an image, or "full", at most 150 000; or what 60 answers of the defence cost,
            where that is more.
        progress: whether progress and the time left are written to standard error.
    """

    strength: Literal["quick", "full"] = "quick"
    progress: bool = field(default=False, kw_only=True)
    members: tuple[Pursuit, ...] = field(init=False, repr=False, compare=False)  # members and budget follow from the strength
    budget: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        known = self.strength in BUDGETS
        require(known, "strength", "be 'quick' or 'full'", repr(self.strength), "'quick' is the cheaper")
        object.__setattr__(self, "members", self._standard())
        object.__setattr__(self, "budget", BUDGETS[self.strength])

    def _standard(self) -> tuple[Pursuit, ...]:
        """Return the members: attacks on the static model, then those with gradients of the defence, last those with queries."""
        space: dict[str, Any] = {name: getattr(self, name) for name in ("norm", "radius", "bounds", "frozen", "chunk")}
        on_model: list[Static] = [APGD(**space), APGD(aim=dlr, **space), APGDTargeted(**space), PGDNoise(**space)]
        chain: list[Pursuit] = [Transfer(attack=attack, **space) for attack in on_model]
        chain += [SingleViews(**space), ViewSampling(**space), AllViews(**space)]  # only of a defence that looks at views
        chain += [Envelope(**space), Envelope(restart=1, **space), Envelope(steps=40, rank=1, **space), FewerSteps(**space)]
        chain += [ViewRivals(**space)]
        if self.strength == "full":
            chain += [Transfer(attack=PGDAttack(**space), **space), Rivals(**space)]
            chain += [Envelope(steps=100, restart=restart, **space) for restart in (2, 3, 0)]
            chain += [Sampling(**space)]
            chain += [DecisionBased(queries=90, **space)] if self.norm == Linf() else []
        return tuple(chain)

    def shift(self, model: nn.Module | Model | None, x: Tensor, y: Tensor | None, index: Tensor) -> Shifted:
        budget = max(self.budget, ANSWERS * as_target(model).verdict_cost(x[:1]))
        return run_members(self, self.members, model, x, y, index, budget, Bar("red team") if self.progress else silent)
