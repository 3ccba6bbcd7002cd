"""Draw the four panels of the plane tab as SVG, from results that are already computed.

As in :mod:`drq.report.plane_plots`, classes differ in lightness and hatching, and kinds of points in the shape of their markers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from drq.errors import imported
from drq.norms import as_norm
from drq.playground.points import REMEDY
from drq.playground.scene import STAGES, LabelGrid, Scene
from drq.report.plane_plots import COLOURS, TINTS, TITLES
from drq.report.plot_style import INK

SIDE = 400  # side of a panel in SVG units
HATCHING = ("", "M0 8 8 0", "M3.4 4h1.2", "M0 0 8 8")  # lines of each class in a tile of 8 x 8 units
MARKERS = {
    "triangle": "M0-9 8.5 7H-8.5Z",
    "cross": "M-8-5-5-8 0-3 5-8 8-5 3 0 8 5 5 8 0 3-5 8-8 5-3 0Z",
    "diamond": "M0-9 7 0 0 9-7 0Z",
    "square": "M-6-6H6V6H-6Z",
}
RECENT = 15  # points of calibration that are shown at a time
LEAST_WIDTH, RADII = 0.24, 2.4  # least width of a window, and how many radii it shows on either side


class Window(NamedTuple):
    """The square part of the plane that a panel shows: its lower left corner and its width."""

    left: float
    bottom: float
    width: float

    def place(self, points: NDArray[Any]) -> NDArray[Any]:
        """Convert points (N, 2) of the plane to SVG units, in which y grows downwards."""
        scaled = (points - np.array([self.left, self.bottom])) * (SIDE / self.width)
        flipped: NDArray[Any] = np.stack([scaled[:, 0], SIDE - scaled[:, 1]], 1)
        return flipped


WHOLE = Window(0.0, 0.0, 1.0)


def zoom_window(scene: Scene) -> Window:
    """Return the window around the point that shows its searches; it stays within the unit square."""
    width = min(1.0, max(LEAST_WIDTH, 2 * RADII * scene.radius)) if scene.found else 1.0
    left, bottom = (min(max(float(each) - width / 2, 0.0), 1 - width) for each in scene.trace.x[0])
    return Window(left, bottom, width)


def panels(scene: Scene, frame: int | None = None) -> str:
    """Return all four panels as HTML, at an index into ``scene.frames``; None is the last frame."""
    stage, step = scene.frames[-1 if frame is None else max(0, min(frame, len(scene.frames) - 1))]
    window = zoom_window(scene)
    drawn = [_search(scene, each, _steps_done(scene, each, stage, step), window) for each in STAGES]
    drawn.append("".join([*_boundary(scene, window)]))
    windows = [window, window, window, WHOLE]
    current = [each == stage for each in STAGES] + [False]
    figures = (_figure(*each) for each in zip(TITLES, drawn, windows, _descriptions(scene), current, strict=True))
    return f'<div class="panels">{_patterns()}{"".join(figures)}</div>'


def _figure(title: str, content: str, window: Window, description: str, current: bool) -> str:
    place = " ".join(f"{each:.6g}" for each in window)
    return (
        f'<figure class="panel{" current" if current else ""}"><figcaption>{title}</figcaption>'
        f'<svg viewBox="0 0 {SIDE} {SIDE}" role="img" aria-label="{description}" data-window="{place}">{content}</svg></figure>'
    )


def _steps_done(scene: Scene, stage: str, current: str, step: int) -> int | None:
    """Return how many steps of a stage are done at this step of the current stage; None before the stage begins."""
    path, order = scene.path(stage), STAGES.index(stage) - STAGES.index(current)
    if path is None or order > 0:
        return None
    return step if order == 0 else len(path.points) - 1


def _search(scene: Scene, stage: str, step: int | None, window: Window) -> str:
    """Draw one stage after this many of its steps."""
    content = [*_areas(scene.base, window), *_samples(scene, window, 7)]
    if stage == STAGES[0]:
        content += _calibration(scene, step, window)
    else:
        content += _balls(scene, stage, step, window)
        content += _search_paths(scene, stage, step, window)
    return "".join([*content, _mark("triangle", scene.trace.x[0], window, "#ffffff", "the point")])


def _calibration(scene: Scene, step: int | None, window: Window) -> Iterator[str]:
    """Draw the search for the nearest confident point of another class, and the radius that it gives."""
    path = scene.trace.calibration
    if scene.found and (path is None or step == len(path.points) - 1):
        yield _ball(scene, scene.trace.x[0], scene.radius, window)
    if path is not None and step is not None:
        if step < len(path.points) - 1:  # the path crosses the plane many times: left there, it would hide the rest
            yield _line(path.points[max(0, step - RECENT) : step + 1, 0], window, "path recent")
        if path.admitted[step, 0]:
            yield _line(torch.stack([scene.trace.x[0], path.best[step, 0]]), window, "path to-best")
            yield _mark("diamond", path.best[step, 0], window, COLOURS[scene.nearest % len(COLOURS)], "nearest so far")


def _balls(scene: Scene, stage: str, step: int | None, window: Window) -> Iterator[str]:
    """Draw the ball of exploration, or the balls of quantification around the explored points."""
    if not scene.found:
        return
    if stage == STAGES[1]:
        yield _ball(scene, scene.trace.x[0], scene.radius, window)
    elif step is not None and scene.trace.quantification is not None:
        for center in scene.trace.quantification.points[0]:
            yield _ball(scene, center, scene.settings.alpha * scene.radius, window, "ball small")


def _search_paths(scene: Scene, stage: str, step: int | None, window: Window) -> Iterator[str]:
    """Draw the path of the search for every class, and its best point."""
    path, marker = scene.path(stage), "cross" if stage == STAGES[1] else "square"
    if path is None or step is None:
        return
    for row, label in enumerate(path.labels.tolist()):
        colour = COLOURS[label % len(COLOURS)]
        yield _line(path.points[: step + 1, row], window, "path", colour)
        if stage == STAGES[2]:
            yield _mark("cross", path.points[0, row], window, colour, f"most confident, class {label + 1}")
        if path.admitted[step, row]:
            yield _mark(marker, path.best[step, row], window, colour, f"class {label + 1}")


def _boundary(scene: Scene, window: Window) -> Iterator[str]:
    """Draw DRQ's regions, the classifier's boundary as a dotted line, and a frame around the window of the other panels."""
    yield from _areas(scene.defended, WHOLE)
    yield from (f'<path class="before" d="{each}"/>' for each in _edges(scene.base, WHOLE))
    yield from _samples(scene, WHOLE, 3.5)
    if window != WHOLE:
        corner = WHOLE.place(np.array([[window.left, window.bottom + window.width]]))[0]
        size = f'width="{SIDE * window.width:.1f}" height="{SIDE * window.width:.1f}"'
        yield f'<rect class="frame" x="{corner[0]:.1f}" y="{corner[1]:.1f}" {size}/>'
    yield _mark("triangle", scene.trace.x[0], WHOLE, "#ffffff", "the point")


def _areas(regions: LabelGrid, window: Window) -> Iterator[str]:
    """Draw an area for each class in the window, and the lines between them."""
    for number in torch.unique(regions.label).tolist():
        area = _area(*_part(regions, number, window), window)
        if area:
            yield f'<path fill="{TINTS[number % len(TINTS)]}" d="{area}"/>'
            if HATCHING[number % len(HATCHING)]:
                yield f'<path fill="url(#hatching-{number % len(HATCHING)})" d="{area}"/>'
    yield from (f'<path class="edge" d="{each}"/>' for each in _edges(regions, window))


def _edges(regions: LabelGrid, window: Window) -> Iterator[str]:
    """Draw the boundaries; every boundary belongs to one of the classes other than the first."""
    contours = imported("contourpy", "the playground", REMEDY)
    for number in torch.unique(regions.label).tolist()[1:]:
        across, up, score = _part(regions, number, window)
        lines = contours.contour_generator(across, up, score, line_type="Separate").lines(0.0)
        if lines:
            yield "".join(_path_data(window.place(each)) for each in lines)


def _area(across: NDArray[Any], up: NDArray[Any], score: NDArray[Any], window: Window) -> str:
    """Return the outlines of the area in which ``score`` is above 0."""
    contours = imported("contourpy", "the playground", REMEDY)
    filled = contours.contour_generator(across, up, score, fill_type="OuterOffset").filled(0.0, np.inf)
    outlines = (points[start:end] for points, cuts in zip(*filled, strict=True) for start, end in pairwise(cuts))
    return "".join(f"{_path_data(window.place(each))}Z" for each in outlines)


def _part(regions: LabelGrid, number: int, window: Window) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return the columns and rows of the grid in a window, and the class's lead there: below 0 where another class leads."""
    line = np.linspace(0, 1, len(regions.label))
    score = torch.where(regions.label == number, regions.lead, -regions.lead).numpy()
    columns, rows = (_covering(line, low, low + window.width) for low in (window.left, window.bottom))
    return line[columns], line[rows], score[rows, columns]


