"""Draw the points that were found for a card's two best classes: as images, or as bars of the features that changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from drq.errors import require
from drq.report import plot_style
from drq.report.card_content import CardContent, format_radius

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SMALL = 7  # font size
MOST_FEATURES = 10  # features that are shown: those that changed most
CHANGES = ("explored - input", "quantified - explored")
STYLES: tuple[dict[str, Any], ...] = (
    {"facecolor": "#e69f00", "hatch": "////"},
    {"facecolor": "#0072b2", "hatch": ""},
)  # for exploration and for quantification, light and dark


@dataclass(frozen=True)
class Images:
    """The layout for images (H, W) or (C, H, W), with changes in cividis."""

    height: float = 3.1  # inches

    def draw(self, part: Any, content: CardContent) -> None:
        """Draw the input, and the points and changes of both classes; all changes have the same scale."""
        grid = part.add_gridspec(2, 5, width_ratios=[1.12, 1, 1, 1, 1])
        points = [content.points(label) for _, label in content.best]
        low, high = _range([content.x, *(each for pair in points for each in pair)])
        self._image(part.add_subplot(grid[:, 0]), content.x, "input", low, high)
        last: list[Axes] = []
        for row, (role, label) in enumerate(content.best):
            axes = [part.add_subplot(grid[row, column]) for column in range(1, 5)]
            titles = ("explored", "quantified", *CHANGES) if row == 0 else ("",) * 4
            for ax, point, title in zip(axes, points[row], titles, strict=False):
                self._image(ax, point, title, low, high)
            for ax, change, title in zip(axes[2:], content.changes(label), titles[2:], strict=True):
                self._image(ax, change, title, -content.scale, content.scale, cmap="cividis")
            axes[0].set_ylabel(f"{role}\n{content.narrow_name(label)}", fontsize=8)
            last += axes[2:]
        _colour_bar(part, last, content)

    @staticmethod
    def _image(ax: Axes, values: NDArray[Any], title: str, low: float, high: float, cmap: str | None = None) -> None:
        ax.set(xticks=[], yticks=[])
        ax.set_title(title, fontsize=8, pad=3)
        if np.isnan(values).all():
            ax.text(0.5, 0.5, "none", ha="center", va="center", fontsize=8, transform=ax.transAxes)
            ax.set_box_aspect(1)
            return
        shown = as_pixels(values)
        if cmap is not None and shown.ndim == 3:
            shown = shown.mean(2)
        if shown.ndim == 3:
            ax.imshow(((shown - low) / (high - low)).clip(0, 1), interpolation="nearest")
        else:
            ax.imshow(shown, cmap=cmap or "gray", vmin=low, vmax=high, interpolation="nearest")


@dataclass(frozen=True)
class Features:
    """The layout for tabular features (D,)."""

    names: Sequence[str]
    shown: int
    height: float  # inches

    def draw(self, part: Any, content: CardContent) -> None:
        """Draw bars of the changes by both searches, for both classes; no feature can change by more than the radius."""
        changes = [np.stack([each.reshape(-1) for each in content.changes(label)]) for _, label in content.best]
        largest = np.nan_to_num(np.abs(np.stack(changes))).max((0, 1))
        chosen = np.sort(np.argsort(-largest, kind="stable")[: self.shown])
        lines = [f"{plot_style.text(self.names[each])} = {content.x.reshape(-1)[each]:.4g}" for each in chosen]
        for ax, (role, label), values in zip(part.subplots(1, 2, sharey=True), content.best, changes, strict=True):
            for number, (name, style) in enumerate(zip(CHANGES, STYLES, strict=True)):
                at = np.arange(len(chosen)) + plot_style.offset(number, len(CHANGES), 0.76)
                ax.barh(
                    at, np.nan_to_num(values[number][chosen]), 0.38, edgecolor=plot_style.INK, linewidth=0.6, label=name, **style
                )
            ax.axvline(0, color=plot_style.INK, linewidth=0.8)
            ax.set_xlim(-1.04 * content.radius, 1.04 * content.radius)
            ax.set_title(f"{role}: {content.name(label)}", fontsize=8, pad=4)
            ax.set_xlabel(
                f"change, from -{format_radius(content.radius)} to {format_radius(content.radius)}, the radius", fontsize=SMALL
            )
            ax.spines[["top", "right"]].set_visible(False)
            name_rows(ax, lines)
            ax.tick_params(labelsize=SMALL)
        part.legend(*ax.get_legend_handles_labels(), loc="outside upper center", ncols=2, frameon=False, fontsize=SMALL)


def name_rows(ax: Axes, names: Sequence[str]) -> None:
    """Label the rows as other figures do, but without a legend, which the card has elsewhere."""
    plot_style.name_rows(ax, names)
    if (legend := ax.get_legend()) is not None:
        legend.remove()


def layout_for(x: NDArray[Any], names: Sequence[str] | None) -> Images | Features:
    """Return the layout for samples of this shape."""
    sides = [each for each in x.shape if each > 1]
    if len(sides) <= 1:
        count = x.size
        feature_names = list(names) if names is not None else [f"feature {number}" for number in range(count)]
        require(
            len(feature_names) == count, "features", f"name each of {count} features", len(feature_names), "None numbers them"
        )
        shown = min(MOST_FEATURES, count)
        return Features(feature_names, shown, 1.0 + 0.3 * shown)
    flat = len(sides) == 2 or (len(sides) == 3 and x.ndim == 3)
    require(flat, "decision", "be about images or rows of features", f"inputs of shape {x.shape}", "draw them yourself")
    return Images()


def as_pixels(values: NDArray[Any]) -> NDArray[Any]:
    """Return pixels (H, W) or (H, W, 3) for drawing; channels that are not colours are averaged."""
    squeezed = values.squeeze() if values.ndim != 3 or values.shape[0] == 1 else values
    if squeezed.ndim == 3 and len(squeezed) == 3:
        return squeezed.transpose(1, 2, 0)
    return squeezed.mean(0) if squeezed.ndim == 3 else squeezed


def _range(images: Sequence[NDArray[Any]]) -> tuple[float, float]:
    """Return the values of black and white: 0 and 1, unless images go beyond them."""
    values = np.concatenate([each[np.isfinite(each)] for each in images])
    return float(values.min(initial=0)), float(values.max(initial=1))


def _colour_bar(part: Any, axes: list[Axes], content: CardContent) -> None:
    """Draw the colour bar that all changes share."""
    drawn = next((ax.images[0] for ax in axes if ax.images), None)
    if drawn is None:
        return
    ticks, beyond = [-content.scale, 0, content.scale], "neither" if content.even else "both"
    bar = part.colorbar(drawn, ax=axes, ticks=ticks, extend=beyond, fraction=0.03, pad=0.02, aspect=28)
    mean = " Of colours, their mean." if content.x.ndim == 3 and len(content.x) > 1 else ""
    part.supxlabel(f"All changes have one scale, {content.rule}.{mean}", fontsize=SMALL)
    bar.ax.set_yticklabels([f"-{format_radius(content.scale)}", "0", format_radius(content.scale)], fontsize=SMALL)
