"""Define the common style of figures: axes, colours and names; and check that records can be drawn.

Series differ in colour, marker and line, so that they can be told apart in grey and by the colour-blind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from drq.errors import imported, require
from drq.evaluation.records import DETAILS, READABLE, columns, require_polars

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from polars import DataFrame

INK, GREY = "#000000", "#8c8c8c"
COLOURS = (INK, "#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # Okabe and Ito's, without the yellow
MARKERS, LINES, HATCHES = "osD^vPX*", ("-", "--", "-.", ":"), ("", "////", "....", "\\\\\\\\", "xxxx")
WIDTH = 4.8  # inches: text stays readable where a figure fills the screen of a phone
LONGEST = 32  # characters of a name that are shown
LEGEND = 56  # characters that fit in a row of a legend above a figure


def axes(ax: Axes | None, height: float = 3.3) -> Axes:
    """Return these axes in the common style, or those of a new figure, which needs no display."""
    if ax is None:
        remedy = "pip install 'decision-region-quantification[report]'"
        ax = imported("matplotlib.figure", "plots", remedy).Figure(figsize=(WIDTH, height), layout="constrained").subplots()
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_axisbelow(True)
    return ax


def band(ax: Axes, rows: DataFrame, x: str, number: int, name: str, value: str = "accuracy") -> None:
    """Draw a line through ``value``, and a band from low to high."""
    at = rows[x].to_numpy()
    low, middle, high = (rows[each].cast(float).to_numpy() for each in ("low", value, "high"))
    colour = COLOURS[number % len(COLOURS)]
    ax.fill_between(at, low, high, color=colour, alpha=0.14, linewidth=0)
    ax.plot(at, middle, label=text(name), **line(number))


def line(number: int) -> dict[str, Any]:
    """Return the style of the ``number``-th line."""
    style = {"color": COLOURS[number % len(COLOURS)], "linestyle": LINES[number % len(LINES)], "linewidth": 1.5}
    return style | {"marker": MARKERS[number % len(MARKERS)], "markersize": 5}


def dots(ax: Axes, rows: DataFrame, at: NDArray[Any], number: int, name: str) -> None:
    """Draw accuracies from left to right, each with its interval."""
    value = rows["accuracy"].to_numpy()
    style = line(number) | {"linestyle": "none", "elinewidth": 1.2, "capsize": 2}
    ax.errorbar(value, at, xerr=error_bars(value, rows["low"].to_numpy(), rows["high"].to_numpy()), label=text(name), **style)


def error_bars(value: NDArray[Any], low: NDArray[Any], high: NDArray[Any]) -> NDArray[Any]:
    """Return an interval in matplotlib's form: its extent to both sides of the value."""
    extents: NDArray[Any] = np.stack([value - low, high - value]).clip(0)  # rounding must not make them negative
    return extents


def offset(number: int, count: int, width: float = 0.6) -> float:
    """Return the offset of the ``number``-th of ``count`` series within a row."""
    return width * ((number + 0.5) / count - 0.5)


def name_rows(ax: Axes, names: Sequence[str]) -> Axes:
    """Label the rows, the first on top, and add the legend."""
    ax.set_yticks(range(len(names)), labels=names)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x", color=GREY, alpha=0.4, linewidth=0.5)
    return legend(ax, max(map(len, names)))


def legend(ax: Axes, indent: int = 0) -> Axes:
    """Add a legend above the axes if there are several series; row labels of ``indent`` characters take room to its left."""
    handles, names = ax.get_legend_handles_labels()
    if len(names) > 1:
        columns = min(len(names), max(1, (LEGEND - round(1.2 * indent)) // (max(map(len, names)) + 6)))
        options = {"ncols": columns, "frameon": False, "fontsize": "small", "handlelength": 2.6, "columnspacing": 1.2}
        ax.legend(handles, names, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2, **options)
    return ax


def accuracy_axis(ax: Axes) -> Axes:
    """Label the vertical axis with the accuracy, and add the legend."""
    ax.set_ylabel("accuracy in %")
    ax.grid(axis="y", color=GREY, alpha=0.4, linewidth=0.5)
    return legend(ax)


def text(name: str) -> str:
    """Return a name as literal text for matplotlib: no formulas in dollars, not hidden by an underscore, and shortened."""
    shown = "".join(each if each.isprintable() else "?" for each in name)
    shown = shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 1]}…"
    return (" " if shown.startswith("_") else "") + shown.replace("$", r"\$")


