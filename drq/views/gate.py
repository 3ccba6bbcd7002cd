"""Keep the model's own answer unless the evidence for another exceeds what inputs show for which it should stand."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from numbers import Real
from typing import Any, Self

import torch
from torch import Tensor

from drq.decision import Decision, winner
from drq.errors import require

logger = logging.getLogger("drq")

SMALLEST = 1e-6  # deviations below it count as one: a view that never differs has no habit to measure by
FEW = 100  # inputs below which the bound is too wide to rely on
ROUNDING = 1e-4  # by which evidence may grow in another batch, relative to it: the last answer that was to stand still does
NO_VIEWS = "have no means where a ball is searched or views are the input alone"
SAME = 100  # rounding errors by which equal evidence may differ within a batch
CONFIDENCE = 0.95  # of that bound


@dataclass(frozen=True)
class Gate:
    """Plain numbers, learnt by :meth:`drq.DRQ.gated`, that can be saved.

    Args:
        threshold: the model's own answer stands unless the evidence exceeds it. Evidence is the lead of the best class at its
            best view over the own answer at the input itself, in log-odds; for a ball it is the margin of the decision, negative
            where the own answer is the best.
        mean, deviation: of each view besides the input, by which its leads are standardised; empty for not at all. So a view
            that is always confident must be so beyond its habit.
        ahead: log-odds of the own answer from which on views are not looked at, with ``prune="race"``.
        inputs, changed: how many inputs it was learnt from, and on how many of them the answer changes.
    """

    threshold: float
    mean: tuple[float, ...] = ()
    deviation: tuple[float, ...] = ()
    ahead: float = math.inf
    inputs: int = 0
    changed: int = 0

    def __post_init__(self) -> None:
        for name in ("threshold", "ahead"):
            value = getattr(self, name)
            number = isinstance(value, Real) and not isinstance(value, bool) and not math.isnan(float(value))
            require(number, name, "be a number", repr(value), "inf keeps every answer of the model, -inf none")
        for name in ("mean", "deviation"):
            value = getattr(self, name)
            listed = isinstance(value, tuple | list) and all(isinstance(each, Real) for each in value)
            finite = listed and all(map(math.isfinite, value))
            require(finite, name, "be finite numbers, one for each view but the input", repr(value), "drq.DRQ.gated learns them")
            object.__setattr__(self, name, tuple(map(float, value)))
        counts = all(isinstance(each, int) and not isinstance(each, bool) for each in (self.inputs, self.changed))
        rule, got = "be numbers of inputs, changed not above inputs", f"{self.inputs!r} and {self.changed!r}"
        require(counts and 0 <= self.changed <= self.inputs, "inputs and changed", rule, got, "drq.DRQ.gated counts them")
        fits = len(self.mean) == len(self.deviation) and all(each > 0 for each in self.deviation)
        require(fits, "deviation", "be numbers above 0, as many as mean has", repr(self.deviation), "drq.DRQ.gated learns them")

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> Self:
        """The gate of these numbers, such as its ``record``."""
        known = [each.name for each in fields(cls)]
        fits = "threshold" in record and set(record) <= set(known)
        require(fits, "gate", f"have a threshold, and else of {', '.join(known[1:])}", list(record), "robust.gated(x) learns one")
        return cls(**record)

    @property
    def bound(self) -> float:
        """The share of new inputs of the same kind whose answer changes, at most, with 95 % confidence."""
        return largest_share(self.changed, self.inputs)

    def __str__(self) -> str:
        """What it promises."""
        if not self.inputs:
            return f"threshold {self.threshold:.4g}"
        found = f"{self.changed} of {self.inputs} answers change ({self.changed / self.inputs:.1%})"
        return f"{found}; of new inputs of this kind at most {self.bound:.1%}, with 95 % confidence"

    def check(self, views: int) -> None:
        """Numbers of each view belong to as many views."""
        fits = not self.mean or len(self.mean) == views - 1
        rule = f"have a mean and a deviation for each of {views - 1} views besides the input" if views > 1 else NO_VIEWS
        require(fits, "gate", rule, len(self.mean), "it was learnt for other views: robust.gated(x) learns another")

    def standardised(self, odds: Tensor, own: Tensor) -> Tensor:
        """Log-odds (N, V, C) at views, their leads over those of the ``own`` answer (N,) at the input in units of their habit."""
        if not self.mean:
            return odds
        mean, deviation = (torch.tensor(each, dtype=odds.dtype, device=odds.device) for each in (self.mean, self.deviation))
        here = own[:, None, None]
        others = here + (odds[:, 1:] - here - mean[:, None]) / deviation[:, None]
        return torch.cat([odds[:, :1], others], 1)

    @property
    def record(self) -> dict[str, Any]:
        """Its numbers, as values that JSON and TOML can hold."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    def measured(self, change: Tensor) -> Self:
        """The same, with the number of inputs that it was learnt from; ``change`` (N,) says whose answer changes."""
        made = type(self)(**self.record | {"inputs": len(change), "changed": int(change.sum())})
        logger.info("drq: gate: %s", made)
        if len(change) < FEW and self.threshold < math.inf:
            message = f"drq: a gate learnt from {len(change)} inputs promises little: {made}"
            warnings.warn(message, stacklevel=5)  # where gated() was called
        return made