def _covering(line: NDArray[Any], low: float, high: float) -> slice:
    return slice(max(0, int(np.searchsorted(line, low)) - 1), int(np.searchsorted(line, high)) + 1)


def _samples(scene: Scene, window: Window, size: float) -> Iterator[str]:
    places = window.place(scene.samples.x.numpy())
    shown = ((places >= -size) & (places <= SIDE + size)).all(1)
    for (x, y), label in zip(places[shown], scene.samples.y[torch.from_numpy(shown)].tolist(), strict=True):
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size}" fill="{COLOURS[label % len(COLOURS)]}"/>'


def _ball(scene: Scene, center: Tensor, radius: float, window: Window, css_class: str = "ball") -> str:
    """Draw the edge of a ball in the norm of the search."""
    angle = torch.linspace(0, 2 * math.pi, 121)
    turn = torch.stack([angle.cos(), angle.sin()], 1)
    edge = center + radius * turn / as_norm(scene.settings.norm).length(turn)[:, None]
    return f'<path class="{css_class}" d="{_path_data(window.place(edge.numpy()))}"/>'


def _line(points: Tensor, window: Window, css_class: str = "path", colour: str = INK) -> str:
    return (
        f'<path class="{css_class}" stroke="{colour}" d="{_path_data(window.place(points.numpy()))}"/>' if len(points) > 1 else ""
    )


