"""Compute a plane through an input: the answers of the classifier and of DRQ over it, and DRQ's searches at the input (Figure 1).

Everything that a figure needs is computed here, so that drawing runs no model. :class:`Decider` lists what is used of DRQ.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from drq.decision import Decision
from drq.errors import require
from drq.method.calibration import Calibrated
from drq.method.execution import TOLERANCE, Execution, prepare
from drq.norms import Ball, Bounds, Norm
from drq.rows import in_order
from drq.search.loop import check_count
from drq.system.progress import ProgressOption
from drq.system.threads import threads

Extent = tuple[float, float, float, float]
LEAST_POINTS = 4096  # for which another thread is worth its cost


class Axes(NamedTuple):
    """The points ``origin + a u + b v``; a and b are their coordinates."""

    origin: Tensor  # (...)
    u: Tensor  # (...)
    v: Tensor  # (...)

    def points(self, across: Tensor, up: Tensor) -> Tensor:
        """Return the points (H W, ...) of a grid, row by row; ``up`` (H,) has b of each row, ``across`` (W,) a of each column."""
        b, a = torch.meshgrid(up.to(self.origin), across.to(self.origin), indexing="ij")
        sides = (each.reshape(-1, *[1] * self.origin.dim()) for each in (a, b))
        return self.origin + sum(side * direction for side, direction in zip(sides, (self.u, self.v), strict=True))

    def coordinates(self, points: Tensor) -> Tensor:
        """Return a and b (N, 2) of points (N, ...), in float64 on the CPU; points off the plane are projected onto it."""
        offset, u, v = (each.detach().double().cpu() for each in (points - self.origin, self.u, self.v))
        back: Tensor = torch.linalg.pinv(torch.stack([u, v]).flatten(1))
        return offset.flatten(1) @ back


@dataclass(frozen=True, eq=False)
class Plane:
    """The answers at a grid of H by W points of a plane, the centres of pixels: b grows with the row, a with the column."""

    axes: Axes
    extent: Extent  # lowest and highest a, lowest and highest b
    across: Tensor  # (W,) the a of every column
    up: Tensor  # (H,) the b of every row
    inside: Tensor  # (H, W) bool: False where the point leaves the input box, and nothing else is known there
    base_label: Tensor  # (H, W) of the undefended classifier; -1 outside
    base_confidence: Tensor  # (H, W) in that label; NaN outside
    label: Tensor  # (H, W) of DRQ; -1 outside
    robustness: Tensor  # (H, W) of that label; NaN outside
    margin: Tensor  # (H, W) best minus second-best robustness; NaN outside
    x: Tensor  # (1, ...) the input
    decision: Decision  # of the input, with its points
    calibrated: Tensor | None  # (1, ...) the confident point of another class that calibration found; None for a set radius
    calibrated_label: int  # its class, -1 for a set radius
    alpha: float  # the radius of quantification, as a share of that of exploration
    norm: Norm

    @property
    def classes(self) -> int:
        """The number of classes."""
        return self.decision.robustness.shape[1]

    @property
    def radius(self) -> float:
        """The radius of exploration at the input."""
        return float(self.decision.radius)

    @property
    def point(self) -> Tensor:
        """The coordinates (2,) of the input."""
        return self.axes.coordinates(self.x)[0]

    @property
    def explored(self) -> Tensor:
        """The coordinates (K, 2) of the explored points, NaN where a class was not reached."""
        assert self.decision.explored is not None
        return self.axes.coordinates(self.decision.explored[0])

    @property
    def quantified(self) -> Tensor:
        """The coordinates (K, 2) of the quantified points, NaN where a class was not reached or pruned."""
        assert self.decision.quantified is not None
        return self.axes.coordinates(self.decision.quantified[0])

    @property
    def nearest(self) -> Tensor | None:
        """The coordinates (2,) of the confident point of another class that calibration found."""
        return None if self.calibrated is None else self.axes.coordinates(self.calibrated)[0]

    def outline(self, center: Tensor, radius: float, corners: int = 360) -> Tensor:
        """Return the edge (M, 2) of the ball of this radius, in DRQ's norm, around the coordinates ``center`` (2,)."""
        angle = torch.arange(corners + 1, dtype=torch.float64) * (2 * math.pi / corners)
        turn = torch.stack([angle.cos(), angle.sin()], 1)
        directions = turn @ torch.stack([self.axes.u, self.axes.v]).flatten(1).double().cpu()
        return center + radius * turn / self.norm.length(directions)[:, None]