def fraction(radius: float) -> str:
    """Return a radius as papers write it.

    >>> fraction(8 / 255), fraction(0.5), fraction(0)
    ('8/255', '0.5', '0')
    """
    levels = radius * 255
    whole = round(levels)
    return f"{whole}/255" if 0 < whole <= 64 and abs(levels - whole) < 1e-6 else f"{radius:g}"


def row_names(lines: DataFrame) -> list[str]:
    """Return names for the rows of a figure, made of the columns in which they differ."""
    differs = [each for each in ("model", "data", "threat", "defence", "victim") if each in lines and lines[each].n_unique() > 1]
    shown = differs or ["threat"]
    names = []
    for row in lines.iter_rows(named=True):
        parts = [row[each] for each in shown if each != "victim"]
        on_defence = "victim" in shown and row["victim"] == "defence"
        names.append(text(", ".join(parts) or row["threat"]) + (", on the defence" if on_defence else ""))
    return names


def in_order(records: DataFrame, reference: str) -> list[str]:
    """Return the defences in the order of the records, the reference first, so that it looks the same in all figures."""
    defences = records["defence"].unique(maintain_order=True).to_list()
    return sorted(defences, key=lambda each: each != reference)


def require_rows(records: DataFrame, whole: bool = False) -> None:
    """Require records with rows; with ``whole`` also the columns that figures do not need."""
    needed = [
        name for name in columns(READABLE[0]) if whole or name not in DETAILS
    ]  # the columns of the first schema, which all records have
    missing = [name for name in needed if name not in records.columns]
    remedy = "take the records of a run, as drq.Run.open(path).records"
    require(not missing, "records", "have all columns of a record", f"none named {', '.join(missing[:3])}", remedy)
    require(len(records) > 0, "records", "have rows", "none", "evaluate first, or filter less")


def require_one(records: DataFrame, *columns: str) -> None:
    """Require that each of these columns has a single value."""
    require_rows(records)
    for column in columns:
        values = listed(records, column)
        require(records[column].n_unique() == 1, "records", f"be about one {column}", values, f"filter them by {column}")


def require_several(rows: DataFrame, column: str, remedy: str) -> None:
    """Require at least two values for the horizontal axis."""
    count = rows[column].n_unique()
    require(count > 1, "records", f"have at least 2 values of {column}", count, remedy)


def require_one_defence(rows: DataFrame, column: str) -> None:
    """Require one defence for each value of ``column``, so that nothing else changes along a line."""
    pl = require_polars()
    shared = rows.group_by(column).agg(pl.col("defence").unique().sort()).filter(pl.col("defence").list.len() > 1).sort(column)
    remedy = "filter them to those that differ in nothing else"
    rule = f"have one defence for each value of {column}"
    require(len(shared) == 0, "records", rule, "" if not len(shared) else ", ".join(shared["defence"][0]), remedy)


def listed(records: DataFrame, column: str, most: int = 3) -> str:
    """Return the first values of a column, for a message."""
    values = records[column].unique(maintain_order=True).to_list()
    more = f" and {len(values) - most} more" if len(values) > most else ""
    return ", ".join(repr(each) for each in values[:most]) + more


def bars(ax: Axes, rows: DataFrame, at: NDArray[Any], number: int, name: str, width: float) -> None:
    """Draw differences from left to right, each with its interval."""
    value, low, high = (rows[each].to_numpy() for each in ("difference", "difference_low", "difference_high"))
    colour = COLOURS[1:][number % (len(COLOURS) - 1)]
    style: dict[str, Any] = {"facecolor": f"{colour}59", "edgecolor": colour, "hatch": HATCHES[number % len(HATCHES)]}
    ax.barh(at, value, width, xerr=error_bars(value, low, high), ecolor=INK, capsize=2, label=text(name), **style)


def spread(ax: Axes, found: DataFrame) -> None:
    """Thresholds by their log-odds, where they have some; the radius by its logarithm, where it spans a factor of ten."""
    thresholds = found["threshold"].unique().sort().to_list()
    if thresholds[0] > 0 and thresholds[-1] < 1:
        ax.set_xscale("logit")
        ax.set_xticks(thresholds, labels=[f"{each:g}" if each < 0.9999 else f"1 - {1 - each:.0e}" for each in thresholds])
        ax.set_xticks([], minor=True)
    radii = found["median"].drop_nulls().to_list()
    if min(radii) > 0 and max(radii) > 10 * min(radii):
        ax.set_yscale("log")
    ax.grid(axis="y", color=GREY, alpha=0.4, linewidth=0.5)
