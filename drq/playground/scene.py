"""Compute what the plane tab shows: the regions of a classifier and of DRQ, and DRQ's searches from one point.

Everything is a function of the settings on the page. Slow results are cached by settings, so users do not disturb each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from drq.drq import DRQ
from drq.errors import require
from drq.method.calibration import Calibrated
from drq.norms import as_norm
from drq.playground.points import Points, classifier, points
from drq.playground.trace import SearchPath, Trace, trace
from drq.search.gradient import Gradient
from drq.system.threads import threads

MOST_STEPS = 40
MOST_RADIUS = 0.4
MOST_EVALUATIONS = 200_000  # of the model, about, for DRQ's regions: a quarter of a second
FINEST, COARSEST = 64, 24  # pixels along a side of DRQ's regions
BASE_PIXELS = 160  # along a side of the classifier's regions, which take one evaluation a pixel
STRIDE = 5  # every so many steps of calibration there is a frame: it has 100 steps
STAGES = ("calibration", "exploration", "quantification")


@dataclass(frozen=True)
class PlaneSettings:
    """The choices on the plane tab.

    Args:
        data, model: names in :mod:`drq.playground.points`.
        norm: one of :data:`drq.registry.NORMS`.
        radius: the radius of exploration; None calibrates it for the point.
        confidence: the confidence that calibration asks for; None for that of the point itself.
        alpha: the radius of quantification, as a share of that of exploration.
        steps: the steps of exploration and of quantification.
    """

    data: str = "Gaussians"
    model: str = "RBF support vector machine"
    norm: str = "l2"
    radius: float | None = None
    confidence: float | None = 0.99
    alpha: float = 0.5
    steps: int = 20

    def __post_init__(self) -> None:
        points(self.data)
        as_norm(self.norm)
        fits = self.radius is None or (math.isfinite(self.radius) and 0 <= self.radius <= MOST_RADIUS)
        require(fits, "radius", f"lie between 0 and {MOST_RADIUS}", self.radius, "the plane is 1 wide")
        require(1 <= self.steps <= MOST_STEPS, "steps", f"lie between 1 and {MOST_STEPS}", self.steps, "20 are usual")

    def robust(self, radius: float | None) -> DRQ:
        """Return DRQ with this radius; None calibrates it."""
        model, search = classifier(self.model, self.data), Gradient(self.steps)
        chosen = Calibrated(self.confidence) if radius is None else radius
        return DRQ(model, self.norm, chosen, alpha=self.alpha, explore=search, quantify=search)


class LabelGrid(NamedTuple):
    """The answers on a grid over the unit square, from the lower left corner to the upper right."""

    label: Tensor  # (H, W)
    lead: Tensor  # (H, W) lead of the answer over the second class: 0 on a boundary


@dataclass(frozen=True, eq=False)
class Scene:
    """Everything that the four panels show."""

    settings: PlaneSettings
    samples: Points
    base: LabelGrid  # the classifier's regions
    defended: LabelGrid  # DRQ's regions, with the radius of the point
    trace: Trace
    confidence: Tensor  # (C,) the classifier's confidences at the point
    nearest: int  # class of the point that calibration found; that of the point itself where there is none

    @property
    def found(self) -> bool:
        """Whether calibration found a radius, or one was given."""
        return bool(self.trace.decision.found)

    @property
    def radius(self) -> float:
        """The radius of exploration; 0 where calibration found none."""
        return float(self.trace.decision.radius) if self.found else 0.0

    @property
    def frames(self) -> list[tuple[str, int]]:
        """The frames of the animation, in order: the stage, and how many of its steps are done."""
        path = self.trace.calibration
        frames = [] if path is None else [(STAGES[0], step) for step in range(0, len(path.points), STRIDE)]
        for stage, path in zip(STAGES[1:], (self.trace.exploration, self.trace.quantification), strict=True):
            frames += [] if path is None else [(stage, step) for step in range(len(path.points))]
        return frames

    def path(self, stage: str) -> SearchPath | None:
        """Return the path of a stage's search."""
        path: SearchPath | None = getattr(self.trace, stage)
        return path


@lru_cache(maxsize=256)
@threads(1)
def scene(settings: PlaneSettings, across: float, up: float) -> Scene:
    """Compute the scene for the point at these coordinates."""
    inside = 0 <= across <= 1 and 0 <= up <= 1
    require(inside, "point", "lie in the unit square", f"({across:g}, {up:g})", "click into a panel")
    x = torch.tensor([[across, up]])
    searches = trace(settings.robust(settings.radius), x)
    radius = float(searches.decision.radius) if searches.decision.found else 0.0
    model = classifier(settings.model, settings.data)
    with torch.no_grad():
        confidence = model(x).softmax(1)[0]
        nearest = int(model(x if searches.calibration is None else searches.calibration.best[-1]).argmax())
    base = base_regions(settings.model, settings.data)
    defended = defended_regions(settings, radius) if radius > 0 else base  # without a radius the classifier answers
    return Scene(settings, points(settings.data), base, defended, searches, confidence, nearest)


@lru_cache(maxsize=16)
def base_regions(model: str, data: str) -> LabelGrid:
    """Return the regions of the classifier alone."""
    with torch.no_grad():
        best = classifier(model, data)(grid(BASE_PIXELS)).softmax(1).topk(2)
    first, second = best.values.reshape(BASE_PIXELS, BASE_PIXELS, 2).unbind(-1)
    return LabelGrid(best.indices[:, 0].reshape(BASE_PIXELS, BASE_PIXELS), first - second)


@lru_cache(maxsize=128)
def defended_regions(settings: PlaneSettings, radius: float) -> LabelGrid:
    """Return the regions of DRQ with this radius everywhere, since calibrating at every point would cost more than all else."""
    pixels = resolution(settings)
    decision = settings.robust(radius).decide(grid(pixels))
    return LabelGrid(decision.label.reshape(pixels, pixels), decision.margin.reshape(pixels, pixels))


def resolution(settings: PlaneSettings) -> int:
    """Return how many pixels along a side DRQ's regions can have while the page stays responsive."""
    evaluations = 2 * settings.steps * points(settings.data).classes
    return max(COARSEST, min(FINEST, math.isqrt(MOST_EVALUATIONS // evaluations)))


def grid(pixels: int) -> Tensor:
    """Return points (pixels^2, 2) from corner to corner, row by row, the lowest row first."""
    line = torch.linspace(0, 1, pixels)
    up, across = torch.meshgrid(line, line, indexing="ij")
    return torch.stack([across, up], -1).reshape(-1, 2)