def _path_data(places: Iterable[Any]) -> str:
    return "M" + " ".join(f"{x:.1f} {y:.1f}" for x, y in places)


def _mark(marker: str, at: Tensor, window: Window, colour: str, title: str) -> str:
    """Draw the marker of a point; its white rim separates it from what lies below."""
    (x, y), shape = window.place(at.numpy()[None])[0], MARKERS[marker]
    return (
        f'<g transform="translate({x:.1f} {y:.1f})"><title>{title}</title>'
        f'<path class="rim" d="{shape}"/><path class="mark" fill="{colour}" d="{shape}"/></g>'
    )


def _patterns() -> str:
    tiles = (
        f'<pattern id="hatching-{number}" width="8" height="8" patternUnits="userSpaceOnUse">'
        f'<path d="{lines}" stroke="{COLOURS[number]}" stroke-opacity=".45" stroke-width="1.2" fill="none"/></pattern>'
        for number, lines in enumerate(HATCHING)
        if lines
    )
    return f'<svg class="patterns" width="0" height="0" aria-hidden="true"><defs>{"".join(tiles)}</defs></svg>'


def _descriptions(scene: Scene) -> list[str]:
    """Describe each panel in words, for screen readers."""
    decision, (x, y) = scene.trace.decision, scene.trace.x[0].tolist()
    place = f"the point at {x:.2f}, {y:.2f}"
    radius = f"the radius of exploration is {scene.radius:.3f}" if scene.found else "calibration found no radius"
    reached = f"{decision.reached[0].sum()} of {len(scene.confidence)} classes reached"
    return [
        f"Regions of the classifier around {place}; {radius}",
        f"The search for the most confident point of every class around {place}; {reached}",
        f"The search for the least confident point near each of these; DRQ answers class {int(decision.label) + 1}",
        "The regions of DRQ over the whole plane, and the boundary of the classifier",
    ]
