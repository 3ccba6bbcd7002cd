"""Learn a gate from inputs: how often answers change there bounds how often they change on new inputs of the same kind."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import NamedTuple

import torch
from torch import Tensor

from drq.decision import Decision
from drq.errors import require
from drq.objectives import log_odds
from drq.views.contest import outcome
from drq.views.gate import Gate, habits, margin_evidence, threshold_for
from drq.views.looking import Looking, Looks


def check_share(name: str, share: float) -> None:
    """A share of inputs."""
    fits = isinstance(share, Real) and not isinstance(share, bool) and 0 <= share <= 1
    require(fits, name, "be a share from 0 to 1", repr(share), "0.05 lets one answer in twenty change")


class Fit(NamedTuple):
    """What a gate is fitted to: a share of answers that may change, or of right ones that may be spoilt."""

    changes: float
    labels: Tensor | None
    risk: float | None

    def check(self, x: Tensor) -> None:
        """Shares are shares, and labels belong to inputs."""
        check_share("changes", self.changes)
        if self.risk is not None:
            check_share("risk", self.risk)
        require(
            (self.labels is None) == (self.risk is None), "risk", "be given with labels", repr(self.risk), "give both or none"
        )
        some = isinstance(x, Tensor) and x.dim() > 0 and len(x) > 0
        got = f"shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
        require(some, "x", "be a tensor with at least one input", got, "some hundred promise something")
        if self.labels is not None:
            fits = isinstance(self.labels, Tensor) and self.labels.shape == x.shape[:1]
            require(fits, "labels", f"be a tensor of {len(x)} classes", repr(self.labels)[:80], "one for each input")

    def gate(self, evidence: Tensor, base: Tensor, label: Tensor, gate: Gate) -> Gate:
        """The lowest threshold that fits, in the place of that of ``gate``."""
        change = label != base
        if self.labels is None or self.risk is None:
            threshold = threshold_for(evidence, change, self.changes)
        else:
            threshold = threshold_for(evidence, change & (base == self.labels.to(base.device)), self.risk)
        made = Gate(threshold, gate.mean, gate.deviation)
        return made.measured(change & (evidence > threshold))


def over_views(looking: Looking, x: Tensor, fit: Fit, standardised: bool) -> Gate:
    """A gate for views."""
    looks = list(looking.blocks(x))
    plain = Gate(-math.inf)
    if standardised:
        odds, own = torch.cat([each.odds for each in looks]), torch.cat([_own(each) for each in looks])
        plain = Gate(-math.inf, *habits(odds, own))
    found = [outcome(each.odds, each.logits, looking.near, plain) for each in looks]
    base = torch.cat([each.logits.argmax(1) for each in looks])
    evidence, label = (torch.cat([getattr(each, name) for each in found]) for name in ("evidence", "open_label"))
    gate = fit.gate(evidence, base, label, plain)
    changed = (label != base) & (evidence > gate.threshold)
    ahead = _furthest(torch.cat([_own(each) for each in looks]), changed)
    return Gate(**gate.record | {"ahead": ahead})


def over_ball(decisions: Sequence[Decision], fit: Fit) -> Gate:
    """A gate for a ball: its evidence is the margin of the decision."""
    base, label = (torch.cat([getattr(each, name) for each in decisions]) for name in ("base_label", "label"))
    return fit.gate(torch.cat([*map(margin_evidence, decisions)]), base, label, Gate(-math.inf))


def _own(looks: Looks) -> Tensor:
    """(N,) log-odds of the own answers at the inputs themselves."""
    return log_odds(looks.logits, looks.logits.argmax(1))


def _furthest(own: Tensor, changed: Tensor) -> float:
    """The log-odds of the own answer from which on none of them changed."""
    return float(torch.nextafter(own[changed].max(), own.new_tensor(math.inf))) if bool(changed.any()) else math.inf
