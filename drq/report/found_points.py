"""The points that were found for the two best classes of a card: as images, or as bars of the features that changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from drq.errors import require
from drq.report import plot_style
from drq.report.card_content import Told, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SMALL = 7  # points of letters
FEATURES = 10  # of a row, shown at most: those that changed most
CHANGES = ("explored - input", "quantified - explored")
LOOKS: tuple[dict[str, Any], ...] = (
    {"facecolor": "#e69f00", "hatch": "////"},
    {"facecolor": "#0072b2", "hatch": ""},
)  # of exploration and of quantification, light and dark


@dataclass(frozen=True)
class Images:
    """Grey or coloured images (H, W) or (C, H, W), and their changes in cividis."""

    height: float = 3.1  # inches

    def draw(self, part: Any, told: Told) -> None:
        """The input, and for both classes the points and what they changed; all changes have one scale."""
        grid = part.add_gridspec(2, 5, width_ratios=[1.12, 1, 1, 1, 1])
        points = [told.points(label) for _, label in told.best]
        low, high = _range([told.x, *(each for pair in points for each in pair)])
        self._image(part.add_subplot(grid[:, 0]), told.x, "input", low, high)
        last: list[Axes] = []
        for row, (role, label) in enumerate(told.best):
            axes = [part.add_subplot(grid[row, column]) for column in range(1, 5)]
            titles = ("explored", "quantified", *CHANGES) if row == 0 else ("",) * 4
            for ax, point, title in zip(axes, points[row], titles, strict=False):
                self._image(ax, point, title, low, high)
            for ax, change, title in zip(axes[2:], told.changes(label), titles[2:], strict=True):
                self._image(ax, change, title, -told.scale, told.scale, cmap="cividis")
            axes[0].set_ylabel(f"{role}\n{told.brief(label)}", fontsize=8)
            last += axes[2:]
        _key(part, last, told)

    @staticmethod
    def _image(ax: Axes, values: NDArray[Any], title: str, low: float, high: float, cmap: str | None = None) -> None:
        ax.set(xticks=[], yticks=[])
        ax.set_title(title, fontsize=8, pad=3)
        if np.isnan(values).all():
            ax.text(0.5, 0.5, "none", ha="center", va="center", fontsize=8, transform=ax.transAxes)
            ax.set_box_aspect(1)
            return
        shown = _pixels(values)
        if cmap is not None and shown.ndim == 3:
            shown = shown.mean(2)
        if shown.ndim == 3:
            ax.imshow(((shown - low) / (high - low)).clip(0, 1), interpolation="nearest")
        else:
            ax.imshow(shown, cmap=cmap or "gray", vmin=low, vmax=high, interpolation="nearest")


@dataclass(frozen=True)
class Features:
    """A row of features (D,)."""

    names: Sequence[str]
    shown: int
    height: float  # inches

    def draw(self, part: Any, told: Told) -> None:
        """Bars of what both searches changed, for both classes; no feature can change by more than the radius in any norm."""
        changes = [np.stack([each.reshape(-1) for each in told.changes(label)]) for _, label in told.best]
        largest = np.nan_to_num(np.abs(np.stack(changes))).max((0, 1))
        chosen = np.sort(np.argsort(-largest, kind="stable")[: self.shown])
        lines = [f"{plot_style.text(self.names[each])} = {told.x.reshape(-1)[each]:.4g}" for each in chosen]
        for ax, (role, label), values in zip(part.subplots(1, 2, sharey=True), told.best, changes, strict=True):
            for number, (name, look) in enumerate(zip(CHANGES, LOOKS, strict=True)):
                at = np.arange(len(chosen)) + plot_style.beside(number, len(CHANGES), 0.76)
                ax.barh(
                    at, np.nan_to_num(values[number][chosen]), 0.38, edgecolor=plot_style.INK, linewidth=0.6, label=name, **look
                )
            ax.axvline(0, color=plot_style.INK, linewidth=0.8)
            ax.set_xlim(-1.04 * told.radius, 1.04 * told.radius)
            ax.set_title(f"{role}: {told.brief(label)}", fontsize=8, pad=4)
            ax.set_xlabel(f"change, from -{short(told.radius)} to {short(told.radius)}, the radius", fontsize=SMALL)
            ax.spines[["top", "right"]].set_visible(False)
            named_lines(ax, lines)
            ax.tick_params(labelsize=SMALL)
        part.legend(*ax.get_legend_handles_labels(), loc="outside upper center", ncols=2, frameon=False, fontsize=SMALL)


def named_lines(ax: Axes, names: Sequence[str]) -> None:
    """As those of other figures; the names of the series stand elsewhere."""
    plot_style.named_lines(ax, names)
    if (legend := ax.get_legend()) is not None:
        legend.remove()


def of(x: NDArray[Any], names: Sequence[str] | None) -> Images | Features:
    """How points of this form are shown."""
    sides = [each for each in x.shape if each > 1]
    if len(sides) <= 1:
        count = x.size
        given = list(names) if names is not None else [f"feature {number}" for number in range(count)]
        require(len(given) == count, "features", f"name each of {count} features", len(given), "None numbers them")
        shown = min(FEATURES, count)
        return Features(given, shown, 1.0 + 0.3 * shown)
    flat = len(sides) == 2 or (len(sides) == 3 and x.ndim == 3)
    require(flat, "decision", "be about images or rows of features", f"inputs of shape {x.shape}", "draw them yourself")
    return Images()


def _pixels(values: NDArray[Any]) -> NDArray[Any]:
    """(H, W) grey, or (H, W, 3): colours last, as they are drawn. Channels that are no colours are averaged."""
    squeezed = values.squeeze() if values.ndim != 3 or values.shape[0] == 1 else values
    if squeezed.ndim == 3 and len(squeezed) == 3:
        return squeezed.transpose(1, 2, 0)
    return squeezed.mean(0) if squeezed.ndim == 3 else squeezed


def _range(images: Sequence[NDArray[Any]]) -> tuple[float, float]:
    """What is black and what is white: 0 and 1, unless images leave that."""
    values = np.concatenate([each[np.isfinite(each)] for each in images])
    return float(values.min(initial=0)), float(values.max(initial=1))


def _key(part: Any, axes: list[Axes], told: Told) -> None:
    """The one scale of all changes."""
    drawn = next((ax.images[0] for ax in axes if ax.images), None)
    if drawn is None:
        return
    bar = part.colorbar(drawn, ax=axes, ticks=[-told.scale, 0, told.scale], fraction=0.03, pad=0.02, aspect=28)
    mean = " Of colours, their mean." if told.x.ndim == 3 and len(told.x) > 1 else ""
    part.supxlabel(f"All changes have one scale, {told.rule}.{mean}", fontsize=SMALL)
    bar.ax.set_yticklabels([f"-{short(told.scale)}", "0", short(told.scale)], fontsize=SMALL)
