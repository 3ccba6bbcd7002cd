"""A card that explains one decision: what DRQ looked at, what it found there, and what it answers. It asks no model.

What is drawn differs in lightness, hatching or form, so that it can be read in grey and by the colour-blind. Changes have the
colours of cividis, which get lighter all the way from the lowest value to the highest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from drq.errors import imported, require
from drq.report import found_points, plane_plots, plot_style
from drq.report.card_content import PLACES, Told

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from drq.decision import Decision
    from drq.planes.plane import Plane

WIDTH = 7.4  # inches
WORDS, BELOW = 0.66, 2.7  # inches that the words take, and the bars
SMALL = 7  # points of letters
LOOKS: tuple[dict[str, Any], ...] = ({"facecolor": "white", "hatch": ""}, *found_points.LOOKS)  # from light to dark
MARKS = ("X", "P")  # explored points in a slice: of the winner, of the runner-up
VIEWS: dict[str, Literal["base", "drq"]] = {"the model alone": "base", "DRQ": "drq"}


def card(
    decision: Decision,
    plane: Plane | None = None,
    *,
    names: Sequence[str] | None = None,
    features: Sequence[str] | None = None,
) -> Figure:
    """What DRQ did about one sample: the points that it found, what they changed, the confidences there, and the answer.

    Images are shown beside each other, together with what was changed; of rows of features, those that changed most. All changes
    in a card have the same scale, which is stated and depends on the norm and the radius only.

    Args:
        decision: about one sample, with its points: ``robust.variant(keep_points=True).decide(x)``. Of one about several samples,
            ``decision[i : i + 1]`` is about one.
        plane: of :meth:`drq.DRQ.slice`, to show the regions of the model and of DRQ around these points as well.
        names: of the classes; None numbers them.
        features: names of the features in a row; None numbers them.
    """
    told = Told.of(decision, names)
    if plane is not None:
        same = plane.x.shape[1:] == told.x.shape and torch.equal(plane.x[0].cpu(), torch.from_numpy(told.x))
        require(same, "plane", "go through the sample of the decision", "one through another", "robust.slice(decision) makes it")
    points = found_points.of(told.x, features)
    heights = [WORDS, points.height, BELOW]
    figure: Figure = imported("matplotlib.figure", "plots", plane_plots.REMEDY).Figure(
        figsize=(WIDTH, sum(heights)), layout="constrained"
    )
    parts: Any = figure.subfigures(3, 1, height_ratios=heights)
    top, middle, bottom = parts
    answer, *reasons = told.words()
    top.text(0.01, 0.93, answer, fontsize=10, fontweight="bold", va="top")
    top.text(0.01, 0.52, "\n".join(reasons), fontsize=8, va="top", linespacing=1.35)
    points.draw(middle, told)
    if plane is None:
        _confidences(bottom, told)
    else:
        left, right = bottom.subfigures(1, 2, width_ratios=[1.1, 1.5])
        _confidences(left, told)
        _slices(right, plane, told)
    return figure


def _confidences(figure: Any, told: Told) -> None:
    """Three bars for each class, the winner on top. Where quantification was pruned, an empty bar goes as far as it may be."""
    ax = figure.subplots()
    classes, values, width = told.shown(), told.confidences(), 0.84 / len(PLACES)
    for number, (place, look) in enumerate(zip(PLACES, LOOKS, strict=True)):
        at, here = np.arange(len(classes)) + plot_style.beside(number, len(PLACES), 0.84), values[place][classes]
        drawn = ax.barh(at, here, width, edgecolor=plot_style.INK, linewidth=0.6, label=place, **look)
        for bar, line, value, label in zip(drawn, at, here, classes, strict=True):
            missing = told.missing(label) if place == PLACES[-1] else ""
            if missing == "pruned":
                bar.set(facecolor="none", linestyle=(0, (2, 2)))
            note = ax.text(value + 0.015, line, missing or f"{value:.3f}", fontsize=SMALL - 1, va="center_baseline")
            note.set_in_layout(False)  # there is room for it
    found_points.named_lines(ax, [_with_part(told, each) for each in classes])
    look = {"ncols": 3, "frameon": False, "fontsize": SMALL, "handlelength": 1.4, "columnspacing": 0.9}
    figure.legend(*ax.get_legend_handles_labels(), loc="outside upper right", **look)
    ax.set(xlim=(0, 1.25), xticks=(0, 0.5, 1), xticklabels=("0", "0.5", "1"))
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=SMALL)
    some = [f"the {len(classes)} most confident of {len(told.names)} classes"] if len(told.names) > len(classes) else []
    some += ["pruned: can be neither first nor second"] if "pruned" in map(told.missing, classes) else []
    ax.set_xlabel("\n".join(["confidence", *some]), fontsize=SMALL)


def _with_part(told: Told, label: int) -> str:
    """A class and its part in the decision."""
    own = ["model alone"] if label == int(told.decision.base_label) else []
    parts = [part for part, each in told.best if each == label] + own
    return "\n".join([told.brief(label), *([", ".join(parts)] if parts else [])])


def _slices(figure: Any, plane: Plane, told: Told) -> None:
    """The regions of the model and of DRQ in a plane, the winner's in the first colour, and where the three points are."""
    inside = plane.inside
    seen = np.unique(torch.cat([plane.base_label[inside], plane.label[inside]]).numpy()).tolist()
    order = [each for each in dict.fromkeys([told.winner, told.runner_up, *seen]) if each >= 0]
    turned = plane_plots.renumbered(plane, order)
    for ax, (title, show) in zip(figure.subplots(1, 2, sharey=True), VIEWS.items(), strict=True):
        plane_plots.plane(turned, ax, show=show)
        ax.set_title(title, fontsize=8, pad=3)
        ax.tick_params(labelsize=SMALL - 1)
        ax.set_xlabel("Euclidean distance", fontsize=SMALL)
        ax.label_outer()
        for (part, label), form in zip(told.best, MARKS, strict=True):
            at = plane.axes.coordinates(torch.from_numpy(told.points(label)[0])[None])[0]
            if bool(at.isfinite().all()):
                plane_plots.marker(ax, at, form, order.index(label), 8, f"explored, {part}")
        plane_plots.marker(ax, plane.point, "^", -1, 8, "input")
    named = dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    named |= {told.brief(label): plane_plots.patch(number) for number, label in enumerate(order) if label in seen}
    look: dict[str, Any] = {"frameon": False, "fontsize": SMALL, "ncols": 3, "handlelength": 1.6, "columnspacing": 1.1}
    figure.legend(named.values(), named.keys(), loc="outside lower center", **look)
