"""Learn a gate from inputs: how often answers change there bounds how often they change on new inputs of the same kind."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from drq.decision import Decision
from drq.errors import require
from drq.objectives import log_odds
from drq.views.contest import outcome
from drq.views.gate import Gate, habits, margin_evidence, threshold_for
from drq.views.looking import Looking, Looks

Compared = tuple[tuple[float, ...], tuple[float, ...]]
Leads = Literal["handicapped", "standardised", "plain"]  # how leads of views are compared, see drq.DRQ.gated


def check_leads(leads: str) -> None:
    """One of the ways to compare leads."""
    known = get_args(Leads)
    require(leads in known, "leads", f"be one of {', '.join(known)}", repr(leads), "handicapped is the default")


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

    def threshold(self, evidence: Tensor, base: Tensor, label: Tensor) -> float:
        """The lowest one that fits."""
        change = label != base
        if self.labels is None or self.risk is None:
            return threshold_for(evidence, change, self.changes)
        return threshold_for(evidence, change & (base == self.labels.to(base.device)), self.risk)

    def gate(self, evidence: Tensor, base: Tensor, label: Tensor, gate: Gate) -> Gate:
        """The lowest threshold that fits, in the place of that of ``gate``."""
        threshold = self.threshold(evidence, base, label)
        made = Gate(threshold, gate.mean, gate.deviation)
        return made.measured((label != base) & (evidence > threshold))

    def handicaps(self, odds: Tensor, own: Tensor, base: Tensor, term_of: Sequence[int]) -> tuple[float, ...]:
        """What is taken from the leads of each view: the threshold that would fit if its term were alone, where it is above 0.

        Args:
            odds: (N, V, C) log-odds at views, the input first.
            own: (N,) those of the own answers at the input.
            base: (N,) the own answers.
            term_of: of every view but the input, the number of its term.
        """
        found = dict[int, float]()
        for term in set(term_of):
            best = odds[:, [0, *(place for place, each in enumerate(term_of, 1) if each == term)]].amax(1)
            threshold = self.threshold(best.amax(1) - own, base, best.argmax(1))
            found[term] = max(0.0, threshold) if threshold < math.inf else 0.0  # where nothing may change, no lead counts at all
        return tuple(found[each] for each in term_of)

    def compared(self, leads: Leads, odds: Tensor, own: Tensor, base: Tensor, term_of: Sequence[int]) -> Compared:
        """What is taken from the lead of every view but the input, and by what the rest is divided.

        Args:
            leads: one of the ways.
            odds: (N, V, C), see :meth:`handicaps`.
            own: (N,) likewise.
            base: (N,) likewise.
            term_of: likewise.
        """
        if leads == "plain":
            return (), ()
        if leads == "standardised":
            return habits(odds, own)
        handicaps = self.handicaps(odds, own, base, term_of)
        return handicaps, (1.0,) * len(handicaps)


def over_views(looking: Looking, x: Tensor, fit: Fit, leads: Leads) -> Gate:
    """A gate for views."""
    looks = list(looking.blocks(x))
    odds, own = torch.cat([each.odds for each in looks]), torch.cat([_own(each) for each in looks])
    base = torch.cat([each.logits.argmax(1) for each in looks])
    plain = Gate(-math.inf, *fit.compared(leads, odds, own, base, looking.views.term_of))
    found = [outcome(each.odds, each.logits, looking.near, plain) for each in looks]
    evidence, label = (torch.cat([getattr(each, name) for each in found]) for name in ("evidence", "open_label"))
    gate = fit.gate(evidence, base, label, plain)
    changed = (label != base) & (evidence > gate.threshold)
    ahead = _furthest(own, changed)
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
