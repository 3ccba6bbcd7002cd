"""The standard evaluation of a defence: a chain of attacks with nothing to tune, at two strengths, and what it found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from drq.errors import require
from drq.norms import Linf
from drq.objectives import Model, dlr
from drq.progress import Bar, Tell, silent
from drq.threats.attacks import APGD, APGDTargeted, PGDAttack, PGDNoise
from drq.threats.pursuit import ITSELF, Pursuit, Standing, hunt
from drq.threats.stronger import DecisionBased, Envelope, FewerSteps, Halfway, ScoreBased, Static, Transfer
from drq.threats.threat import BallThreat, Shifted

BUDGETS = {"quick": 30_000, "full": 150_000}  # passes an image, at most


@dataclass(frozen=True)
class Chain(BallThreat):
    """Attacks on a defence, one after the other, each from the best point so far, on the samples that still stand.

    Args:
        members: the attacks, in the same norm and radius.
        budget: passes for a sample, at most; members that do not fit are left out, and a warning names them.
        tell: told about progress.
    """

    members: tuple[Pursuit, ...]
    budget: float = field(default=float("inf"), kw_only=True)
    tell: Tell = field(default=silent, kw_only=True, compare=False, repr=False)

    def shift(self, model: nn.Module | Model | None, x: Tensor, y: Tensor | None, index: Tensor) -> Shifted:
        return hunt(self, self.members, model, x, y, index, self.budget, self.tell)


@dataclass(frozen=True)
class RedTeam(BallThreat):
    """The standard chain against a defence, with nothing to tune.

    ``run`` returns a :class:`drq.threats.Standing`; ``summary`` puts it into words, the static model beside the defence.

    Args:
        strength: "quick", at most 30 000 passes an image, or "full", at most 150 000.
        progress: whether progress and the time left are written to standard error.
    """

    strength: Literal["quick", "full"] = "quick"
    progress: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        known = self.strength in BUDGETS
        require(known, "strength", "be 'quick' or 'full'", repr(self.strength), "'quick' takes minutes on a GPU")

    @property
    def members(self) -> tuple[Pursuit, ...]:
        """The chain: first what fools the static model, then what follows the defence, last what only asks it."""
        space: dict[str, Any] = {name: getattr(self, name) for name in ("norm", "radius", "bounds", "frozen", "chunk")}
        carried: list[Static] = [APGD(**space), APGD(aim=dlr, **space), APGDTargeted(**space), PGDNoise(**space)]
        chain: list[Pursuit] = [Transfer(attack=attack, **space) for attack in carried]
        chain += [Envelope(rank=rank, **space) for rank in range(3)]
        chain += [Halfway(**space), FewerSteps(**space)]
        if self.strength == "full":
            chain += [Transfer(attack=PGDAttack(**space), **space)]
            chain += [Envelope(inner=(20,), rank=rank, **space) for rank in range(4)]
            chain += [ScoreBased(queries=90, **space), *([DecisionBased(queries=90, **space)] if self.norm == Linf() else [])]
        return tuple(chain)

    def shift(self, model: nn.Module | Model | None, x: Tensor, y: Tensor | None, index: Tensor) -> Shifted:
        tell = Bar("red team") if self.progress else silent
        return hunt(self, self.members, model, x, y, index, BUDGETS[self.strength], tell)

    def findings(self, standing: Standing) -> dict[str, Any]:
        """What was found, in numbers: accuracies in percent, and how many samples fell to whom."""
        titles = ["the sample itself", *(member.title for member in self.members)]
        found: dict[str, Any] = {"samples": len(standing.fooled), "strength": self.strength}
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
        passes = {"mean": standing.passes.mean().item(), "most": standing.passes.max().item(), "limit": BUDGETS[self.strength]}
        return found | {"gain": found["defended"]["worst_case"] - found["static"]["worst_case"], "passes": passes}

    def summary(self, standing: Standing) -> str:
        """What was found, in words: the defence always beside the static model in it.

        "static" is the worst case over all points that were tried against it, those of the transfers on every sample.
        """
        found = self.findings(standing)
        lines = [f"{found['samples']} samples, red team '{self.strength}'   clean   worst case"]
        for name in ("static", "defended"):
            lines.append(f"{name:10} {found[name]['clean']:28.1f} {found[name]['worst_case']:12.1f}")
        lines.append(f"worst case, defended minus static: {found['gain']:+.1f} points")
        for title, count in found["defended"]["fell_to"].items():
            lines.append(f"  fell to {title}: {count}")
        passes = found["passes"]
        lines.append(f"passes an image: {passes['mean']:.0f} on average, {passes['most']:.0f} at most, limit {passes['limit']}")
        return "\n".join(lines)
