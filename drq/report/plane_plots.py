"""Draw a plane: the regions of the classes in it, and the steps of DRQ at its input (Figure 1).

Classes differ in lightness and hatching, and kinds of points in the shape of their markers, so that both can be read in grey.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from drq.errors import imported, require
from drq.report import plot_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor

    from drq.planes.plane import Plane

COLOURS = ("#0072b2", "#f0a818", "#009e73", "#cc79a7", "#d55e00", "#56b4e9")  # dark and light alternate
TINTS = ("#a9cfe6", "#fff3d6", "#9cd8c6", "#f3e0ea", "#f0bb99", "#e3f3fc")
HATCHES = ("", "///", "...", "\\\\\\", "xxx", "+++")
REMEDY = "pip install 'decision-region-quantification[report]'"
TITLES = ("(a) Calibration", "(b) Exploration", "(c) Quantification", "(d) Decision boundary of DRQ")


def plane(plane: Plane, ax: Axes | None = None, *, show: Literal["drq", "base"] = "drq") -> Axes:
    """Draw the regions of the classes in a plane and the boundaries between them, for DRQ or for the undefended classifier.

    Points outside the input box stay white.
    """
    require(show in ("drq", "base"), "show", "be 'drq' or 'base'", repr(show), "choose one")
    return _regions(plane, plot_style.axes(ax, plot_style.WIDTH), show, plane.extent)


def figure1(plane: Plane, points: tuple[Tensor, Tensor], *, label: int | None = None) -> Figure:
    """Draw Figure 1: calibration, exploration and quantification at a plane's input, and the decision boundary of DRQ.

    Args:
        plane: the result of :meth:`drq.DRQ.plane`.
        points: samples (N, ...) that are shown as circles, and their classes (N,).
        label: the true class of the input, which is shown as a triangle; None for the answer of DRQ.
    """
    figure: Figure = imported("matplotlib.figure", "plots", REMEDY).Figure(figsize=(7.4, 8.3), layout="constrained")
    truth, taken = int(plane.decision.label) if label is None else label, int(plane.decision.base_label)
    name = f"sample of class {truth + 1}" + (f", taken for {taken + 1}" if taken != truth else "")
    marks = (_calibration, _exploration, _quantification, _boundary)
    for ax, title, mark in zip(figure.subplots(2, 2).flat, TITLES, marks, strict=True):
        whole = mark is _boundary
        _regions(plane, ax, "drq" if whole else "base", plane.extent if whole else _window(plane))
        ax.set_title(title, loc="left", fontsize="medium")
        _samples(ax, plane, points, 3.5 if whole else 6)
        mark(ax, plane)
        marker(ax, plane.point, "^", truth, 8 if whole else 12, name)
    _legend(figure)
    return figure


def _legend(figure: Figure) -> None:
    """Add one legend below all panels, with each name once."""
    named: dict[str, Any] = {}
    for ax in figure.axes:
        for handle, name in zip(*ax.get_legend_handles_labels(), strict=True):
            named.setdefault(name, handle)
    options: dict[str, Any] = {"ncols": 3, "frameon": False, "fontsize": 8, "handlelength": 2.4, "markerscale": 0.8}
    figure.legend(named.values(), named.keys(), loc="outside lower center", **options)


def _window(plane: Plane) -> tuple[float, ...]:
    """Return the part of the plane that shows the searches from the input; all of it where there are none."""
    if plane.radius == 0:
        return plane.extent
    outline = plane.outline(plane.point, plane.radius)
    low, high = (plane.point + 2 * (edge - plane.point) for edge in (outline.amin(0), outline.amax(0)))
    return (*(float(each) for pair in zip(low, high, strict=True) for each in pair),)


def _regions(plane: Plane, ax: Axes, show: str, window: Sequence[float]) -> Axes:
    """Draw the region of each class in the window."""
    label, score = _scored(plane, show)
    left, right, bottom, top = window
    numbers = _numbers(label[plane.inside])
    for number in numbers:
        _region(ax, number, *_grid(plane, label == number, score, window))
    for number in numbers[1:]:  # every boundary is that of one of these
        _edge(ax, *_grid(plane, label == number, score, window), colors=[plot_style.INK], linewidths=1)
    ax.set(xlim=(left, right), ylim=(bottom, top), aspect="equal")
    ax.spines[["top", "right"]].set_visible(True)
    ax.tick_params(labelsize="small")
    return ax


def _scored(plane: Plane, show: str) -> tuple[Tensor, Tensor]:
    """Return labels (H, W), and scores that fall to 0, or jump, where the label changes."""
    if show == "drq":
        return plane.label, plane.margin
    return plane.base_label, plane.base_confidence - 1 / plane.classes


def _region(ax: Axes, number: int, across: NDArray[Any], up: NDArray[Any], score: NDArray[Any]) -> None:
    """Fill the area where the ``score`` (H, W) is above 0."""
    if min(score.shape) > 1 and (score > 0).any():
        here = number % len(COLOURS)
        filled = ax.contourf(across, up, score, levels=[0, np.inf], colors=[TINTS[here]], hatches=[HATCHES[here]])
        filled.set(edgecolor=f"{COLOURS[here]}80", linewidth=0)


def patch(number: int) -> Any:
    """Return the patch that stands for a class's region in a legend."""
    here = number % len(COLOURS)
    style: dict[str, Any] = {"facecolor": TINTS[here], "edgecolor": f"{COLOURS[here]}80", "hatch": HATCHES[here], "linewidth": 0}
    return imported("matplotlib.patches", "plots", REMEDY).Patch(**style)


