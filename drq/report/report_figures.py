"""Choose and draw the figures of a report: those for which its records suffice, a few for each model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

from drq.errors import InputError
from drq.evaluation.records import require_polars
from drq.report import plots
from drq.report.html_elements import Markup, element, figure, joined
from drq.report.plots import LINE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from polars import DataFrame

Place = dict[str, Any]  # values of columns, by which rows are selected
MOST_LINES = 30  # rows of a figure
MOST_BARS = 6  # groups of bars in a figure


class Plan(NamedTuple):
    """A figure that is drawn if the records suffice."""

    title: str
    caption: str
    draw: Callable[[], Axes]


class Tables(NamedTuple):
    """The tables from which figures are drawn."""

    cells: DataFrame
    worst: DataFrame
    means: DataFrame


def overview(records: DataFrame, tables: Tables, reference: str) -> Markup | None:
    """Return figures of the accuracy and of its dependence on settings; models take turns."""
    pl = require_polars()
    settings = pl.col("threat_radius", "explore_steps", "quantify_steps", "threshold").first()
    outline = records.group_by(*LINE, "defence", maintain_order=True).agg(settings, pl.col("cosine").is_not_null().any())
    models = (_plans(records, _only(outline, model), model, tables, reference) for model in _values(outline, "model"))
    return _drawn("figure", 14, (plan for turn in zip_longest(*models) for plan in turn if plan))


def abstention(records: DataFrame) -> Markup | None:
    """Return figures of risk against coverage for each model and data set, under its easiest and its hardest threat."""
    return _drawn("risk", 6, _curves(records))


def _drawn(key: str, most: int, plans: Iterator[Plan]) -> Markup | None:
    """Draw at most this many figures in order, leaving out those for which the records do not suffice."""
    drawn: list[Markup] = []
    note = None
    for plan in plans:
        if len(drawn) == most:
            note = element("p", f"These are the first {most}; drq.report.plots draws the others.", class_="quiet")
            break
        try:
            ax = plan.draw()
        except InputError:
            continue
        drawn.append(figure(ax, f"{key}-{len(drawn) + 1}", plan.title, plan.caption))
    return joined([element("div", *drawn, class_="figures"), note]) if drawn else None


def _plans(records: DataFrame, outline: DataFrame, model: Place, tables: Tables, reference: str) -> Iterator[Plan]:
    yield from _accuracies(model, tables, reference)
    for place in _values(outline, "model", "data", "victim"):
        yield from _dependences(records, _only(outline, place), place, reference)
    if 0 < len(_only(outline, {"cosine": True})) <= MOST_LINES:
        text = "Angle between what the threat did and what DRQ does, over samples that it puts right: below 0 it goes back."
        yield Plan(f"Direction of DRQ: {model['model']}", text, partial(_draw, plots.cosine, records, model))


def _accuracies(model: Place, tables: Tables, reference: str) -> Iterator[Plan]:
    """Yield figures of a model's accuracies, split by data set if one would be too long, and of differences between defences."""
    pl = require_polars()
    cells, worst, means = (_only(each, model) for each in tables)
    if cells.select(LINE).n_unique() > MOST_LINES:  # then corruptions are shown by their mean
        together = [name for name in cells["data"].unique() if any(fnmatch(name, family) for family in means["data"].unique())]
        alone = ~pl.col("data").is_in(together)
        cells, worst = pl.concat([cells.filter(alone), means]), worst.filter(alone)
    places = _values(cells, "model", "data") if cells.select(LINE).n_unique() > MOST_LINES else [model]
    for place in places:
        draw = partial(plots.accuracies, _only(cells, place), _only(worst, place), reference=reference)
        yield Plan(f"Accuracy: {', '.join(place.values())}", "All defences side by side, with 95 % intervals.", draw)
    for place in _values(cells, "model", "data", "victim"):
        rows = _only(cells, place)
        if rows["defence"].n_unique() > 2 and rows.select(LINE).n_unique() <= MOST_BARS:
            text = f"Accuracy of each defence minus that of {reference}, with 95 % intervals."
            yield Plan(f"Differences: {_title(place)}", text, partial(plots.differences, rows, reference=reference))


def _dependences(records: DataFrame, outline: DataFrame, place: Place, reference: str) -> Iterator[Plan]:
    """Yield figures of how accuracy and radius depend on each setting that has several values."""
    by_radius = partial(plots.accuracy_by_radius, reference=reference)
    explore, quantify = (partial(plots.accuracy_by_steps, of=of) for of in ("explore", "quantify"))
    worst = "Worst case over all threats of the same radius, with 95 % bands."
    equal = "All else is equal; with 95 % bands."
    found = "The radius that calibration finds: median, and a band between the quartiles."
    kinds: dict[str, tuple[str, str, Callable[[DataFrame], Axes]]] = {
        "threat_radius": ("Accuracy by radius", worst, by_radius),
        "explore_steps": ("Accuracy by steps of exploration", equal, explore),
        "quantify_steps": ("Accuracy by steps of quantification", equal, quantify),
        "threshold": ("Calibrated radius", found, plots.radius_by_threshold),
    }
    for column, (title, text, draw) in kinds.items():
        if outline[column].drop_nulls().n_unique() > 1:
            yield Plan(f"{title}: {_title(place)}", text, partial(_draw, draw, records, place))


def _curves(records: DataFrame) -> Iterator[Plan]:
    pl = require_polars()
    text = "The fewer questions are answered, the fewer answers should be wrong: lower is better."
    right = (pl.col("base_prediction") == pl.col("label")).mean().alias("right")
    known = records.filter(pl.col("victim") == "base").drop_nulls("margin")
    ranked = known.group_by(LINE, maintain_order=True).agg(right).sort("right", descending=True, maintain_order=True)
    for place in _values(known, "model", "data"):
        threats = [*_values(_only(ranked, place), *LINE)]
        for each in [threats[0], threats[-1]][: len(threats)]:
            name = ", ".join(each[column] for column in ("model", "data", "threat"))
            yield Plan(f"Risk and coverage: {name}", text, partial(_draw, plots.risk_coverage, known, each))


def _draw(draw: Callable[[DataFrame], Axes], records: DataFrame, place: Place) -> Axes:
    """Draw a figure of the selected records."""
    return draw(_only(records, place))


def _values(frame: DataFrame, *columns: str) -> Iterator[Place]:
    """Yield the distinct values of these columns, in order."""
    return frame.select(columns).unique(maintain_order=True).iter_rows(named=True)


def _only(frame: DataFrame, place: Place) -> DataFrame:
    """Return the selected rows."""
    pl = require_polars()
    return frame.filter(*(pl.col(name) == value for name, value in place.items()))


def _title(place: Place) -> str:
    return f"{place['model']}, {place['data']}" + (", attacks on the defence itself" if place["victim"] == "defence" else "")
