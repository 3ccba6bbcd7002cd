"""Draw figures of records. Each function draws into ``ax``, or into a new figure, and returns the Axes.

What is drawn are aggregates: a figure of a million rows is as small as one of a hundred. ``ax.figure.savefig("name.pdf")``
keeps a figure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from drq.errors import require
from drq.evaluation.records import require_polars
from drq.report import plot_style, selective
from drq.report.card import card as card
from drq.report.plane_plots import figure1 as figure1
from drq.report.plane_plots import plane as plane
from drq.report.tables import cells, worst_case
from drq.report.views_card import views_card as views_card

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from polars import DataFrame

LINE = ["model", "data", "suite", "threat", "victim"]  # columns that identify a row of a figure
MOST_POINTS = 200  # of a curve


def accuracy_by_threat(records: DataFrame, ax: Axes | None = None, *, reference: str = "standard") -> Axes:
    """Draw accuracies with 95 % intervals, a row for each model, data set and threat, ``reference`` next to other defences.

    Where a suite has several threats, its worst case follows them.
    """
    plot_style.require_rows(records)
    return accuracies(cells(records, reference=reference), worst_case(records, reference=reference), ax, reference=reference)


def accuracies(found: DataFrame, worst: DataFrame, ax: Axes | None = None, *, reference: str = "standard") -> Axes:
    """Draw :func:`accuracy_by_threat` from tables of :func:`drq.report.tables.cells` and :func:`drq.report.tables.worst_case`."""
    pl = require_polars()
    worst = worst.filter(pl.col("threats") > 1).with_columns(threat="worst of " + pl.col("suite"))
    found = pl.concat([each.select(*LINE, "defence", "accuracy", "low", "high") for each in (found, worst)]).drop_nulls(
        "accuracy"
    )
    lines = found.select(LINE).unique(maintain_order=True).with_row_index("row")
    lines = lines.sort(pl.col("row").min().over("model", "data", "suite", "victim"), "row").drop("row").with_row_index("line")
    defences = plot_style.in_order(found, reference)
    ax = plot_style.axes(ax, 1.1 + len(lines) * max(0.3, 0.14 * len(defences)))
    for number, defence in enumerate(defences):
        rows = found.filter(pl.col("defence") == defence).join(lines, on=LINE)
        at = rows["line"].to_numpy() + plot_style.offset(number, len(defences))
        plot_style.dots(ax, rows, at, number, defence)
    ax.set_xlabel("accuracy in %")
    return plot_style.name_rows(ax, plot_style.row_names(lines))


def accuracy_by_radius(records: DataFrame, ax: Axes | None = None, *, reference: str = "standard") -> Axes:
    """Draw Figure 2: accuracy against the radius of the threats, a line for each defence, with 95 % bands.

    Where several threats have the same radius, a sample counts only if the defence is right under all of them. Where most
    threats of a suite have the same radius, the others stand there too, as APGD in l2 does among attacks in linf. A threat that
    has no radius and changes nothing, as ``clean``, is one of radius 0.
    """
    pl = require_polars()
    plot_style.require_one(records, "model", "data", "victim")
    rows = records.drop("threat_radius").join(radii(records), on=["suite", "threat"]).drop_nulls("threat_radius")
    plot_style.require_several(rows, "threat_radius", "evaluate under threats of several radii")
    found = worst_case(rows, by=("victim", "threat_radius"), reference=reference).sort("threat_radius")
    ax = plot_style.axes(ax)
    for number, defence in enumerate(plot_style.in_order(records, reference)):
        plot_style.band(ax, found.filter(pl.col("defence") == defence), "threat_radius", number, defence)
    ticks = found["threat_radius"].unique().sort().to_list()
    ax.set_xticks(ticks, labels=[plot_style.fraction(each) for each in ticks])
    ax.set_xlabel("radius of the threat")
    ax.set_ylim(0, 100)
    return plot_style.accuracy_axis(ax)


def radii(records: DataFrame) -> DataFrame:
    """Add the radius at which :func:`accuracy_by_radius` shows each threat; null where it has none."""
    pl = require_polars()
    unchanged = pl.col("threat_radius").is_null().all() & (pl.col("distance_linf").max() == 0)
    radius = pl.when(unchanged).then(0.0).otherwise(pl.col("threat_radius").first())
    threats = records.group_by("suite", "threat").agg(threat_radius=radius)
    usual = threats.group_by("suite", "threat_radius").agg(same=pl.len()).sort("same").group_by("suite").agg(pl.all().last())
    counted = threats.join(threats.group_by("suite").len("all"), on="suite").join(usual, on="suite", suffix="_usual")
    placed = pl.when(2 * pl.col("same") > pl.col("all")).then("threat_radius_usual").otherwise("threat_radius")
    return counted.select("suite", "threat", threat_radius=placed)


def accuracy_by_steps(records: DataFrame, ax: Axes | None = None, *, of: Literal["explore", "quantify"] = "explore") -> Axes:
    """Draw Figure 3: accuracy against the steps of exploration or of quantification, a line for each threat, with 95 % bands.

    The steps of the other search are the same all along a line: where records have several such numbers, the one that was
    tried with most numbers of steps, of these the largest.
    """
    pl = require_polars()
    require(of in ("explore", "quantify"), "of", "be 'explore' or 'quantify'", repr(of), "choose one")
    steps, other = ("explore_steps", "quantify_steps") if of == "explore" else ("quantify_steps", "explore_steps")
    plot_style.require_one(records, "model", "data", "victim")
    rows = records.drop_nulls([steps, other])
    remedy = f"evaluate defences with several {steps} and the same {other}"
    plot_style.require_several(rows, steps, remedy)
    fixed = rows.group_by(other).agg(pl.col(steps).n_unique()).sort(steps, other)[other][-1]
    rows = rows.filter(pl.col(other) == fixed)
    plot_style.require_several(rows, steps, remedy)
    plot_style.require_one_defence(rows, steps)
    found = cells(rows, by=("threat", "victim", steps)).sort(steps)
    ax = plot_style.axes(ax)
    for number, threat in enumerate(rows["threat"].unique(maintain_order=True)):
        plot_style.band(ax, found.filter(pl.col("threat") == threat), steps, number, threat)
    ax.set_xticks(found[steps].unique().sort().to_list())
    names = {"explore_steps": "exploration", "quantify_steps": "quantification"}
    ax.set_xlabel(f"steps of {names[steps]} ({names[other]}: {fixed})")
    return plot_style.accuracy_axis(ax)


def radius_by_threshold(records: DataFrame, ax: Axes | None = None) -> Axes:
    """Draw Figure 4: the calibrated radius against the confidence that is asked for, its median with a band of quartiles.

    A sample without a radius counts as one of infinite radius, so a line may end. Thresholds are spread out towards 1, and the
    radius has a logarithmic axis where it spans more than a factor of ten.
    """
    pl = require_polars()
    plot_style.require_one(records, "model", "data", "victim")
    rows = records.drop_nulls("threshold")
    plot_style.require_several(rows, "threshold", "evaluate defences that calibrate with several confidences")
    plot_style.require_one_defence(rows, "threshold")
    radius = pl.col("radius").fill_null(float("inf"))
    shares = {"low": 0.25, "median": 0.5, "high": 0.75}
    found = rows.group_by("threat", "threshold").agg(**{name: radius.quantile(share, "lower") for name, share in shares.items()})
    found = found.sort("threshold").with_columns(pl.when(pl.col(name).is_finite()).then(pl.col(name)) for name in shares)
    require(found["median"].count() > 0, "records", "have a radius for half of the samples", "none", "try lower confidences")
    ax = plot_style.axes(ax)
    for number, threat in enumerate(rows["threat"].unique(maintain_order=True)):
        plot_style.band(ax, found.filter(pl.col("threat") == threat), "threshold", number, threat, "median")
    plot_style.spread(ax, found)
    ax.set_xlabel("confidence asked for in calibration")
    ax.set_ylabel("radius: median and quartiles")
    return plot_style.legend(ax)


def cosine(records: DataFrame, ax: Axes | None = None) -> Axes:
    """Draw Figure 5: the cosine between the change by the threat and that by DRQ, on samples that DRQ corrects; a box by threat.

    Below 0 DRQ goes back towards the clean input. The number of samples stands beside each name. A box spans
    the quartiles around the median; whiskers reach the last sample within one and a half times its length.
    """
    pl = require_polars()
    plot_style.require_rows(records)
    put_right = (pl.col("prediction") == pl.col("label")) & (pl.col("base_prediction") != pl.col("label"))
    rows = records.filter(put_right).drop_nulls("cosine")
    remedy = "evaluate a defence of kind drq under a threat that changes inputs"
    require(len(rows) > 0, "records", "hold a cosine of a sample that DRQ puts right", "none", remedy)
    keys = [*LINE, "defence"]
    value = pl.col("cosine")
    ends = {"q1": value.quantile(0.25, "linear"), "q3": value.quantile(0.75, "linear")}
    length = ends["q3"] - ends["q1"]
    ends |= {"whislo": value.filter(value >= ends["q1"] - 1.5 * length).min()}
    ends |= {"whishi": value.filter(value <= ends["q3"] + 1.5 * length).max()}
    found = rows.group_by(keys, maintain_order=True).agg(med=value.median(), **ends, count=pl.len())
    names = [f"{name} ({count})" for name, count in zip(plot_style.row_names(found), found["count"], strict=True)]
    ax = plot_style.axes(ax, 1.1 + 0.35 * len(names))
    ax.axvline(0, color=plot_style.GREY, linewidth=0.8)
    median = {"color": plot_style.COLOURS[1], "linewidth": 2.5}
    boxes = found.drop(keys, "count").to_dicts()
    ax.bxp(boxes, range(len(names)), widths=0.55, orientation="horizontal", showfliers=False, medianprops=median)
    ax.set_xlabel("cosine")
    return plot_style.name_rows(ax, names)


def ablation(records: DataFrame, ax: Axes | None = None, *, reference: str = "standard") -> Axes:
    """Draw the difference of each defence to the ``reference`` in points, with 95 % intervals: a bar by defence and threat."""
    plot_style.require_rows(records)
    return differences(cells(records, reference=reference), ax, reference=reference)


def differences(found: DataFrame, ax: Axes | None = None, *, reference: str = "standard") -> Axes:
    """Draw :func:`ablation` from a table of :mod:`drq.report.tables`."""
    pl = require_polars()
    known = found.filter(pl.col("defence") != reference).drop_nulls("difference")
    remedy = "evaluate both on the same samples"
    require(len(known) > 0, "records", f"hold a defence beside {reference!r}", plot_style.listed(found, "defence"), remedy)
    lines = known.select(LINE).unique(maintain_order=True).with_row_index("line")
    names, known = plot_style.row_names(lines), known.join(lines, on=LINE)
    defences = [each for each in plot_style.in_order(found, reference) if each in set(known["defence"])]
    ax = plot_style.axes(ax, 1.1 + len(defences) * max(0.35, 0.16 * len(names)))
    for number, name in enumerate(names):
        rows = known.filter(pl.col("line") == number)
        at = np.array([defences.index(each) for each in rows["defence"]]) + plot_style.offset(number, len(names), 0.8)
        plot_style.bars(ax, rows, at, number, name, 0.8 / len(names))
    ax.axvline(0, color=plot_style.INK, linewidth=0.8)
    ax.set_xlabel(f"difference to {plot_style.text(reference)} in points")
    return plot_style.name_rows(ax, [plot_style.text(each) for each in defences])


def risk_coverage(records: DataFrame, ax: Axes | None = None) -> Axes:
    """Draw the errors among answers against the share of samples that are answered, the most trusted first; lower is better.

    Answers of DRQ are ranked by their margin; beside them those of the undefended model by its confidence and its logit margin.
    """
    pl = require_polars()
    plot_style.require_one(records, "model", "data", "suite", "threat", "victim")
    rows = records.drop_nulls("margin")
    require(len(rows) > 0, "records", "hold margins", "none", "evaluate a defence of kind drq")
    defences = rows["defence"].unique(maintain_order=True).to_list()
    parts = {each: rows.filter(pl.col("defence") == each) for each in defences}
    curves = [("undefended, by confidence", parts[defences[0]], "base_prediction", "confidence")]
    curves += [("undefended, by logit margin", parts[defences[0]], "base_prediction", "logit_margin")]
    curves += [(f"{each}, by margin", part, "prediction", "margin") for each, part in parts.items()]
    ax = plot_style.axes(ax)
    for number, (name, part, answer, score) in enumerate(curves):
        curve = selective.risk_coverage(part[answer].to_numpy() == part["label"].to_numpy(), part[score].to_numpy())
        some = np.unique(np.searchsorted(curve.coverage, np.linspace(0, curve.coverage[-1], MOST_POINTS)))
        look = plot_style.line(number) | {"markevery": max(1, len(some) // 8), "markersize": 4, "linewidth": 1.3}
        ax.plot(100 * curve.coverage[some], 100 * curve.risk[some], label=plot_style.text(name), **look)
    ax.set_xlabel("samples answered, in %")
    ax.set_ylabel("errors among answers, in %")
    ax.set_ylim(bottom=0)
    ax.grid(color=plot_style.GREY, alpha=0.4, linewidth=0.5)
    return plot_style.legend(ax)