def renumbered(plane: Plane, order: Sequence[int]) -> Plane:
    """Return the plane with its classes renumbered in this order, so that the first ones get different colours."""
    place = {label: number for number, label in enumerate(order)}
    base, ours = (labels.clone().apply_(lambda each: place.get(int(each), -1)) for labels in (plane.base_label, plane.label))
    return replace(plane, base_label=base, label=ours)


def _edge(ax: Axes, across: NDArray[Any], up: NDArray[Any], score: NDArray[Any], **look: Any) -> None:
    """Draw the line where the ``score`` (H, W) is 0."""
    if min(score.shape) > 1 and (score > 0).any() and (score <= 0).any():
        ax.contour(across, up, score, levels=[0], **look)


def _grid(plane: Plane, here: Tensor, score: Tensor, window: Sequence[float]) -> tuple[NDArray[Any], ...]:
    """Return the columns, the rows and a class's scores in a window; where other classes lead, scores are below 0.

    They are padded, since the plane extends half a pixel beyond the outermost grid points.
    """
    signed = np.pad(np.where(here.numpy(), score.numpy(), -score.numpy()), 1, mode="edge")
    across, up = (np.pad(each.numpy(), 1, mode="reflect", reflect_type="odd") for each in (plane.across, plane.up))
    columns, rows = _shown(across, *window[:2]), _shown(up, *window[2:])
    return across[columns], up[rows], signed[rows, columns]


def _numbers(labels: Tensor) -> list[int]:
    """Return the classes that occur, lowest first."""
    found: list[int] = np.unique(labels.numpy()).tolist()
    return found


def _shown(middles: NDArray[Any], low: float, high: float) -> slice:
    return slice(max(0, np.searchsorted(middles, low) - 1), np.searchsorted(middles, high) + 1)


def _samples(ax: Axes, plane: Plane, points: tuple[Tensor, Tensor], size: float) -> None:
    at, labels = plane.axes.coordinates(points[0]), points[1]
    low, high = (at.new_tensor(each) for each in zip(ax.get_xlim(), ax.get_ylim(), strict=True))
    shown = ((at >= low) & (at <= high)).all(1)
    for number in _numbers(labels):
        look: dict[str, Any] = {
            "color": COLOURS[number % len(COLOURS)],
            "markeredgecolor": plot_style.INK,
            "markeredgewidth": 0.6,
        }
        name = f"training samples, class {number + 1}"
        ax.plot(*at[shown & (labels == number)].T.numpy(), "o", markersize=size, label=name, **look)


def _calibration(ax: Axes, plane: Plane) -> None:
    """Draw the radius, and the point that calibration found."""
    _ball(ax, plane, plane.point, plane.radius, "radius of exploration")
    if plane.nearest is not None:
        ends = np.stack([plane.point.numpy(), plane.nearest.numpy()], 1)
        ax.plot(*ends, color=plot_style.INK, linewidth=1.1, zorder=4)
        marker(ax, plane.nearest, "D", plane.calibrated_label, 8, "nearest confident other class")


def _exploration(ax: Axes, plane: Plane) -> None:
    """Draw the most confident point of each class."""
    _ball(ax, plane, plane.point, plane.radius, "radius of exploration")
    _crosses(ax, plane)


def _quantification(ax: Axes, plane: Plane) -> None:
    """Draw the least confident point around each explored point."""
    for center in plane.explored:
        _ball(ax, plane, center, plane.alpha * plane.radius, "radius of quantification", (1.2, 1.2))
    _crosses(ax, plane)
    for at, number in zip(plane.quantified, plane.decision.classes[0].tolist(), strict=True):
        marker(ax, at, "s", number, 7.5, f"least confident near it, class {number + 1}")


def _boundary(ax: Axes, plane: Plane) -> None:
    """Draw the classifier's boundary for comparison, and a frame around the window of the other panels."""
    label, score = _scored(plane, "base")
    look: dict[str, Any] = {"colors": [plot_style.INK], "linewidths": 0.9, "linestyles": [(0, (1, 1.6))]}
    for number in _numbers(label[plane.inside])[1:]:
        _edge(ax, *_grid(plane, label == number, score, plane.extent), **look)
    ax.plot([], [], color=plot_style.INK, linewidth=0.9, linestyle=(0, (1, 1.6)), label="boundary of the classifier")
    left, right, bottom, top = _window(plane)
    ax.plot([left, right, right, left, left], [bottom, bottom, top, top, bottom], color="white", linewidth=2.6, zorder=4)
    ax.plot([left, right, right, left, left], [bottom, bottom, top, top, bottom], color=plot_style.INK, linewidth=1, zorder=4)


def _crosses(ax: Axes, plane: Plane) -> None:
    for at, number in zip(plane.explored, plane.decision.classes[0].tolist(), strict=True):
        marker(ax, at, "X", number, 10, f"most confident, class {number + 1}")


def _ball(ax: Axes, plane: Plane, center: Tensor, radius: float, name: str, dashes: tuple[float, float] = (4, 2)) -> None:
    ax.plot(*plane.outline(center, radius).T.numpy(), color=plot_style.INK, linewidth=1.6, dashes=dashes, zorder=4, label=name)


def marker(ax: Axes, at: Tensor, form: str, number: int, size: float, name: str) -> None:
    """Draw one point (2,) in the colour of a class, white for -1; its white rim separates it from what lies below."""
    colour = "white" if number < 0 else COLOURS[number % len(COLOURS)]
    ax.plot(*at.numpy(), form, markersize=size + 2.6, color="white", zorder=5)
    ax.plot(*at.numpy(), form, markersize=size, color=colour, markeredgecolor=plot_style.INK, linestyle="", zorder=6, label=name)
