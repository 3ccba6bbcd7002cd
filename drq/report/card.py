"""Draw a card that explains one decision: what DRQ searched, what it found there, and what it answers.

Everything drawn differs in lightness, hatching or shape, so that it can be read in grey and by the colour-blind. Changes have
the colours of cividis, which get lighter all the way from the lowest value to the highest.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch

from drq.errors import imported, require
from drq.report import found_points, plane_plots, plot_style
from drq.report.card_content import PLACES, CardContent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from drq.decision import Decision
    from drq.planes.plane import Plane

WIDTH = 7.4  # inches
BARS_HEIGHT = 2.7  # inches
ANSWER, REASONS = (80, 0.17, 10), (108, 0.15, 8)  # characters of a line, its height in inches, size of the font
SMALL = 7  # font size
STYLES: tuple[dict[str, Any], ...] = ({"facecolor": "white", "hatch": ""}, *found_points.STYLES)  # from light to dark
MARKS = ("X", "P")  # markers of the explored points in a slice: winner, runner-up
VIEWS: dict[str, Literal["base", "drq"]] = {"the model alone": "base", "DRQ": "drq"}


def card(
    decision: Decision,
    plane: Plane | None = None,
    *,
    names: Sequence[str] | None = None,
    features: Sequence[str] | None = None,
) -> Figure:
    """Draw how DRQ decided on one sample: the points it found, their changes, the confidences there, and the answer.

    Images are shown next to each other, with their changes; of tabular features, those that changed most are shown. All changes
    in a card have the same scale, which is stated.

    Args:
        decision: a decision on one sample, with its points: ``robust.variant(keep_points=True).decide(x)``. For one of several
            samples, give ``decision[i : i + 1]``.
        plane: the result of :meth:`drq.DRQ.slice`, to show the regions of the model and of DRQ around these points as well.
        names: names of the classes; None numbers them.
        features: names of tabular features; None numbers them.
    """
    content = CardContent.from_decision(decision, names)
    if plane is not None:
        same = plane.x.shape[1:] == content.x.shape and torch.equal(plane.x[0].cpu(), torch.from_numpy(content.x))
        require(same, "plane", "go through the sample of the decision", "one through another", "robust.slice(decision) makes it")
    points = found_points.layout_for(content.x, features)
    text = CardText.from_sentences(content.sentences())
    heights = [text.height, points.height, BARS_HEIGHT]
    figure: Figure = imported("matplotlib.figure", "plots", plane_plots.REMEDY).Figure(
        figsize=(WIDTH, sum(heights)), layout="constrained"
    )
    parts: Any = figure.subfigures(3, 1, height_ratios=heights)
    top, middle, bottom = parts
    text.draw(top)
    points.draw(middle, content)
    if plane is None:
        _confidences(bottom, content, content.name)
    else:
        left, right = bottom.subfigures(1, 2, width_ratios=[1.1, 1.5])
        _confidences(left, content, content.short_name)
        _slices(right, plane, content)
    return figure


class CardText(NamedTuple):
    """What stands above the pictures, in lines that fit."""

    answer: list[str]
    reasons: list[str]

    @classmethod
    def from_sentences(cls, sentences: Sequence[str]) -> CardText:
        """Break sentences into lines, the first of them being the answer."""
        answer, *reasons = sentences
        whole = partial(textwrap.wrap, break_on_hyphens=False)  # log-odds stay in one piece
        return cls(whole(answer, ANSWER[0]), [line for each in reasons for line in whole(each, REASONS[0])])

    @property
    def height(self) -> float:
        """In inches."""
        return 0.19 + len(self.answer) * ANSWER[1] + len(self.reasons) * REASONS[1]

    def draw(self, figure: Any) -> None:
        """Write the answer in bold, and the reasons below it."""
        below = 0.15 + len(self.answer) * ANSWER[1]
        figure.text(0.01, 1 - 0.05 / self.height, "\n".join(self.answer), fontsize=ANSWER[2], fontweight="bold", va="top")
        figure.text(0.01, 1 - below / self.height, "\n".join(self.reasons), fontsize=REASONS[2], va="top", linespacing=1.35)


def _confidences(figure: Any, content: CardContent, name: Callable[[int], str]) -> None:
    """Draw three bars for each class, the winner on top. Where quantification was pruned, an empty bar shows the upper bound."""
    ax = figure.subplots()
    classes, values, width = content.shown_classes(), content.confidences(), 0.84 / len(PLACES)
    for number, (place, style) in enumerate(zip(PLACES, STYLES, strict=True)):
        at, here = np.arange(len(classes)) + plot_style.offset(number, len(PLACES), 0.84), values[place][classes]
        drawn = ax.barh(at, here, width, edgecolor=plot_style.INK, linewidth=0.6, label=place, **style)
        for bar, line, value, label in zip(drawn, at, here, classes, strict=True):
            missing = content.missing(label) if place == PLACES[-1] else ""
            if missing == "pruned":
                bar.set(facecolor="none", linestyle=(0, (2, 2)))
            note = ax.text(value + 0.015, line, missing or f"{value:.3f}", fontsize=SMALL - 1, va="center_baseline")
            note.set_in_layout(False)  # there is room for it
    found_points.name_rows(ax, ["\n".join([name(each), *_roles(content, each)]) for each in classes])
    options = {"ncols": 3, "frameon": False, "fontsize": SMALL, "handlelength": 1.4, "columnspacing": 0.9}
    figure.legend(*ax.get_legend_handles_labels(), loc="outside upper right", **options)
    ax.set(xlim=(0, 1.25), xticks=(0, 0.5, 1), xticklabels=("0", "0.5", "1"))
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=SMALL)
    some = [f"the {len(classes)} most confident of {len(content.names)} classes"] if len(content.names) > len(classes) else []
    some += ["pruned: can be neither first nor second"] if "pruned" in map(content.missing, classes) else []
    ax.set_xlabel("\n".join(["confidence", *some]), fontsize=SMALL)


def _roles(content: CardContent, label: int) -> list[str]:
    """Return the roles of a class in the decision, in a line if there are any."""
    own = ["model alone"] if label == int(content.decision.base_label) else []
    roles = [role for role, each in content.best if each == label] + own
    return [", ".join(roles)] if roles else []


def _slices(figure: Any, plane: Plane, content: CardContent) -> None:
    """Draw the regions of the model and of DRQ in a plane, the winner's in the first colour, and the three points."""
    inside = plane.inside
    seen = np.unique(torch.cat([plane.base_label[inside], plane.label[inside]]).numpy()).tolist()
    order = [each for each in dict.fromkeys([content.winner, content.runner_up, *seen]) if each >= 0]
    turned = plane_plots.renumbered(plane, order)
    for ax, (title, show) in zip(figure.subplots(1, 2, sharey=True), VIEWS.items(), strict=True):
        plane_plots.plane(turned, ax, show=show)
        ax.set_title(title, fontsize=8, pad=3)
        ax.tick_params(labelsize=SMALL - 1)
        ax.set_xlabel("Euclidean distance", fontsize=SMALL)
        ax.label_outer()
        for (part, label), form in zip(content.best, MARKS, strict=True):
            at = plane.axes.coordinates(torch.from_numpy(content.points(label)[0])[None])[0]
            if bool(at.isfinite().all()):
                plane_plots.marker(ax, at, form, order.index(label), 8, f"explored, {part}")
        plane_plots.marker(ax, plane.point, "^", -1, 8, "input")
    named = dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    named |= {content.short_name(label): plane_plots.patch(number) for number, label in enumerate(order) if label in seen}
    options: dict[str, Any] = {"frameon": False, "fontsize": SMALL, "ncols": 3, "handlelength": 1.6, "columnspacing": 1.1}
    figure.legend(named.values(), named.keys(), loc="outside lower center", **options)
