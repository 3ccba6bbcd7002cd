"""The tables of a report, as HTML. Next to every accuracy stands the expression that recomputes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from drq import drawing, selective, tables
from drq.evaluation.published import stand_ins
from drq.evaluation.records import require_polars
from drq.reporting.page import Accuracies, Markup, element, first, joined, number, table
from drq.reporting.verdict import CHANCE, Cost, rounded
from drq.statistics import paired

if TYPE_CHECKING:
    from polars import DataFrame

Row = dict[str, Any]
AREAS = {
    "aurc": "defence, by margin",
    "aurc_by_confidence": "defence, by confidence",
    "base_aurc_by_confidence": "undefended, by confidence",
    "base_aurc_by_logit_margin": "undefended, by logit margin",
}
FEW, RESAMPLED = 100_000, 200  # rows up to which differences of areas get intervals, from so many resamplings


def accuracy(found: DataFrame, accuracies: Accuracies, reference: str) -> Markup:
    """A table for each model: a line for each data set and threat, a column for each defence."""
    defences = drawing.in_order(found, reference)
    return joined(_of_model(rows, defences, accuracies) for rows in found.partition_by("model", maintain_order=True))


def _of_model(rows: DataFrame, defences: Sequence[str], accuracies: Accuracies) -> Markup:
    defences = [each for each in defences if each in set(rows["defence"])]
    differs = [name for name in ("data", "threat") if rows[name].n_unique() > 1] or ["threat"]
    lines: dict[tuple[str, ...], dict[str, Row]] = {}
    for row in rows.iter_rows(named=True):
        key = (row["data"], row["suite"], row["threat"], row["victim"])
        lines.setdefault(key, {})[row["defence"]] = row
    body = []
    for line in lines.values():
        some = next(iter(line.values()))
        cells = [_answer(line.get(name), accuracies) for name in defences]
        body.append([first(_label(some, differs)), _images(line), *cells])
    shared = [name for name in ("data", "threat") if name not in differs]
    caption = ", ".join([rows["model"][0], *(rows[name][0] for name in shared)])
    return table(caption, [", ".join(differs), "images", *defences], body)


def _label(row: Row, differs: Sequence[str]) -> str:
    return ", ".join(row[name] for name in differs) + (", on the defence itself" if row["victim"] == "defence" else "")


def _images(line: dict[str, Row]) -> Markup:
    counts = sorted({row["images"] for row in line.values()})
    left = max(row["left_out"] for row in line.values())
    title = f"{left:,} more were not tried under all of its threats" if left else None
    return element("td", " to ".join(dict.fromkeys(f"{each:,}" for each in (counts[0], counts[-1]))), title=title)


def _answer(row: Row | None, accuracies: Accuracies) -> Markup:
    """A cell: accuracy, its interval, and the difference to the reference."""
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
    """What an answer takes, by model and defence."""
    head = ["model", "defence", "device", "passes", f"times {reference}", "ms", f"times {reference}"]
    body = []
    for each in found:
        times = [element("td", "" if value is None else rounded(value)) for value in (each.times_passes, each.times_seconds)]
        passes, spent = element("td", rounded(each.passes)), element("td", rounded(each.seconds * 1000))
        names = element("td", each.defence, class_="text"), element("td", each.device, class_="text")
        body.append([first(each.model), *names, passes, times[0], spent, times[1]])
    return table("Mean cost of an answer", head, body, 3)


def _stands_for(model: str) -> str:
    return f"{model}, in place of {stand_ins()[model]}" if model in stand_ins() else model


def paper(found: DataFrame, published: DataFrame, accuracies: Accuracies) -> Markup | None:
    """Ours beside the paper's numbers; nothing where it has none of them."""
    pl = require_polars()
    if "suite" in published.columns:  # a worst case is that of its suite
        whole = pl.when(pl.col("threat") == tables.WORST_CASE).then("worst case of " + pl.col("suite")).otherwise("threat")
        found, published = (each.with_columns(threat=whole) for each in (found, published))
    beside = tables.against_paper(found, published).drop_nulls(["published", "accuracy"])
    if beside.is_empty():
        return None
    head = ["model", "data", "threat", "defence", "images", "ours", "95 % interval", "paper", "difference"]
    body = []
    for row in beside.iter_rows(named=True):
        texts = [element("td", row[name], class_="text") for name in ("data", "threat", "defence")]
        ours = element("td", accuracies.shown(row["accuracy"], row["expression"], 2))
        interval = element("td", f"{row['low']:.1f} to {row['high']:.1f}", class_="interval")
        values = number(row["published"], ".2f"), number(row["minus_paper"], "+.2f")
        body.append([first(_stands_for(row["model"])), *texts, number(row["images"], ",.0f"), ours, interval, *values])
    inside = beside.filter(pl.col("published").is_between(pl.col("low"), pl.col("high")))
    told = f"The paper's number lies inside our 95 % interval in {len(inside)} of {len(beside)} cases."
    return joined([element("p", told), table("Ours beside the paper's, accuracy in %", head, body, 4)])


