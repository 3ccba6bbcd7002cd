"""Collect the answers of a defended model, in the columns of a record."""

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
from drq.threats.target import RowCounter, Target, check_label, check_scores

POINTS_BYTES = 2**28  # most memory for the points that DRQ keeps for a batch


@dataclass(frozen=True, eq=False)
class Answers(Rows):
    """The answers of a defence for N samples. Columns that only DRQ has are None for others."""

    prediction: Tensor  # (N,)
    passes: Tensor  # (N,)
    seconds: Tensor  # (N,)
    forward_passes: Tensor | None = None  # (N,) None where it cannot be told
    margin: Tensor | None = None  # (N,)
    view: Tensor | None = None  # (N,) where it looks at views
    kept: Tensor | None = None  # (N,) where it has a gate
    gate_margin: Tensor | None = None  # (N,)
    nonfinite: Tensor | None = None  # (N,)
    robustness: Tensor | None = None  # (N,) robustness of the answered class
    true_robustness: Tensor | None = None
    explored: Tensor | None = None
    true_explored: Tensor | None = None
    radius: Tensor | None = None  # (N,) NaN where none was found
    found: Tensor | None = None
    candidates: Tensor | None = None
    way: Tensor | None = None  # (N, ...) vector from the sample to the quantified point of the answered class

    @property
    def columns(self) -> dict[str, Tensor]:
        """The columns of a record."""
        present = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "way"}
        return {name: value for name, value in present.items() if value is not None}


def answered(defence: nn.Module, x: Tensor, y: Tensor, model: nn.Module | None = None) -> Answers:
    """Run a defended model on samples whose true labels are known, and time it.

    Args:
        defence: the defended model.
        x: (N, ...) samples.
        y: (N,) their true labels, which only choose what is reported.
        model: the model in the defence, whose evaluations are counted; None for its ``model``, if it decides, else for itself.
    """
    if not isinstance(defence, DRQ):
        return _by_other(defence, x, model)
    parts = [_by_drq(defence, x[rows], y[rows]) for rows in _pieces(defence, x)]
    return parts[0].joined(parts[1:])


def _pieces(defence: DRQ, x: Tensor) -> list[slice]:
    """Return batches whose kept points fit in memory; their size depends on shapes only, so that it can be reproduced."""
    with torch.no_grad():
        classes = defence.classes or defence.model(x[:1]).shape[1]
    if not defence.keep_points:
        return [slice(None)]
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
        forward_passes=decision.forward_passes,
        seconds=each,
        view=None if defence.views is None else decision.view,
        kept=None if defence.gate is None else decision.kept,
        gate_margin=None if defence.gate is None else decision.gate_margin,
        nonfinite=None if defence.ball_searched else decision.nonfinite,
        margin=decision.margin,
        robustness=of(decision.robustness, label),
        true_robustness=of(decision.robustness, y),
        explored=of(decision.explored_confidence, label),
        true_explored=of(decision.explored_confidence, y),
        radius=torch.where(decision.found, decision.radius, torch.nan) if defence.ball_searched else None,
        found=decision.found,
        candidates=decision.reached.sum(1),
        way=_way(decision) if defence.front is None else None,  # behind a front the points are not in the space of the input
    )


def _way(decision: Decision) -> Tensor | None:
    """Return the vector from the sample to the answer's quantified point; NaN if it was not quantified, None without points."""
    if decision.quantified is None or decision.x is None:
        return None
    rank = (decision.classes == decision.label[:, None]).long().argmax(1)
    return decision.quantified[torch.arange(len(rank), device=rank.device), rank] - decision.x


class PassCounter(RowCounter):
    """Counts the rows that a module evaluates, and those of them that a gradient was asked of."""

    followed = 0
    known = True  # whether the module's outputs are tensors, which tell

    def count(self, module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], output: object) -> None:
        """The forward hook."""
        before = self.rows
        super().count(module, inputs, named, output)
        self.known &= isinstance(output, Tensor)
        if isinstance(output, Tensor) and output.requires_grad:
            counts = iter([self.rows - before])  # once, however often it is followed

            def follow(_: Tensor) -> None:
                self.followed += next(counts, 0)

            output.register_hook(follow)  # type: ignore[no-untyped-call]


def _by_other(defence: nn.Module, x: Tensor, model: nn.Module | None) -> Answers:
    inside = model if any(each is model for each in defence.modules()) else None
    counted, meter = Target(defence if inside is None else inside).counted, PassCounter()
    began = time.perf_counter()
    handle = counted.register_forward_hook(meter.count, with_kwargs=True)
    try:
        label = _label(defence, x)
    finally:
        handle.remove()
    passes, forward = (torch.full_like(label, -(-rows // len(x))) for rows in (meter.rows, meter.rows - meter.followed))
    return Answers(
        prediction=label, passes=passes, forward_passes=forward if meter.known else None, seconds=_seconds(began, label)
    )


def _label(defence: Any, x: Tensor) -> Tensor:
    """Return the label of a defence from one evaluation: a second would cost as much, and might differ."""
    with torch.enable_grad():  # a defence may need gradients of its own
        if hasattr(defence, "decide"):
            return check_label(defence.decide(x), x)
        return check_scores(defence(x), x).argmax(1)


def _seconds(began: float, label: Tensor) -> Tensor:
    """Return the time since ``began``, divided equally among the samples."""
    if label.is_cuda:
        torch.cuda.synchronize(label.device)
    return torch.full_like(label, (time.perf_counter() - began) / len(label), dtype=torch.float64)


def settings(defence: nn.Module) -> dict[str, float]:
    """Return the settings of DRQ that are recorded; empty for other defences."""
    if not isinstance(defence, DRQ):
        return {}
    values: dict[str, float] = {"alpha": float(defence.alpha)}
    if not defence.ball_searched:
        return values
    for name, method in (("explore_steps", defence.explore), ("quantify_steps", defence.quantify)):
        if isinstance(method, Gradient):
            values[name] = method.steps
    if isinstance(defence.radius, Calibrated) and defence.radius.confidence is not None:
        values["threshold"] = defence.radius.confidence
    return values