class Decider(Protocol):
    """The part of :class:`drq.DRQ` that planes use."""

    model: Any
    norm: Norm
    bounds: Bounds | None
    frozen: Tensor | None
    radius: float | Tensor | Calibrated
    alpha: float
    chunk: int | None
    compile_model: bool

    def decide(self, x: Tensor) -> Decision:
        """Return everything that was measured for a batch."""

    def variant(self, **changes: Any) -> Decider:
        """Return DRQ around the same model with other settings."""

    def replica(self) -> Decider:
        """Return the same DRQ around a copy of the model, for another thread."""


def through(
    robust: Decider,
    x: Tensor,
    u: Tensor | None,
    v: Tensor | None,
    extent: Extent | None,
    pixels: int,
    everywhere: bool = False,
    clip: bool = False,
    progress: ProgressOption = False,
) -> Plane:
    """Compute the plane through x; for the arguments see :meth:`drq.DRQ.plane`."""
    check_count("pixels", pixels, "300 draw smooth boundaries", least=2)
    given = f"shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
    single = isinstance(x, Tensor) and x.dim() >= 2 and len(x) == 1
    require(single, "x", "be a batch of one sample", given, "x[None] makes one of a sample, x[:1] of a batch")
    axes = _axes(x[0].detach(), u, v)
    extent = _extent(extent, robust.bounds, u is None and v is None)
    across, up = (low + (torch.arange(pixels) + 0.5) * (high - low) / pixels for low, high in (extent[:2], extent[2:]))
    decision = robust.variant(keep_points=True).decide(x)
    x, execution = prepare(robust.model, x.detach(), robust.norm, robust.bounds, robust.frozen)
    calibrated, label = _calibrated(robust.radius, execution, x)
    if not (everywhere and calibrated is not None):
        rule, remedy = "have a radius, since the whole plane takes it", "give DRQ one, or calibrate with everywhere=True"
        require(bool(decision.found), "x", rule, "none that calibration found", remedy)
        robust = robust.variant(radius=float(decision.radius))
    points = axes.points(across, up)
    points = Ball(points, 0.0, robust.norm, robust.bounds).clip(points) if clip else points
    answers = _answers(robust.variant(keep_points=False, progress=progress), execution, points)
    maps: dict[str, Any] = {name: values.cpu().reshape(pixels, pixels) for name, values in answers.items()}
    facts: dict[str, Any] = {"x": x, "decision": decision, "calibrated": calibrated, "calibrated_label": label}
    return Plane(axes, extent, across, up, **maps, **facts, alpha=robust.alpha, norm=robust.norm)


def _axes(x: Tensor, u: Tensor | None, v: Tensor | None) -> Axes:
    """Return axes through x along u and v; without directions, the coordinate axes of two features."""
    if u is None and v is None:
        remedy = "give two directions u and v of the shape of a sample"
        require(x.shape == (2,), "x", "have two features where there are no u and v", f"features {tuple(x.shape)}", remedy)
        return Axes(torch.zeros_like(x), *torch.eye(2).to(x))
    directions = []
    for name, each in (("u", u), ("v", v)):
        given = f"shape {tuple(each.shape)}" if isinstance(each, Tensor) else type(each).__name__
        fits = isinstance(each, Tensor) and each.shape in (x.shape, (1, *x.shape))
        require(fits, name, f"have the shape {tuple(x.shape)} of a sample", given, "give both directions, or neither")
        assert isinstance(each, Tensor)
        directions.append(each.detach().to(x).reshape(x.shape))
    values = torch.linalg.svdvals(torch.stack(directions).flatten(1).double())
    spans = bool(values.isfinite().all()) and float(values[-1]) > 1e-6 * float(values[0])
    require(spans, "v", "point in another direction than u, and neither be 0", "directions of one line", "turn one of them")
    return Axes(x, *directions)


