"""Decide between classes by the log-odds of a model at views: the class whose best view is best, unless a gate holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from drq.decision import winner
from drq.objectives import log_odds
from drq.rows import Rows
from drq.views.gate import Gate

Near = Sequence[list[int]]  # of every view, the numbers of its neighbours


@dataclass(frozen=True, eq=False)
class Outcome(Rows):
    """What was decided for N samples; ``where`` tells at which view."""

    label: Tensor  # (N,)
    margin: Tensor  # (N,)
    log_odds: Tensor  # (N, C) in which classes are compared: standardised where the gate says so; at the input where it holds
    explored_log_odds: Tensor  # (N, C) the same before quantification over neighbouring views
    explored_at: Tensor  # (N, C) the view at which each class is best
    quantified_at: Tensor  # (N, C) its neighbour at which it is lowest
    open_label: Tensor  # (N,) the label if no gate held
    evidence: Tensor  # (N,) the lead of the best class over the own answer at the input
    kept: Tensor  # (N,) bool: the gate holds


def outcome(odds: Tensor, logits: Tensor, near: Near | None = None, gate: Gate | None = None) -> Outcome:
    """Decide for N samples from the log-odds of C classes at V views, the input itself first.

    Every class counts by its best view. With neighbours, it counts by the lowest view near that one. Ties go to the earlier view,
    to the own answer, then to the lower class.

    Args:
        odds: (N, V, C), minus infinity for classes that take no part and at views that were left out.
        logits: (N, C) at the input itself, also of classes that take no part: what stands where the gate holds.
        near: of every view its neighbours, itself among them; None where each stands for itself.
        gate: which own answers stand.
    """
    base, at_x = logits.argmax(1), log_odds(logits)
    own = odds[:, 0].gather(1, base[:, None])[:, 0]
    counted = odds if gate is None else gate.standardised(odds, own)
    explored = counted.amax(1)
    explored_at = (counted == explored[:, None]).int().argmax(1)  # the first of equals
    lowest, quantified_at = (explored, explored_at) if near is None else _lowest(counted, explored_at, near)
    label, margin = winner(lowest, base)
    evidence = lowest.amax(1) - own
    kept = torch.zeros_like(base, dtype=torch.bool) if gate is None else evidence <= gate.threshold
    stands, at_input = kept[:, None], torch.zeros_like(explored_at)
    return Outcome(
        label=torch.where(kept, base, label),
        margin=torch.where(kept, winner(at_x, base)[1], margin),
        log_odds=torch.where(stands, at_x, lowest),
        explored_log_odds=torch.where(stands, at_x, explored),
        explored_at=torch.where(stands, at_input, explored_at),
        quantified_at=torch.where(stands, at_input, quantified_at),
        open_label=label,
        evidence=evidence,
        kept=kept,
    )


def in_doubt(odds: Tensor, logits: Tensor, near: Near | None, gate: Gate | None, rounding: Tensor) -> Tensor:
    """(N,) bool: whether the label may be another one, since rounding moves differences of log-odds by up to ``rounding`` (N,).

    The other arguments are those of :func:`outcome`.
    """
    base = logits.argmax(1)
    own = odds[:, 0].gather(1, base[:, None])[:, 0]
    counted = odds if gate is None else gate.standardised(odds, own)
    if gate is not None:
        rounding = rounding / min((1.0, *gate.deviation))  # so much are leads stretched
    least, most = _span(counted, near, rounding)
    label = least.argmax(1, keepdim=True)
    ahead = least.gather(1, label)[:, 0] - most.scatter(1, label, -torch.inf).amax(1)
    if gate is None:
        return ahead <= rounding
    holds, opens = most.amax(1) - own + rounding <= gate.threshold, least.amax(1) - own - rounding > gate.threshold
    return ~holds & ~(opens & (ahead > rounding))


def _span(odds: Tensor, near: Near | None, rounding: Tensor) -> tuple[Tensor, Tensor]:
    """(N, C) the least and the most by which each class may count, since rounding may hide which of its views is the best."""
    explored = odds.amax(1, keepdim=True)
    if near is None:
        return explored[:, 0], explored[:, 0]
    heights = _heights(odds)
    lowest = torch.stack([heights[:, each].amin(1) for each in near], 1)
    best = (odds >= explored - rounding[:, None, None]) & (odds > -torch.inf)
    least, most = torch.where(best, lowest, torch.inf).amin(1), torch.where(best, lowest, -torch.inf).amax(1)
    return torch.where(best.any(1), least, -torch.inf), most


def _heights(odds: Tensor) -> Tensor:
    """Log-odds among which the lowest one is looked for: views that were left out are nobody's neighbours."""
    return torch.where(odds.amax(2, keepdim=True) > -torch.inf, odds, torch.inf)


def _lowest(odds: Tensor, explored_at: Tensor, near: Near) -> tuple[Tensor, Tensor]:
    """(N, C) the lowest log-odds of every class among the neighbours of its best view, and where."""
    heights = _heights(odds)
    best, at = torch.full_like(odds[:, 0], -torch.inf), explored_at
    for number, neighbours in enumerate(near):
        places = torch.tensor(neighbours, device=odds.device)
        low = heights[:, places].min(1)
        here = explored_at == number
        best, at = torch.where(here, low.values, best), torch.where(here, places[low.indices], at)
    return best, at


def table(logits: Tensor, classes: Tensor | None) -> Tensor:
    """Log-odds (N, V, C) of logits at views; classes (N, K) are those that take part, None for all; no others count.

    Views whose logits are not all finite are left out.
    """
    samples, views, count = logits.shape
    odds = log_odds(logits.flatten(0, 1)).view(samples, views, count)
    odds = torch.where(logits.isfinite().all(2, keepdim=True), odds, -torch.inf)
    if classes is None:
        return odds
    taking_part = torch.zeros(samples, count, dtype=torch.bool, device=odds.device).scatter(1, classes, True)
    return torch.where(taking_part[:, None], odds, -torch.inf)