def comparison(records: DataFrame, other: DataFrame, accuracies: Accuracies) -> Markup:
    """Two runs side by side: their accuracies, and the difference on the samples that both have."""
    keys = [*tables.GROUP, "defence"]
    shown = [*keys, "accuracy", "expression", "images"]
    both = (
        tables.cells(records)
        .select(shown)
        .join(tables.cells(other).select(shown), on=keys, how="inner", suffix="_other", maintain_order="left")
    )
    if both.is_empty():
        return element("p", "The two runs have no cell in common: no model, data set, threat and defence is in both.")
    both = both.join(_common(records, other, keys), on=keys, how="left", maintain_order="left")
    head = [
        "model",
        "data",
        "threat",
        "defence",
        "this run",
        "other run",
        "samples in common",
        "difference",
        "95 % interval",
        "p",
    ]
    body = []
    for row in both.iter_rows(named=True):
        texts = [element("td", text, class_="text") for text in (row["data"], _label(row, ["threat"]), row["defence"])]
        theirs = f"compare{row['expression_other'].removeprefix('records')}"
        shares = accuracies.shown(row["accuracy"], row["expression"]), accuracies.shown(row["accuracy_other"], theirs)
        body.append([first(row["model"]), *texts, *(element("td", each) for each in shares), *_paired(row)])
    return table("Difference: this run minus the other, in points", head, body, 4)


def _common(records: DataFrame, other: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Of the samples in both runs, those that only one of them has right."""
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
    """Areas under risk-coverage curves; nothing where no defence has margins."""
    known = records.drop_nulls("margin")
    if known.is_empty():
        return None
    found = selective.compare(known, bootstrap=RESAMPLED if len(known) <= FEW else 0)
    head = ["model", "data", "threat", "defence", "images", *AREAS.values(), "difference", "95 % interval"]
    body = []
    for row in found.iter_rows(named=True):
        texts = [element("td", text, class_="text") for text in (row["data"], _label(row, ["threat"]), row["defence"])]
        interval = "" if row["difference_low"] is None else f"{row['difference_low']:+.4f} to {row['difference_high']:+.4f}"
        sure = row["difference_low"] is not None and (row["difference_low"] > 0 or row["difference_high"] < 0)
        kind = ("gain" if row["difference"] < 0 else "loss") if sure else None
        difference = element("td", element("span", f"{row['difference']:+.4f}", class_="difference"), class_=kind)
        numbers = (number(row[name], ".4f") for name in AREAS)
        counted = number(row["images"], ",.0f")
        body.append([first(row["model"]), *texts, counted, *numbers, difference, element("td", interval, class_="interval")])
    return table("Area under the risk-coverage curve; the difference is the first minus the third", head, body, 4)


def checksums(records: DataFrame) -> Markup:
    """What tells the models and the data from any others."""
    rows = []
    for kind, column in (("model", "weights_sha256"), ("data", "data_sha256")):
        for name, value in records.select(kind, column).unique(maintain_order=True).iter_rows():
            rows.append([first(name), element("td", kind, class_="text"), element("td", value or "unknown", class_="text")])
    return table("Checksums", ["name", "kind", "sha256"], rows, 3)
