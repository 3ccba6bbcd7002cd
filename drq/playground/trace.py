"""The searches of DRQ around one input, step by step. They are the method's own: here they are only watched."""

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
class Path:
    """Where one search went, a row for each class that was searched for; T points were looked at."""

    points: Tensor  # (T, K, ...) that were looked at, the start first
    best: Tensor  # (T, K, ...) of those so far, the best that counts; the start where none does
    counts: Tensor  # (T, K) bool: whether any of them counts yet
    labels: Tensor  # (K,) the classes; empty for calibration, which looks for any other than the model's own


@dataclass(frozen=True, eq=False)
class Journey:
    """Everything that DRQ did at one input."""

    x: Tensor  # (1, ...)
    decision: Decision  # with its points
    calibration: Path | None  # None where the radius is set
    exploration: Path | None  # None where calibration found no radius
    quantification: Path | None


def journey(robust: DRQ, x: Tensor) -> Journey:
    """What ``robust.decide(x)`` does for one sample x (1, ...), with every step. All classes are followed to the end."""
    x, execution = prepare(robust.model, x.detach(), robust.norm, robust.bounds, robust.frozen)
    radius = robust.radius if isinstance(robust.radius, Calibrated) else check_radius(robust.radius, x)
    searches = (robust.alpha, robust.explore, robust.quantify, robust.classes, robust.explore_base)
    regions = Regions(execution, radius, *searches, "none", True)
    paths: list[Path] = []

    def watched(problems: Problems) -> Progress:
        progress, path = _followed(problems)
        paths.append(path)
        return progress

    with torch.inference_mode(False), torch.no_grad():
        (block,) = regions.blocks(x, partial(one_by_one, watched))
    *before, explored, quantified = paths
    decision, calibration = conclude(block, keep_points=True), before[0] if before else None
    if not decision.found:  # then both searches had nothing to do
        return Journey(x, decision, calibration, None, None)
    explored = replace(explored, labels=block.classes[0])
    return Journey(x, decision, calibration, explored, replace(quantified, labels=block.candidates.label))


def _followed(problems: Problems) -> tuple[Progress, Path]:
    """Solve them one look at a time, and keep what was seen."""
    seen = []
    for count in problems.observations:
        point = problems.progress.state.point
        problems = problems.continued_from(solve(problems.limited_to(range(count, count + 1))))
        found = problems.progress.best
        seen.append((point, found.point, found.admitted))
    points, best, counts = (torch.stack(each) for each in zip(*seen, strict=True))
    return problems.progress, Path(points, best, counts, torch.zeros(0, dtype=torch.long))
