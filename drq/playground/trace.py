"""Record every step of DRQ's searches around one input. The searches are the method's own; nothing is computed twice."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from drq.decision import Decision, conclude
from drq.drq import DRQ
from drq.method.calibration import Calibrated
from drq.method.execution import check_radius, prepare
from drq.method.regions import Regions, one_by_one
from drq.search.loop import Problems, Progress, solve


@dataclass(frozen=True, eq=False)
class SearchPath:
    """The points that one search visited, for each of K classes; it made T - 1 steps."""

    points: Tensor  # (T, K, ...) the points visited, the start first
    best: Tensor  # (T, K, ...) the best admitted point so far; the start where none was admitted
    admitted: Tensor  # (T, K) bool: whether any point was admitted so far
    labels: Tensor  # (K,) the classes; empty for calibration, which searches for any class but the model's answer


@dataclass(frozen=True, eq=False)
class Trace:
    """All searches of one decision of DRQ."""

    x: Tensor  # (1, ...)
    decision: Decision  # with its points
    calibration: SearchPath | None  # None where the radius is given
    exploration: SearchPath | None  # None where calibration found no radius
    quantification: SearchPath | None


def trace(robust: DRQ, x: Tensor) -> Trace:
    """Run ``robust.decide(x)`` for one sample x (1, ...) and record every step, without pruning any class."""
    x, execution = prepare(robust.model, x.detach(), robust.norm, robust.bounds, robust.frozen)
    radius = robust.radius if isinstance(robust.radius, Calibrated) else check_radius(robust.radius, x)
    searches = (robust.alpha, robust.explore, robust.quantify, robust.classes, robust.explore_base)
    regions = Regions(execution, radius, *searches, "none", True)
    paths: list[SearchPath] = []

    def solve_and_record(problems: Problems) -> Progress:
        progress, path = _solve_stepwise(problems)
        paths.append(path)
        return progress

    with torch.inference_mode(False), torch.no_grad():
        (block,) = regions.blocks(x, partial(one_by_one, solve_and_record))
    *before, explored, quantified = paths
    decision, calibration = conclude(block, keep_points=True), before[0] if before else None
    if not decision.found:  # without a radius, both searches are empty
        return Trace(x, decision, calibration, None, None)
    explored = replace(explored, labels=block.classes[0])
    return Trace(x, decision, calibration, explored, replace(quantified, labels=block.candidates.label))


def _solve_stepwise(problems: Problems) -> tuple[Progress, SearchPath]:
    """Solve the problems one step at a time, and keep every point."""
    steps = []
    for count in problems.observations:
        point = problems.progress.state.point
        problems = problems.continued_from(solve(problems.limited_to(range(count, count + 1))))
        found = problems.progress.best
        steps.append((point, found.point, found.admitted))
    points, best, admitted = (torch.stack(each) for each in zip(*steps, strict=True))
    return problems.progress, SearchPath(points, best, admitted, torch.zeros(0, dtype=torch.long))
