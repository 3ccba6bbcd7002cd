"""What a defended model answers, in the columns of a record."""

from __future__ import annotations

import time
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn

from drq.decision import Decision
from drq.drq import DRQ
from drq.method.calibration import Calibrated
from drq.rows import Rows
from drq.search.gradient import Gradient
from drq.threats.target import Target, check_label, check_scores

POINTS_BYTES = 2**28  # of the points that DRQ keeps for a batch


@dataclass(frozen=True, eq=False)
class Answers(Rows):
    """What a defence says about N samples. Columns that only DRQ has are None for others."""

    prediction: Tensor  # (N,)
    passes: Tensor  # (N,)
    seconds: Tensor  # (N,)
    margin: Tensor | None = None  # (N,)
    robustness: Tensor | None = None  # (N,) of the answered class
    true_robustness: Tensor | None = None
    explored: Tensor | None = None
    true_explored: Tensor | None = None
    radius: Tensor | None = None  # (N,) NaN where none was found
    found: Tensor | None = None
    candidates: Tensor | None = None
    way: Tensor | None = None  # (N, ...) from the sample to the quantified point of the answered class

    @property
    def columns(self) -> dict[str, Tensor]:
        """Those of a record."""
        present = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "way"}
        return {name: value for name, value in present.items() if value is not None}


def answered(defence: nn.Module, x: Tensor, y: Tensor, model: nn.Module | None = None) -> Answers:
    """Ask a defended model about samples whose true labels are known.

    Args:
        defence: the model in its defence.
        x: (N, ...) samples.
        y: (N,) their labels, which only choose what is reported.
        model: the one in the defence, whose evaluations count; None for its ``model``, if it decides, else for itself.
    """
    if not isinstance(defence, DRQ):
        return _by_other(defence, x, model)
    parts = [_by_drq(defence, x[rows], y[rows]) for rows in _pieces(defence, x)]
    return parts[0].joined(parts[1:])


def _pieces(defence: DRQ, x: Tensor) -> list[slice]:
    """Batches whose kept points fit in memory; the size depends on nothing but shapes, so that a repetition has the same."""
    with torch.no_grad():
        classes = defence.classes or defence.model(x[:1]).shape[1]
    size = max(1, POINTS_BYTES // (2 * classes * x[0].numel() * x.element_size()))
    return [slice(first, first + size) for first in range(0, len(x), size)]


def _by_drq(defence: DRQ, x: Tensor, y: Tensor) -> Answers:
    began = time.perf_counter()
    decision = defence.decide(x)
    label = decision.label
    each = _seconds(began, label)

    def of(table: Tensor, column: Tensor) -> Tensor:
        return table.gather(1, column[:, None])[:, 0]

    return Answers(
        prediction=label,
        passes=decision.passes,
        seconds=each,
        margin=decision.margin,
        robustness=of(decision.robustness, label),
        true_robustness=of(decision.robustness, y),
        explored=of(decision.explored_confidence, label),
        true_explored=of(decision.explored_confidence, y),
        radius=torch.where(decision.found, decision.radius, torch.nan),
        found=decision.found,
        candidates=decision.reached.sum(1),
        way=_way(decision) if defence.front is None else None,  # behind a front there is no way from the input
    )


def _way(decision: Decision) -> Tensor | None:
    """From the sample to the quantified point of the answer; NaN where nothing was quantified, None without points."""
    if decision.quantified is None or decision.x is None:
        return None
    rank = (decision.classes == decision.label[:, None]).long().argmax(1)
    return decision.quantified[torch.arange(len(rank), device=rank.device), rank] - decision.x


def _by_other(defence: nn.Module, x: Tensor, model: nn.Module | None) -> Answers:
    inside = model if any(each is model for each in defence.modules()) else None
    counted = Target(defence) if inside is None else Target(inside)
    began = time.perf_counter()
    with counted.metered() as meter:
        label = _label(defence, x)
    passes = torch.full_like(label, -(-meter.rows // len(x)))
    return Answers(prediction=label, passes=passes, seconds=_seconds(began, label))


def _label(defence: Any, x: Tensor) -> Tensor:
    """What it answers. It is asked once: a second look would cost as much, and could differ."""
    with torch.enable_grad():  # a defence may need gradients of its own
        if hasattr(defence, "decide"):
            return check_label(defence.decide(x), x)
        return check_scores(defence(x), x).argmax(1)


def _seconds(began: float, label: Tensor) -> Tensor:
    """The share of each sample in the time since then."""
    if label.is_cuda:
        torch.cuda.synchronize(label.device)
    return torch.full_like(label, (time.perf_counter() - began) / len(label), dtype=torch.float64)


def settings(defence: nn.Module) -> dict[str, float]:
    """The settings of DRQ that records carry, as far as it has them."""
    if not isinstance(defence, DRQ):
        return {}
    found: dict[str, float] = {"alpha": float(defence.alpha)}
    for name, method in (("explore_steps", defence.explore), ("quantify_steps", defence.quantify)):
        if isinstance(method, Gradient):
            found[name] = method.steps
    if isinstance(defence.radius, Calibrated) and defence.radius.confidence is not None:
        found["threshold"] = defence.radius.confidence
    return found