def habits(odds: Tensor, own: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The mean and the deviation, over inputs, of the lead of every other view (N, V, C) over the ``own`` answer (N,)."""
    lead = odds[:, 1:].amax(2).double() - own[:, None].double()
    seen = lead.isfinite()  # where the view was not left out
    count = seen.sum(0).clamp(min=1)
    mean = torch.where(seen, lead, 0).sum(0) / count
    deviation = (torch.where(seen, lead - mean, 0).square().sum(0) / count).sqrt()
    return tuple(mean.tolist()), tuple(torch.where(deviation < SMALLEST, 1.0, deviation).tolist())


def threshold_for(evidence: Tensor, change: Tensor, changes: float) -> float:
    """The lowest threshold of evidence (N,), rounding aside, that at most a share of the inputs that would ``change`` exceeds."""
    if changes == 0:
        return math.inf
    allowed = math.floor(changes * len(evidence) + 1e-9)
    leading = evidence[change].double().sort(descending=True).values
    if len(leading) <= allowed:
        return -math.inf
    last = float(leading[allowed])
    size = max(1.0, abs(last))
    above = leading[leading > last + SAME * torch.finfo(evidence.dtype).eps * size]
    apart = float(above[-1]) - last if len(above) else math.inf
    return last + min(ROUNDING * size, apart / 2)


def largest_share(count: int, total: int) -> float:
    """The largest probability with which so few successes in so many trials are not improbable (Clopper and Pearson 1934).

    A threshold that is an order statistic of ``total`` inputs, so that it lets ``count`` of them through, lets a new one
    through with a probability below this bound, in 95 % of all such samples.

    >>> round(largest_share(0, 100), 4)  # 1 - 0.05 ** (1 / 100)
    0.0295
    """
    if count >= total:
        return 1.0
    low, high = count / total, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _at_most(count, total, middle) > 1 - CONFIDENCE else (low, middle)
    return high


def _at_most(count: int, total: int, share: float) -> float:
    """The probability of at most ``count`` successes in ``total`` trials."""
    if not 0 < share < 1:
        return float(share <= 0)
    successes = torch.arange(count + 1, dtype=torch.float64)
    ways = math.lgamma(total + 1) - torch.lgamma(successes + 1) - torch.lgamma(total - successes + 1)
    return float((ways + successes * math.log(share) + (total - successes) * math.log1p(-share)).exp().sum())


def margin_evidence(decision: Decision) -> Tensor:
    """(N,) the margin of another answer than the classifier's own, and minus the margin where its own is the best."""
    return torch.where(decision.label != decision.base_label, decision.margin, -decision.margin)


def gated_decision(decision: Decision, gate: Gate) -> Decision:
    """The decision with the classifier's own answer wherever the margin does not exceed the threshold."""
    evidence = margin_evidence(decision)
    kept, base = evidence <= gate.threshold, decision.base_label
    stands = kept[:, None]
    log_odds_at_x = decision.base_log_odds
    odds = torch.where(stands, log_odds_at_x, decision.log_odds)
    return replace(
        decision,
        label=torch.where(kept, base, decision.label),
        margin=torch.where(kept, winner(log_odds_at_x, base)[1], decision.margin),
        robustness=torch.where(stands, log_odds_at_x.sigmoid(), decision.robustness),
        log_odds=odds,
        explored_log_odds=torch.where(stands, log_odds_at_x, decision.explored_log_odds),
        reached=decision.reached | stands,
        exact=decision.exact | stands,
        view=torch.where(kept, 0, decision.view),
        kept=kept,
        gate_margin=evidence - gate.threshold,
    )
