"""A plane through an input: what the classifier and DRQ answer all over it, and what DRQ did at the input itself (Figure 1).

Everything that a picture needs is computed here, so that drawing asks no model. Of DRQ this file knows what it asks of it.
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
from drq.system.threads import threads

Extent = tuple[float, float, float, float]
LEAST = 4096  # points that are worth a thread of their own


class Axes(NamedTuple):
    """The points ``origin + a u + b v``; a and b are their coordinates."""

    origin: Tensor  # (...)
    u: Tensor  # (...)
    v: Tensor  # (...)

    def points(self, across: Tensor, up: Tensor) -> Tensor:
        """(H W, ...) the points of a grid, row by row; ``up`` (H,) holds the b of rows, ``across`` (W,) the a of columns."""
        b, a = torch.meshgrid(up.to(self.origin), across.to(self.origin), indexing="ij")
        sides = (each.reshape(-1, *[1] * self.origin.dim()) for each in (a, b))
        return self.origin + sum(side * direction for side, direction in zip(sides, (self.u, self.v), strict=True))

    def coordinates(self, points: Tensor) -> Tensor:
        """(N, 2) a and b of the points (N, ...), in float64 on the CPU; of one off the plane those of the nearest in it."""
        offset, u, v = (each.detach().double().cpu() for each in (points - self.origin, self.u, self.v))
        back: Tensor = torch.linalg.pinv(torch.stack([u, v]).flatten(1))
        return offset.flatten(1) @ back


@dataclass(frozen=True, eq=False)
class Plane:
    """A grid of H by W points of a plane, the middles of pixels: b grows with the row, a with the column."""

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
        """How many classes there are."""
        return self.decision.robustness.shape[1]

    @property
    def radius(self) -> float:
        """Of exploration, at the input."""
        return float(self.decision.radius)

    @property
    def point(self) -> Tensor:
        """(2,) coordinates of the input."""
        return self.axes.coordinates(self.x)[0]

    @property
    def explored(self) -> Tensor:
        """(K, 2) coordinates of its explored points, NaN where a class was not reached."""
        assert self.decision.explored is not None
        return self.axes.coordinates(self.decision.explored[0])

    @property
    def quantified(self) -> Tensor:
        """(K, 2) coordinates of its quantified points, NaN where a class was not reached or pruned."""
        assert self.decision.quantified is not None
        return self.axes.coordinates(self.decision.quantified[0])

    @property
    def nearest(self) -> Tensor | None:
        """(2,) coordinates of the confident point of another class that calibration found."""
        return None if self.calibrated is None else self.axes.coordinates(self.calibrated)[0]

    def outline(self, center: Tensor, radius: float, corners: int = 360) -> Tensor:
        """(M, 2) the edge of the ball of this radius, in the norm of DRQ, around the coordinates ``center`` (2,)."""
        angle = torch.arange(corners + 1, dtype=torch.float64) * (2 * math.pi / corners)
        turn = torch.stack([angle.cos(), angle.sin()], 1)
        directions = turn @ torch.stack([self.axes.u, self.axes.v]).flatten(1).double().cpu()
        return center + radius * turn / self.norm.length(directions)[:, None]


class Decider(Protocol):
    """What is asked of :class:`drq.DRQ`."""

    model: Any
    norm: Norm
    bounds: Bounds | None
    frozen: Tensor | None
    radius: float | Tensor | Calibrated
    alpha: float
    chunk: int | None
    compile_model: bool

    def decide(self, x: Tensor) -> Decision:
        """Everything that was measured for a batch."""

    def variant(self, **changes: Any) -> Decider:
        """The same model with other settings."""

    def replica(self) -> Decider:
        """The same around a copy of the model, for another thread."""


def through(
    robust: Decider,
    x: Tensor,
    u: Tensor | None,
    v: Tensor | None,
    extent: Extent | None,
    pixels: int,
    everywhere: bool = False,
    clip: bool = False,
) -> Plane:
    """The plane through x; :meth:`drq.DRQ.plane` says what the arguments are."""
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
    answers = _answers(robust, execution, Ball(points, 0.0, robust.norm, robust.bounds).clip(points) if clip else points)
    maps: dict[str, Any] = {name: values.cpu().reshape(pixels, pixels) for name, values in answers.items()}
    done: dict[str, Any] = {"x": x, "decision": decision, "calibrated": calibrated, "calibrated_label": label}
    return Plane(axes, extent, across, up, **maps, **done, alpha=robust.alpha, norm=robust.norm)


def _axes(x: Tensor, u: Tensor | None, v: Tensor | None) -> Axes:
    """Through x along u and v; along the axes from 0 where there are two features and no directions."""
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
    """Where the grid ends: as given, else the input box where coordinates are ``features``, else from -1 to 1."""
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
    """The point that calibration found and its class. The search is the one that DRQ made, which kept its length only."""
    if not isinstance(radius, Calibrated):
        return None, -1
    with torch.inference_mode(False), torch.no_grad():
        found = execution.solve(radius.problems(execution, x, execution.logits(x))).best
        return found.point, int(execution.logits(found.point).argmax())


def _answers(robust: Decider, execution: Execution, points: Tensor) -> dict[str, Tensor]:
    """What :class:`Plane` knows of every point, by name; one call decides on all that are in the box."""
    offset = points - Ball(points, 0.0, robust.norm, robust.bounds).clip(points)
    inside = (offset.abs() <= TOLERANCE).flatten(1).all(1)
    found = _decided(robust, execution, points[inside])
    with torch.inference_mode(False), torch.no_grad():
        confidence = execution.logits(points[inside]).softmax(1)

    def everywhere(values: Tensor, blank: float) -> Tensor:
        return values.new_full(inside.shape, blank).masked_scatter(inside, values)

    return {
        "inside": inside,
        "base_label": everywhere(found.base_label, -1),
        "base_confidence": everywhere(_of(confidence, found.base_label), torch.nan),
        "label": everywhere(found.label, -1),
        "robustness": everywhere(_of(found.robustness, found.label), torch.nan),
        "margin": everywhere(found.margin, torch.nan),
    }


def _decided(robust: Decider, execution: Execution, points: Tensor) -> Decision:
    """The decisions on all points. Those of a small model on a CPU are made in as many threads as torch has.

    Its operations are too short to be divided among cores: they would wait for each other most of the time. Every thread has a
    copy of the model with the same weights, so that a module that notes something in itself disturbs no other.
    """
    count = min(torch.get_num_threads(), len(points) // LEAST)
    here_only = robust.compile_model or torch.is_autocast_enabled("cpu")  # other threads would compile anew, and know no autocast
    if not execution.small or count < 2 or here_only:
        return robust.decide(points)
    try:
        robusts = [robust] + [robust.replica() for _ in range(count - 1)]
    except Exception:  # what a module of somebody else's holds may refuse to be copied in its own way
        return robust.decide(points)
    places = [torch.arange(first, len(points), count) for first in range(count)]  # all parts take about as long
    with threads(1), ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        parts: list[Decision] = [*pool.map(lambda each, rows: each.decide(points[rows]), robusts, places)]
    return in_order(places, parts)


def _of(values: Tensor, label: Tensor) -> Tensor:
    """(N,) the entry of (N, C) ``values`` at its label."""
    return values.gather(1, label[:, None])[:, 0]
