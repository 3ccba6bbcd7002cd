"""Build the tables of a report as HTML, each accuracy with the expression that recomputes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from drq.evaluation.paper import stand_ins
from drq.evaluation.records import require_polars
from drq.report import plot_style, selective, tables
from drq.report.html_elements import Accuracies, Markup, element, first, joined, number, table
from drq.report.statistics import paired
from drq.report.verdict import CHANCE, Cost, rounded

if TYPE_CHECKING:
    from polars import DataFrame

Row = dict[str, Any]
AREAS = {
    "aurc": "by margin",
    "aurc_by_confidence": "by confidence",
    "base_aurc_by_confidence": "undefended, by confidence",
    "base_aurc_by_logit_margin": "undefended, by logit margin",
}
MOST_ROWS, RESAMPLES = 100_000, 200  # up to so many rows, differences of areas get intervals from so many resamples


def accuracy(found: DataFrame, accuracies: Accuracies, reference: str) -> Markup:
    """Return a table for each model, with a row for each data set and threat and a column for each defence."""
    defences = plot_style.in_order(found, reference)
    return joined(_of_model(rows, defences, accuracies) for rows in found.partition_by("model", maintain_order=True))


def _of_model(rows: DataFrame, defences: Sequence[str], accuracies: Accuracies) -> Markup:
    defences = [each for each in defences if each in set(rows["defence"])]
    caption, differs = _about(rows)
    lines: dict[tuple[str, ...], dict[str, Row]] = {}
    for row in rows.iter_rows(named=True):
        key = (row["data"], row["suite"], row["threat"], row["victim"])
        lines.setdefault(key, {})[row["defence"]] = row
    body = []
    for line in lines.values():
        name = _label(next(iter(line.values())), differs)
        body.append([first(name), _images(line), *(_answer(line.get(defence), accuracies) for defence in defences)])
    return table(caption, [", ".join(differs), "images", *defences], body)


def _by_model(found: DataFrame, head: Sequence[str], numbers: Callable[[Row], Sequence[Markup]]) -> Markup:
    """Return a table for each model, with a row of these numbers for each data set, threat and defence."""
    shown = []
    for rows in found.partition_by("model", maintain_order=True):
        caption, differs = _about(rows)
        body = [
            [first(_label(row, differs)), element("td", row["defence"], class_="text"), *numbers(row)]
            for row in rows.iter_rows(named=True)
        ]
        shown.append(table(caption, [", ".join(differs), "defence", *head], body, 2))
    return joined(shown)


def _about(rows: DataFrame) -> tuple[str, list[str]]:
    """Return the caption of a model's table, and the columns in which its rows differ."""
    differs = [name for name in ("data", "threat") if rows[name].n_unique() > 1] or ["threat"]
    same = [rows[name][0] for name in ("data", "threat") if name not in differs]
    return ", ".join([rows["model"][0], *same]), differs


def _label(row: Row, differs: Sequence[str]) -> str:
    return ", ".join(row[name] for name in differs) + (", on the defence itself" if row["victim"] == "defence" else "")


def _images(line: dict[str, Row]) -> Markup:
    counts = sorted({row["images"] for row in line.values()})
    left = max(row["left_out"] for row in line.values())
    title = f"{left:,} more were not tried under all of its threats" if left else None
    return element("td", " to ".join(dict.fromkeys(f"{each:,}" for each in (counts[0], counts[-1]))), title=title)


def _answer(row: Row | None, accuracies: Accuracies) -> Markup:
    """Return a cell with the accuracy, its interval, and the difference to the reference."""
    if row is None or row["accuracy"] is None:
        return element("td", "")
    share = accuracies.shown(row["accuracy"], row["expression"])
    interval = element("span", f" [{row['low']:.1f}, {row['high']:.1f}]", class_="interval")
    if row["difference"] is None:
        return element("td", share, interval)
    sure = row["p_value"] < CHANCE and row["difference"] != 0
    kind = ("gain" if row["difference"] > 0 else "loss") if sure else None
    ends = f"95 % interval {row['difference_low']:+.1f} to {row['difference_high']:+.1f}, p = {row['p_value']:.2g}"
    difference = element("span", f" {row['difference']:+.1f}{'*' if sure else ''}", class_="difference", title=ends)
    return element("td", share, interval, difference, class_=kind)


def costs(found: Sequence[Cost], reference: str) -> Markup:
    """Return the table of what an answer costs, by model and defence."""
    head = ["model", "defence", "device", "passes", f"times {reference}", "ms", f"times {reference}"]
    body = []
    for each in found:
        times = [element("td", "" if value is None else rounded(value)) for value in (each.times_passes, each.times_seconds)]
        passes, spent = element("td", rounded(each.passes)), element("td", rounded(each.seconds * 1000))
        names = element("td", each.defence, class_="text"), element("td", each.device, class_="text")
        body.append([first(each.model), *names, passes, times[0], spent, times[1]])
    return table("Mean cost of an answer", head, body, 3)


