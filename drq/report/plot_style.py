"""How figures look: their axes, colours and names, and what records must hold to be drawn.

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
COLOURS = (INK, "#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # Okabe and Ito's, but for the yellow
MARKERS, LINES, HATCHES = "osD^vPX*", ("-", "--", "-.", ":"), ("", "////", "....", "\\\\\\\\", "xxxx")
WIDTH = 4.8  # inches: letters stay readable where a figure fills a telephone
LONGEST = 32  # letters of a name
LEGEND = 56  # letters beside each other above a figure


def axes(ax: Axes | None, height: float = 3.3) -> Axes:
    """These axes, or those of a figure of its own, which needs no display."""
    if ax is None:
        remedy = "pip install 'decision-region-quantification[report]'"
        ax = imported("matplotlib.figure", "plots", remedy).Figure(figsize=(WIDTH, height), layout="constrained").subplots()
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_axisbelow(True)
    return ax


def band(ax: Axes, rows: DataFrame, x: str, number: int, name: str, value: str = "accuracy") -> None:
    """A line through ``value``, and a band from low to high."""
    at = rows[x].to_numpy()
    low, middle, high = (rows[each].cast(float).to_numpy() for each in ("low", value, "high"))
    colour = COLOURS[number % len(COLOURS)]
    ax.fill_between(at, low, high, color=colour, alpha=0.14, linewidth=0)
    ax.plot(at, middle, label=text(name), **line(number))


def line(number: int) -> dict[str, Any]:
    """What tells a line from others."""
    look = {"color": COLOURS[number % len(COLOURS)], "linestyle": LINES[number % len(LINES)], "linewidth": 1.5}
    return look | {"marker": MARKERS[number % len(MARKERS)], "markersize": 5}


def dots(ax: Axes, rows: DataFrame, at: NDArray[Any], number: int, name: str) -> None:
    """Accuracies from left to right, each with its interval."""
    value = rows["accuracy"].to_numpy()
    look = line(number) | {"linestyle": "none", "elinewidth": 1.2, "capsize": 2}
    ax.errorbar(value, at, xerr=reach(value, rows["low"].to_numpy(), rows["high"].to_numpy()), label=text(name), **look)


def reach(value: NDArray[Any], low: NDArray[Any], high: NDArray[Any]) -> NDArray[Any]:
    """An interval as matplotlib wants it: how far it reaches to both sides."""
    reached: NDArray[Any] = np.stack([value - low, high - value]).clip(0)  # rounding must not make it negative
    return reached


def beside(number: int, count: int, width: float = 0.6) -> float:
    """Where the ``number``-th of ``count`` things that share a line lies on it."""
    return width * ((number + 0.5) / count - 0.5)


def named_lines(ax: Axes, names: Sequence[str]) -> Axes:
    """A name at every line, the first on top; and the names of the series."""
    ax.set_yticks(range(len(names)), labels=names)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="x", color=GREY, alpha=0.4, linewidth=0.5)
    return legend(ax, max(map(len, names)))


def legend(ax: Axes, beside: int = 0) -> Axes:
    """The names of all series above the axes, where they hide nothing; one series needs no name. ``beside`` letters are left."""
    handles, names = ax.get_legend_handles_labels()
    if len(names) > 1:
        columns = min(len(names), max(1, (LEGEND - round(1.2 * beside)) // (max(map(len, names)) + 6)))
        look = {"ncols": columns, "frameon": False, "fontsize": "small", "handlelength": 2.6, "columnspacing": 1.2}
        ax.legend(handles, names, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2, **look)
    return ax


def accuracy_axis(ax: Axes) -> Axes:
    """Accuracy upwards."""
    ax.set_ylabel("accuracy in %")
    ax.grid(axis="y", color=GREY, alpha=0.4, linewidth=0.5)
    return legend(ax)


def text(name: str) -> str:
    """A name as matplotlib shows it: dollars are no formulas, a first underscore hides nothing, long names end early."""
    shown = "".join(each if each.isprintable() else "?" for each in name)
    shown = shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 1]}…"
    return (" " if shown.startswith("_") else "") + shown.replace("$", r"\$")


def fraction(radius: float) -> str:
    """A radius as papers write it.

    >>> fraction(8 / 255), fraction(0.5), fraction(0)
    ('8/255', '0.5', '0')
    """
    levels = radius * 255
    whole = round(levels)
    return f"{whole}/255" if 0 < whole <= 64 and abs(levels - whole) < 1e-6 else f"{radius:g}"


def line_names(lines: DataFrame) -> list[str]:
    """What tells the lines of a figure apart: a column is named where it differs."""
    differs = [each for each in ("model", "data", "threat", "defence", "victim") if each in lines and lines[each].n_unique() > 1]
    shown = differs or ["threat"]
    names = []
    for row in lines.iter_rows(named=True):
        parts = [row[each] for each in shown if each != "victim"]
        on_defence = "victim" in shown and row["victim"] == "defence"
        names.append(text(", ".join(parts) or row["threat"]) + (", on the defence" if on_defence else ""))
    return names


def in_order(records: DataFrame, reference: str) -> list[str]:
    """Defences as they come in the records, the reference first, so that it looks the same in all figures."""
    found = records["defence"].unique(maintain_order=True).to_list()
    return sorted(found, key=lambda each: each != reference)


def require_rows(records: DataFrame, whole: bool = False) -> None:
    """There is something to draw; ``whole`` asks for the columns as well that figures do not need."""
    needed = [name for name in columns(READABLE[0]) if whole or name not in DETAILS]  # no record has less
    missing = [name for name in needed if name not in records.columns]
    remedy = "take the records of a run, as drq.Run.open(path).records"
    require(not missing, "records", "have all columns of a record", f"none named {', '.join(missing[:3])}", remedy)
    require(len(records) > 0, "records", "have rows", "none", "evaluate first, or filter less")


def require_one(records: DataFrame, *columns: str) -> None:
    """All rows are about one model, one data set, and so on."""
    require_rows(records)
    for column in columns:
        values = listed(records, column)
        require(records[column].n_unique() == 1, "records", f"be about one {column}", values, f"filter them by {column}")


def require_several(rows: DataFrame, column: str, remedy: str) -> None:
    """There is a way to go along the axis."""
    count = rows[column].n_unique()
    require(count > 1, "records", f"have at least 2 values of {column}", count, remedy)


def require_one_defence(rows: DataFrame, column: str) -> None:
    """Along a line nothing changes but ``column``: no two defences share a value of it."""
    pl = require_polars()
    shared = rows.group_by(column).agg(pl.col("defence").unique().sort()).filter(pl.col("defence").list.len() > 1).sort(column)
    remedy = "filter them to those that differ in nothing else"
    rule = f"have one defence for each value of {column}"
    require(len(shared) == 0, "records", rule, "" if not len(shared) else ", ".join(shared["defence"][0]), remedy)


def listed(records: DataFrame, column: str, most: int = 3) -> str:
    """The first values of a column, for a message."""
    values = records[column].unique(maintain_order=True).to_list()
    more = f" and {len(values) - most} more" if len(values) > most else ""
    return ", ".join(repr(each) for each in values[:most]) + more


def bars(ax: Axes, rows: DataFrame, at: NDArray[Any], number: int, name: str, width: float) -> None:
    """Differences from left to right, each with its interval."""
    value, low, high = (rows[each].to_numpy() for each in ("difference", "difference_low", "difference_high"))
    colour = COLOURS[1:][number % (len(COLOURS) - 1)]
    look: dict[str, Any] = {"facecolor": f"{colour}59", "edgecolor": colour, "hatch": HATCHES[number % len(HATCHES)]}
    ax.barh(at, value, width, xerr=reach(value, low, high), ecolor=INK, capsize=2, label=text(name), **look)


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
