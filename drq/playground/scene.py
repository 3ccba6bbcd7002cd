"""What the first tab shows: the regions of a classifier and of DRQ all over the plane, and the journey from one point of it.

Everything is a function of the settings on the page, and what is slow is kept by them: nobody's settings disturb another's.
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
from drq.playground.trace import Journey, Path, journey
from drq.search.gradient import Gradient
from drq.system.threads import threads

MOST_STEPS = 40
MOST_RADIUS = 0.4
SEARCHED = 200_000  # points that all searches over the plane look at, about: a quarter of a second
FINEST, COARSEST = 64, 24  # pixels along a side
BASE = 160  # for the classifier alone, which takes one look a pixel
STRIDE = 5  # steps of calibration that one frame shows: it has 100
STAGES = ("calibration", "exploration", "quantification")


@dataclass(frozen=True)
class Settings:
    """What is chosen on the page.

    Args:
        data, model: names of :mod:`drq.playground.points`.
        norm: one of :data:`drq.registry.NORMS`.
        radius: of exploration; None calibrates it for the point.
        confidence: that calibration asks for; None for that of the point itself.
        alpha: radius of quantification, as a share of that of exploration.
        steps: of exploration and of quantification.
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
        """DRQ with this radius, or one that is calibrated."""
        chosen = Calibrated(self.confidence) if radius is None else radius
        search = Gradient(self.steps)
        return DRQ(classifier(self.model, self.data), self.norm, chosen, alpha=self.alpha, explore=search, quantify=search)


class Regions(NamedTuple):
    """Who answers what on a grid of the unit square, from its lowest left corner to its highest right one."""

    label: Tensor  # (H, W)
    lead: Tensor  # (H, W) of the answer over the second class: 0 on a boundary


@dataclass(frozen=True, eq=False)
class Scene:
    """All that the four panels show."""

    settings: Settings
    samples: Points
    base: Regions  # of the classifier alone
    defended: Regions  # of DRQ, with the radius of the point
    journey: Journey
    seen: Tensor  # (C,) confidence of the classifier at the point
    nearest: int  # class of the point that calibration found; that of the point itself where there is none

    @property
    def found(self) -> bool:
        """Whether there is a radius."""
        return bool(self.journey.decision.found)

    @property
    def radius(self) -> float:
        """Of exploration; 0 where calibration found none."""
        return float(self.journey.decision.radius) if self.found else 0.0

    @property
    def frames(self) -> list[tuple[str, int]]:
        """The pictures that lead through the searches: the stage that is under way, and how many of its steps are done."""
        path = self.journey.calibration
        found = [] if path is None else [(STAGES[0], step) for step in range(0, len(path.points), STRIDE)]
        for stage, searched in zip(STAGES[1:], (self.journey.exploration, self.journey.quantification), strict=True):
            found += [] if searched is None else [(stage, step) for step in range(len(searched.points))]
        return found

    def path(self, stage: str) -> Path | None:
        """Where the search of a stage went."""
        found: Path | None = getattr(self.journey, stage)
        return found


@lru_cache(maxsize=256)
@threads(1)
def scene(settings: Settings, across: float, up: float) -> Scene:
    """The scene with the point at these coordinates."""
    inside = 0 <= across <= 1 and 0 <= up <= 1
    require(inside, "point", "lie in the unit square", f"({across:g}, {up:g})", "click into a panel")
    x = torch.tensor([[across, up]])
    seen = journey(settings.robust(settings.radius), x)
    radius = float(seen.decision.radius) if seen.decision.found else 0.0
    model = classifier(settings.model, settings.data)
    with torch.no_grad():
        confidence = model(x).softmax(1)[0]
        nearest = int(model(x if seen.calibration is None else seen.calibration.best[-1]).argmax())
    base = base_regions(settings.model, settings.data)
    defended = defended_regions(settings, radius) if radius > 0 else base  # without one the classifier answers everywhere
    return Scene(settings, points(settings.data), base, defended, seen, confidence, nearest)


@lru_cache(maxsize=16)
def base_regions(model: str, data: str) -> Regions:
    """Of the classifier alone."""
    with torch.no_grad():
        best = classifier(model, data)(grid(BASE)).softmax(1).topk(2)
    first, second = best.values.reshape(BASE, BASE, 2).unbind(-1)
    return Regions(best.indices[:, 0].reshape(BASE, BASE), first - second)


@lru_cache(maxsize=128)
def defended_regions(settings: Settings, radius: float) -> Regions:
    """Of DRQ with this radius everywhere, since calibrating at every point would cost more than all else."""
    pixels = resolution(settings)
    found = settings.robust(radius).decide(grid(pixels))
    return Regions(found.label.reshape(pixels, pixels), found.margin.reshape(pixels, pixels))


def resolution(settings: Settings) -> int:
    """As many pixels along a side as can be searched while somebody waits."""
    looks = 2 * settings.steps * points(settings.data).classes
    return max(COARSEST, min(FINEST, math.isqrt(SEARCHED // looks)))


def grid(pixels: int) -> Tensor:
    """(pixels^2, 2) points from corner to corner, row by row, the lowest row first."""
    line = torch.linspace(0, 1, pixels)
    up, across = torch.meshgrid(line, line, indexing="ij")
    return torch.stack([across, up], -1).reshape(-1, 2)