def paper(found: DataFrame, published: DataFrame, accuracies: Accuracies) -> Markup | None:
    """Return our numbers beside the paper's; None where the paper has none of them."""
    pl = require_polars()
    whole = pl.when(pl.col("threat") == tables.WORST_CASE).then("worst case of " + pl.col("suite")).otherwise("threat")
    beside = tables.against_paper(found, published).drop_nulls(["published", "accuracy"]).with_columns(threat=whole)
    if beside.is_empty():
        return None

    def numbers(row: Row) -> list[Markup]:
        ours = element("td", accuracies.shown(row["accuracy"], row["expression"], 2))
        interval = element("td", f"{row['low']:.1f} to {row['high']:.1f}", class_="interval")
        return [
            number(row["images"], ",.0f"),
            ours,
            interval,
            number(row["published"], ".2f"),
            number(row["minus_paper"], "+.2f"),
        ]

    inside = beside.filter(pl.col("published").is_between(pl.col("low"), pl.col("high")))
    text = [f"The paper's number lies inside our 95 % interval in {len(inside)} of {len(beside)} cases."]
    text += [
        f"{name} stands in for {stand_ins()[name]}."
        for name in beside["model"].unique(maintain_order=True)
        if name in stand_ins()
    ]
    return joined(
        [element("p", " ".join(text)), _by_model(beside, ["images", "ours", "95 % interval", "paper", "difference"], numbers)]
    )


def comparison(records: DataFrame, other: DataFrame, accuracies: Accuracies) -> Markup:
    """Return the accuracies of two runs side by side, and the difference on the samples that both have."""
    keys = [*tables.GROUP, "defence"]
    mine, theirs = (tables.cells(each).select(*keys, "accuracy", "expression") for each in (records, other))
    both = mine.join(theirs, on=keys, suffix="_other", maintain_order="left")
    if both.is_empty():
        return element("p", "The two runs have no cell in common: no model, data set, threat and defence is in both.")
    both = both.join(_common(records, other, keys), on=keys, how="left", maintain_order="left")

    def numbers(row: Row) -> list[Markup]:
        code = f"compare{row['expression_other'].removeprefix('records')}"
        shares = accuracies.shown(row["accuracy"], row["expression"]), accuracies.shown(row["accuracy_other"], code)
        return [*(element("td", each) for each in shares), *_paired(row)]

    text = "The difference is this run minus the other, in points, on the samples that both have."
    head = ["this run", "other run", "in common", "difference", "95 % interval", "p"]
    return joined([element("p", text), _changed(records, other), _by_model(both, head, numbers)])


def _changed(records: DataFrame, other: DataFrame) -> Markup | None:
    """Return a warning where the two runs have different models or data under the same name."""
    names = []
    for kind, column in (("model", "weights_sha256"), ("data", "data_sha256")):
        mine, theirs = (dict(each.select(kind, column).unique().iter_rows()) for each in (records, other))
        names += [name for name in mine if name in theirs and mine[name] != theirs[name]]
    if not names:
        return None
    text = (
        f"The checksums of the two runs differ for {', '.join(sorted(names))}: under the same name they measured something else."
    )
    return element("div", element("p", text), class_="note")


def _common(records: DataFrame, other: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Count the samples in both runs, and those that only one of them answers correctly."""
    pl = require_polars()
    right = (pl.col("prediction") == pl.col("label")).alias("right")
    sides = [each.lazy().select(*keys, "index", right) for each in (records, other)]
    mine, theirs = pl.col("right"), pl.col("right_other")
    counts = {"common": pl.len(), "fixed": (mine & ~theirs).sum(), "spoiled": (~mine & theirs).sum()}
    pairs = sides[0].join(sides[1], on=[*keys, "index"], suffix="_other")
    counted: DataFrame = pairs.group_by(keys).agg(**counts).with_columns(pl.col(*keys).cast(pl.String)).collect()
    return counted


def _paired(row: Row) -> list[Markup]:
    if not row["common"]:
        return [element("td", "0"), *[element("td", "")] * 3]
    found = paired(row["fixed"], row["spoiled"], row["common"])
    kind = None if found.p_value >= CHANCE else "gain" if found.difference > 0 else "loss"
    difference = element("td", element("span", f"{found.difference:+.1f}", class_="difference"), class_=kind)
    interval = element("td", f"{found.low:+.1f} to {found.high:+.1f}", class_="interval")
    return [number(row["common"], ",.0f"), difference, interval, number(float(found.p_value), ".2g")]


def areas(records: DataFrame) -> Markup | None:
    """Return the table of areas under risk-coverage curves; None where no defence has margins."""
    known = records.drop_nulls("margin")
    if known.is_empty():
        return None
    found = selective.compare(known, bootstrap=RESAMPLES if len(known) <= MOST_ROWS else 0)

    def numbers(row: Row) -> list[Markup]:
        low, high = row["difference_low"], row["difference_high"]
        kind = None if low is None or low <= 0 <= high else "gain" if high < 0 else "loss"
        difference = element("td", element("span", f"{row['difference']:+.4f}", class_="difference"), class_=kind)
        interval = element("td", "" if low is None else f"{low:+.4f} to {high:+.4f}", class_="interval")
        return [number(row["images"], ",.0f"), *(number(row[name], ".4f") for name in AREAS), difference, interval]

    return _by_model(found, ["images", *AREAS.values(), "difference", "95 % interval"], numbers)


def checksums(records: DataFrame) -> Markup:
    """Return the table of checksums of models and data."""
    rows = []
    for kind, column in (("model", "weights_sha256"), ("data", "data_sha256")):
        for name, value in records.select(kind, column).unique(maintain_order=True).iter_rows():
            rows.append([first(name), element("td", kind, class_="text"), element("td", value or "unknown", class_="text")])
    return table("Checksums", ["name", "kind", "sha256"], rows, 3)
