"""Draw a card that explains a decision over views: all views as thumbnails, what the model says at each, and the gate.

Everything drawn differs in lightness, hatching or shape, so that it can be read in grey and by the colour-blind.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from drq.errors import imported, require
from drq.report import found_points, plane_plots, plot_style
from drq.report.card import SMALL, WIDTH, CardText
from drq.report.card_content import LONGEST

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from drq.decision import Decision
    from drq.views.seen import Seen

COLUMNS, MOST = 9, 36  # thumbnails side by side, and in all
CELL_HEIGHT, CHART_HEIGHT = 1.12, 2.5  # inches
TINY = 5.5  # font size
WRAPPED = 18  # characters of a line above a thumbnail
NAMED = 24  # of a view's name in a sentence
MARKERS: tuple[dict[str, Any], ...] = (
    {"marker": "o", "color": "#0072b2"},
    {"marker": "s", "color": "#e69f00", "markerfacecolor": "white"},
    {"marker": "^", "color": plot_style.INK, "markerfacecolor": "white"},
)  # of the answer, of its best rival, and of the model's own answer where it is neither


class ViewsContent(NamedTuple):
    """What a card shows of a decision over views."""

    decision: Decision
    seen: Seen
    names: list[str]  # of all classes
    counted: NDArray[Any]  # (V, C) log-odds as classes are compared
    confidence: NDArray[Any]  # (V, C)

    @classmethod
    def of(cls, decision: Decision, seen: Seen, names: Sequence[str] | None) -> ViewsContent:
        """Take the content from a decision on one sample."""
        require(len(decision) == 1, "decision", "be about one sample", len(decision), "decision[i : i + 1] is about one")
        count = decision.robustness.shape[1]
        given = list(names) if names is not None else [f"class {number}" for number in range(count)]
        require(len(given) == count, "names", f"hold one for each of {count} classes", len(given), "None numbers them")
        fits = seen.log_odds.shape == (len(seen.names), count) and int(decision.view) < len(seen.names)
        require(fits, "seen", "be of the views of the decision", f"{len(seen.names)} views", "look at the same sample")
        counted, odds = (each.double().cpu().numpy() for each in (seen.counted, seen.log_odds))
        return cls(decision, seen, [*map(plot_style.text, given)], counted, 1 / (1 + np.exp(-odds)))

    @property
    def answer(self) -> int:
        """The class that DRQ answers."""
        return int(self.decision.label)

    @property
    def base(self) -> int:
        """The class that the model alone answers."""
        return int(self.decision.base_label)

    @property
    def rival(self) -> int:
        """The best of the other classes."""
        best = self.counted.max(0)
        best[self.answer] = -np.inf
        return int(best.argmax())

    @property
    def classes(self) -> list[int]:
        """The classes that are shown."""
        return [*dict.fromkeys([self.answer, self.rival, self.base])]

    def best_view(self, label: int) -> int:
        """The view at which a class is best."""
        return int(self.counted[:, label].argmax())

    @property
    def spoke(self) -> int:
        """The view that the answer comes from."""
        return int(self.decision.view)

    @property
    def threshold(self) -> float | None:
        """Log-odds above which a class must get for the gate to give way; None without a gate that can hold."""
        gate = self.seen.gate
        if gate is None or not math.isfinite(gate.threshold):
            return None
        return float(self.counted[0, self.base]) + gate.threshold

    def short(self, label: int) -> str:
        """The name of a class, shortened."""
        return _cut(self.names[label], LONGEST)

    def shown(self) -> list[int]:
        """The views that are shown: all, or the first ones and those that matter."""
        count = len(self.seen.names)
        if count <= MOST:
            return [*range(count)]
        needed = {0, self.spoke, *map(self.best_view, self.classes)}
        others = [each for each in range(count) if each not in needed]
        return sorted([*needed, *others[: MOST - len(needed)]])

    def sentences(self) -> list[str]:
        """The answer, its evidence and its cost, a line each."""
        answer, base = self.short(self.answer), self.short(self.base)
        agrees = "as the model alone does" if self.answer == self.base else f"where the model alone answers {base}"
        passes, forward = int(self.decision.passes), int(self.decision.forward_passes)
        cost = f"{passes} forward passes" if passes == forward else f"{passes} passes"
        return [
            f"DRQ answers {answer}, {agrees}.",
            self._evidence(),
            f"Views: {len(self.seen.names)}. Cost: {cost} of the model. Margin {float(self.decision.margin):.3f}.",
        ]

    def _evidence(self) -> str:
        """What speaks for the best class, and whether the gate let it."""
        best, own = int(self.counted.max(0).argmax()), float(self.counted[0, self.base])
        at, lead = self._named(self.best_view(best)), float(self.counted[:, best].max()) - own
        if self.seen.gate is None:
            rival = f"{self.short(self.rival)} {self._height(self.rival)} ({self._named(self.best_view(self.rival))})"
            return f"Best log-odds: {self.short(self.answer)} {self._height(self.answer)} ({at}), {rival}; no gate."
        way, measure = (
            "held" if self.decision.kept else "gave way",
            "standardised log-odds" if self.seen.gate.mean else "log-odds",
        )
        evidence = f"evidence of {lead:.2f} for {self.short(best)} ({at})"
        return f"The gate {way}: {evidence}, threshold {self.seen.gate.threshold:.2f}, in {measure}."

    def _height(self, label: int) -> str:
        return f"{self.counted[:, label].max():.2f}"

    def _named(self, number: int) -> str:
        return _cut(plot_style.text(self.seen.names[number]), NAMED)


def _cut(text: str, most: int) -> str:
    """Text of at most so many characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def views_card(decision: Decision, seen: Seen, *, names: Sequence[str] | None = None) -> Figure:
    """Draw how DRQ decided on one picture by its views: every view, what the model says there, and whether the gate held.

    Args:
        decision: on one sample. For one of several, give ``decision[i : i + 1]``.
        seen: what the model says about every view of it: :func:`drq.views.seen.seen`.
        names: names of the classes; None numbers them.
    """
    content = ViewsContent.of(decision, seen, names)
    shown = content.shown() if seen.x.dim() == 4 and seen.x.shape[1] in (1, 3) else []
    rows = math.ceil(len(shown) / COLUMNS)
    text = CardText.from_sentences(content.sentences())
    heights = [text.height, *([CELL_HEIGHT * rows] if rows else []), CHART_HEIGHT]
    figure: Figure = imported("matplotlib.figure", "plots", plane_plots.REMEDY).Figure(
        figsize=(WIDTH, sum(heights)), layout="constrained"
    )
    parts: Any = figure.subfigures(len(heights), 1, height_ratios=heights)
    text.draw(parts[0])
    if rows:
        grid = [*parts[1].subplots(rows, COLUMNS, squeeze=False).flat]
        for ax in grid:
            ax.set_axis_off()
        for ax, number in zip(grid, shown, strict=False):
            _thumbnail(ax, content, number)
        first, second = map(content.short, content.classes[:2])
        left_out = "" if len(shown) == len(seen.names) else f" {len(shown)} of {len(seen.names)} views are shown."
        told = f"Above a view its number and name, below it the model's confidence in {first} and in {second}.{left_out}"
        parts[1].supxlabel(told, fontsize=SMALL)
    _chart(parts[-1], content)
    return figure