def _extent(extent: Extent | None, bounds: Bounds | None, features: bool) -> Extent:
    """Return the extent of the grid: as given, else the input box where coordinates are ``features``, else from -1 to 1."""
    if extent is None and not features:
        return -1.0, 1.0, -1.0, 1.0
    if extent is None:
        require(bounds is not None, "extent", "be given where inputs have no bounds", extent, "for example (-1, 1, -1, 1)")
        assert bounds is not None
        low, high = (torch.as_tensor(each, dtype=torch.float64).expand(2).tolist() for each in bounds)
        extent = (low[0], high[0], low[1], high[1])
    wide = len(extent) == 4 and all(map(math.isfinite, extent)) and extent[0] < extent[1] and extent[2] < extent[3]
    require(wide, "extent", "be finite (lowest a, highest a, lowest b, highest b)", extent, "for example (-1, 1, -1, 1)")
    return extent


def _calibrated(radius: float | Tensor | Calibrated, execution: Execution, x: Tensor) -> tuple[Tensor | None, int]:
    """Return the point that calibration found and its class, by repeating the search, of which DRQ keeps only the radius."""
    if not isinstance(radius, Calibrated):
        return None, -1
    with torch.inference_mode(False), torch.no_grad():
        found = execution.solve(radius.problems(execution, x, execution.logits(x))).best
        return found.point, int(execution.logits(found.point).argmax())


def _answers(robust: Decider, execution: Execution, points: Tensor) -> dict[str, Tensor]:
    """Return the maps of :class:`Plane` by name; one call decides on all points in the box."""
    offset = points - Ball(points, 0.0, robust.norm, robust.bounds).clip(points)
    inside = (offset.abs() <= TOLERANCE).flatten(1).all(1)
    decision = _decide(robust, execution, points[inside])
    with torch.inference_mode(False), torch.no_grad():
        confidence = execution.logits(points[inside]).softmax(1)

    def everywhere(values: Tensor, blank: float) -> Tensor:
        return values.new_full(inside.shape, blank).masked_scatter(inside, values)

    return {
        "inside": inside,
        "base_label": everywhere(decision.base_label, -1),
        "base_confidence": everywhere(_of(confidence, decision.base_label), torch.nan),
        "label": everywhere(decision.label, -1),
        "robustness": everywhere(_of(decision.robustness, decision.label), torch.nan),
        "margin": everywhere(decision.margin, torch.nan),
    }


def _decide(robust: Decider, execution: Execution, points: Tensor) -> Decision:
    """Decide on all points, for a small model on a CPU in as many threads as torch has.

    The operations of a small model are too short to be divided among cores. Every thread has its own copy of the model, so that
    modules that keep state do not disturb each other. Threads tell of no progress: small models do not take long.
    """
    count = min(torch.get_num_threads(), len(points) // LEAST_POINTS)
    # Other threads would compile again, and autocast does not extend to them.
    single_thread = robust.compile_model or torch.is_autocast_enabled("cpu")
    if not execution.small or count < 2 or single_thread:
        return robust.decide(points)
    try:
        robusts = [each.variant(progress=False) for each in (robust, *(robust.replica() for _ in range(count - 1)))]
    except Exception:  # a user's module may fail to be copied in any way
        return robust.decide(points)
    places = [
        torch.arange(first, len(points), count) for first in range(count)
    ]  # interleaved, so that all parts take about equally long
    with threads(1), ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        parts: list[Decision] = [*pool.map(lambda each, rows: each.decide(points[rows]), robusts, places)]
    return in_order(places, parts)


def _of(values: Tensor, label: Tensor) -> Tensor:
    """Return the entries (N,) of ``values`` (N, C) at the labels."""
    return values.gather(1, label[:, None])[:, 0]