def _thumbnail(ax: Axes, content: ViewsContent, number: int) -> None:
    """Draw one view with its name above, and the confidence in the two best classes below; a frame marks the one that spoke."""
    picture = found_points.as_pixels(content.seen.x[number].cpu().numpy())
    ax.set_axis_on()
    ax.set(xticks=[], yticks=[])
    ax.imshow(picture.clip(0, 1), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    spoke = number == content.spoke
    title = _cut(f"{number} {plot_style.text(content.seen.names[number])}", 2 * WRAPPED - 4)
    ax.set_title(textwrap.fill(title, WRAPPED), fontsize=TINY, pad=2, fontweight="bold" if spoke else "normal")
    values = "  ".join(f"{content.confidence[number, each]:.2f}" for each in content.classes[:2])
    ax.set_xlabel(values, fontsize=TINY, labelpad=2, fontweight="bold" if spoke else "normal")
    ax.spines[:].set(linewidth=2.5 if spoke else 0.4, color=MARKERS[0]["color"] if spoke else plot_style.INK)


def _chart(figure: Any, content: ViewsContent) -> None:
    """Draw the log-odds of the best classes at every view, and what they must exceed."""
    ax = figure.subplots()
    across = np.arange(len(content.counted))
    for number, (label, style) in enumerate(zip(content.classes, MARKERS, strict=False)):
        role = "the answer" if label == content.answer else "the model alone" if label == content.base else "the best other class"
        heights = np.where(np.isfinite(content.counted[:, label]), content.counted[:, label], np.nan)
        ax.plot(across, heights, linestyle="", markersize=4, zorder=3 - number, label=f"{content.short(label)}, {role}", **style)
    ax.axvline(content.spoke, color=MARKERS[0]["color"], linewidth=6, alpha=0.2, zorder=0, label="the view that spoke")
    if content.threshold is not None:
        ax.axhline(content.threshold, color=plot_style.INK, linestyle="--", linewidth=0.9, label="the gate: to be exceeded")
    gate = content.seen.gate
    ax.set_ylabel("log-odds, standardised" if gate is not None and gate.mean else "log-odds", fontsize=SMALL)
    ax.set_xlabel("view", fontsize=SMALL)
    ax.set_xticks(across if len(across) <= MOST else across[:: math.ceil(len(across) / MOST)])
    ax.set_xlim(-0.7, len(across) - 0.3)
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=SMALL - 1)
    options = {"frameon": False, "fontsize": SMALL, "ncols": 3, "handlelength": 1.6, "columnspacing": 1.1}
    figure.legend(*ax.get_legend_handles_labels(), loc="outside upper center", **options)
