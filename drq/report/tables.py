"""Compute tables from records: accuracies, their intervals, differences to a reference, and costs.

Every table has one row for each group of records and each defence in it, with the columns of :data:`VALUES`. Shares are in
percent, differences in points, ``low`` and ``high`` are the ends of 95 % intervals. ``expression`` is code: evaluated with
``records`` and ``pl`` (polars), it gives the accuracy of its row again.

Defences are compared with a reference, on the samples that both have. When it counts as right depends on what was attacked:

- ``victim`` is "base": all defences saw the same x', so rows are compared sample by sample.
- ``victim`` is "defence": every defence saw an x' made against itself, and one that was made against DRQ says little about the
  undefended model. That model, "standard", counts as right only where it withstood everything that was tried on it in the attack
  on this defence and, where it was attacked itself, in that: ``base_withstood`` in both rows of the sample (in a worst case, of
  all threats). What was tried on other defences does not count, or every further one would make the others look better. This
  static worst case is what a defence must beat. Both numbers are upper bounds, which a better attack can lower.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from drq.errors import require
from drq.evaluation.records import COLUMNS, require_polars
from drq.registry import CORRUPTIONS
from drq.report.expressions import SETTINGS, UNDEFENDED, Cell, MeanOverData, WorstCase
from drq.report.statistics import score_test, sign_test, tango, wilson
from drq.report.typesetting import csv, latex, markdown, wide

if TYPE_CHECKING:
    import polars

__all__ = ["against_paper", "cells", "csv", "latex", "markdown", "mean_over_data", "wide", "worst_case"]

GROUP = ("model", "data", "suite", "threat", "victim")
SUITE = ("model", "data", "suite", "victim")
WORST_CASE = "worst case"  # name that stands in the column of threats
EVERYTHING = "everything"  # the suite of all threats
PUBLISHED = ("experiment", "model", "data", "suite", "threat", "defence")  # columns that identify a published number
COSTS = ("passes", "threat_passes", "seconds")
VALUES = {
    "data_sets": "over how many data sets the mean is taken",
    "threats": "over how many threats the worst case is taken",
    "images": "samples that count",
    "left_out": "samples that do not count, because not every threat was tried on them",
    "correct": "samples that the defence was right on",
    "accuracy": "their share",
    "low": "end of the interval of the accuracy",
    "high": "end of the interval of the accuracy",
    "passes": "of the model for an answer, mean",
    "threat_passes": "of the model for all threats to a sample, mean",
    "seconds": "for an answer, mean",
    "compared": "samples that the reference has too",
    "reference_accuracy": "of the reference, on those",
    "fixed": "of those, right here and wrong in the reference",
    "spoiled": "of those, wrong here and right in the reference",
    "difference": "accuracy here minus that of the reference, on those",
    "difference_low": "end of the interval of the difference",
    "difference_high": "end of the interval of the difference",
    "p_value": "of the exact test of McNemar: how often chance alone makes such a difference",
    "expression": "gives the accuracy again",
    "reference_expression": "gives the accuracy of the reference again",
}


def cells(records: polars.DataFrame, by: Sequence[str] = GROUP, reference: str = UNDEFENDED) -> polars.DataFrame:
    """Return the accuracy of every defence in every group of records, beside the reference.

    Args:
        records: one row for each sample, threat and defence.
        by: columns that identify groups; a group has a sample at most once for each defence.
        reference: the defence to compare with. Its own rows are compared with nothing.
    """
    pl = require_polars()
    answers = _answers(records, by, by)
    samples = answers.lazy().with_columns(threats=1, complete=pl.lit(True))
    return _with_statistics(_counts(_with_reference(samples, answers, by, reference), by), Cell(by, reference))


def worst_case(records: polars.DataFrame, by: Sequence[str] = SUITE, reference: str = UNDEFENDED) -> polars.DataFrame:
    """Return accuracies where a sample counts as correct only if the defence was right under every threat of the group.

    By default a group is a suite of threats; ``by=("model", "data", "victim")`` takes the worst case over all threats. Only
    samples on which all threats of the group were tried count, and ``left_out`` says how many do not; a defence that lacks a
    threat has none that count. ``threat_passes`` adds up the threats.
    """
    pl = require_polars()
    threat = tuple(dict.fromkeys((*by, "suite", "threat")))
    answers = _answers(records, by, threat)
    needed = answers.lazy().select(threat).unique().group_by(by).agg(threats=pl.len())
    together = (pl.col("right").all(), pl.col("row").min(), pl.col("passes", "seconds").mean(), pl.col("threat_passes").sum())
    samples = answers.lazy().group_by(*by, "defence", "index").agg(*together, tried=pl.len())
    samples = samples.join(needed, on=by, nulls_equal=True).with_columns(complete=pl.col("tried") == pl.col("threats"))
    names = {"suite": EVERYTHING, "threat": WORST_CASE}
    table = _counts(_with_reference(samples, answers, by, reference), by)
    table = table.with_columns(pl.lit(name).alias(column) for column, name in names.items() if column not in by)
    return _with_statistics(table, WorstCase(by, reference))


def mean_over_data(records: polars.DataFrame, by: Sequence[str] = GROUP, reference: str = UNDEFENDED) -> polars.DataFrame:
    """Return mean accuracies over corruptions of the same data: ``cifar10-c/fog/5`` and others become ``cifar10-c/*/5``.

    Only the fifteen standard corruptions belong together, and ``data_sets`` says how many of them there are. Every data set
    counts the same. Intervals are those of all answers together; but the answers to one image under several corruptions depend on
    each other and are worth fewer independent ones, as many as would give the variance between images. The p-value is that of
    McNemar's score test on as many, which is below 0.05 where the interval of the difference leaves 0 out.
    """
    pl = require_polars()
    require("data" in by, "by", "contain 'data'", tuple(by), "the mean is taken over data sets")
    family = {name: _family(name) for name in records["data"].unique().to_list()}
    answers = _answers(records.filter(pl.col("data").is_in([name for name, known in family.items() if known])), by, by)
    samples = answers.lazy().with_columns(threats=1, complete=pl.lit(True))
    samples = _with_reference(samples, answers, by, reference)
    shares = _counts(samples, by).with_columns(family=pl.col("data").cast(pl.String).replace(family))
    return _with_statistics(_means(samples, shares, by), MeanOverData(by, reference))


def against_paper(table: polars.DataFrame, published: polars.DataFrame) -> polars.DataFrame:
    """Add columns ``published``, the number in the paper, and ``minus_paper``; both are null where the paper has none.

    Args:
        table: a table of this module.
        published: those columns of :data:`PUBLISHED` that tell its numbers apart, and value. Where the paper has two values for
            the same cell, ``experiment`` in the table tells which one; without it the first counts.
    """
    pl = require_polars()
    keys = [name for name in PUBLISHED if name in table.columns and name in published.columns]
    known = published.unique(keys, keep="first", maintain_order=True).select(*keys, published=pl.col("value").cast(pl.Float64))
    joined = table.join(known, on=keys, how="left", maintain_order="left")
    return joined.with_columns(minus_paper=pl.col("accuracy") - pl.col("published"))


def _answers(records: polars.DataFrame, by: Sequence[str], unit: Sequence[str]) -> polars.DataFrame:
    """Return the columns that tables need; ``unit`` and defence identify a sample's rows. Categories join faster than names."""
    pl = require_polars()
    names = [*COLUMNS][: [*COLUMNS].index("defence")]
    for name in by:
        require(name in records.columns, "by", "name columns of the records", repr(name), f"as {', '.join(names)}")
    require("victim" in by, "by", "contain 'victim'", tuple(by), "what a defence is compared with depends on it")
    answers = records.select(
        pl.col(*dict.fromkeys((*unit, "defence", "index", *COSTS))),
        right=pl.col("prediction") == pl.col("label"),
        withstood=pl.col("base_withstood"),
        row=pl.int_range(pl.len(), dtype=pl.UInt32),
    ).with_columns(pl.selectors.string().cast(pl.Categorical))
    sizes = answers.lazy().group_by(*unit, "defence").agg(rows=pl.len(), samples=pl.col("index").n_unique())
    twice = sizes.filter(pl.col("rows") > pl.col("samples")).select(*unit, "defence").collect()
    rule = f"have a sample at most once for each {', '.join(unit)} and defence"
    remedy = "take the records of one run, or name what tells the rows apart in by, as 'experiment'"
    require(twice.is_empty(), "records", rule, f"more for {twice.head(1).rows()}", remedy)
    return answers


def _with_reference(samples: polars.LazyFrame, answers: polars.DataFrame, by: Sequence[str], reference: str) -> polars.LazyFrame:
    """Add whether the reference was right on the same sample: null where it lacks the sample, or is itself the defence."""
    pl = require_polars()
    common = [name for name in by if name not in SETTINGS]
    itself, static = pl.col("defence") == reference, (pl.col("victim") == "defence") & (reference == UNDEFENDED)
    several = answers.lazy().filter(itself).select(by).unique().collect().select(common).is_duplicated().any()
    settings = ", ".join(name for name in by if name in SETTINGS)
    require(not several, "reference", f"have one {settings} in each group", repr(reference), f"leave {settings} out of by")
    beside = samples.filter(itself, ~static, "complete").select(*common, "index", reference_right="right")
    tried = answers.lazy().filter(static)
    alone = tried.filter(itself).group_by(*common, "index").agg(alone=pl.col("withstood").all())
    withstood = tried.group_by(*common, "defence", "index").agg(mine=pl.col("withstood").all())
    withstood = withstood.join(alone, on=[*common, "index"], how="left", nulls_equal=True)
    both = withstood.select(*common, "defence", "index", static_right=pl.col("mine") & pl.col("alone").fill_null(True))
    joined = samples.join(beside, on=[*common, "index"], how="left", nulls_equal=True)
    joined = joined.join(both, on=[*common, "defence", "index"], how="left", nulls_equal=True)
    return joined.with_columns(reference_right=pl.when(~itself).then(pl.coalesce("reference_right", "static_right"))).drop(
        "static_right"
    )


def _counts(samples: polars.LazyFrame, by: Sequence[str]) -> polars.DataFrame:
    """Return one row of counts for each group and defence, in the order of the records."""
    pl = require_polars()
    right, beside = pl.col("right"), pl.col("reference_right")
    sums = {"images": right.count(), "left_out": pl.len() - right.count(), "correct": right.sum(), "compared": beside.count()}
    sums |= {"fixed": (right & ~beside).sum(), "spoiled": (~right & beside).sum()}
    counted = samples.with_columns(pl.when("complete").then(pl.col("right", "reference_right", *COSTS)))
    table = counted.group_by(*by, "defence").agg(
        pl.col("row").min(),
        pl.col("threats").first(),
        pl.col(*COSTS).mean(),
        *(each.cast(pl.Int64).alias(name) for name, each in sums.items()),
        accuracy=100 * right.mean(),
        reference_accuracy=100 * beside.mean(),
    )
    compared = pl.when(pl.col("compared") > 0).then("compared")
    shares = {f"{name}_share": pl.col(name) / compared for name in ("fixed", "spoiled")}
    independent = {"weight": "images", "compared_weight": "compared"}
    return table.with_columns(data_sets=1, **shares, **independent).sort("row").collect()


def _family(name: str) -> str | None:
    """The data sets that one belongs to, if it is one of the standard corruptions."""
    family, _, rest = name.partition("/")
    kind, _, severity = rest.partition("/")
    return f"{family}/*/{severity}" if family.endswith("-c") and kind in CORRUPTIONS and severity else None


def _means(samples: polars.LazyFrame, shares: polars.DataFrame, by: Sequence[str]) -> polars.DataFrame:
    """Means over the data sets of a family, and as how many independent answers those to its images count."""
    pl = require_polars()
    group = [*("family" if name == "data" else name for name in by), "defence"]
    families = (
        shares.lazy()
        .group_by(group)
        .agg(
            pl.col("row").min(),
            pl.col("threats").first(),
            pl.col("images", "left_out", "correct", "compared", "fixed", "spoiled").sum(),
            pl.col("accuracy", *COSTS).mean(),
            # A mean over fewer data sets would be that of something else.
            pl.when(pl.col("compared").min() > 0).then(pl.col("reference_accuracy", "fixed_share", "spoiled_share").mean()),
            data_sets=pl.len(),
            members=pl.col("data").cast(pl.String).sort(),
        )
    )
    share, fixed, spoiled = pl.col("accuracy") / 100, pl.col("fixed_share"), pl.col("spoiled_share")
    table = families.join(_spreads(samples, shares, by, group), on=group, nulls_equal=True).with_columns(
        weight=_independent_answers(share * (1 - share), "spread", "images"),
        compared_weight=_independent_answers(fixed + spoiled - (fixed - spoiled) ** 2, "difference_spread", "compared"),
    )
    return table.rename({"family": "data"}).sort("row").collect()


def _independent_answers(single: polars.Expr, spread: str, most: str) -> polars.Expr:
    """Return the number of independent answers whose mean has the same variance; ``single`` is the variance of one answer."""
    pl = require_polars()
    number = single * pl.col("data_sets") ** 2 / pl.col(spread)
    worth: polars.Expr = pl.when(single > 0).then(pl.min_horizontal(number, most)).otherwise("pictures")
    return worth


def _spreads(samples: polars.LazyFrame, shares: polars.DataFrame, by: Sequence[str], group: Sequence[str]) -> polars.LazyFrame:
    """Return variances of sums over data sets of accuracy and difference: images are independent, answers to one are not."""
    pl = require_polars()
    right = pl.col("right").cast(pl.Float64)
    gain = right - pl.col("reference_right").cast(pl.Float64)
    known = shares.lazy().select(*by, "defence", "family", "images", "compared", "accuracy", "fixed_share", "spoiled_share")
    parts = (
        samples.join(known, on=[*by, "defence"], nulls_equal=True)
        .group_by(*group, "index")
        .agg(
            share=((right - pl.col("accuracy") / 100) / pl.col("images")).sum(),
            gain=((gain - pl.col("fixed_share") + pl.col("spoiled_share")) / pl.col("compared")).sum(),
        )
    )
    return parts.group_by(group).agg(
        pictures=pl.len(),
        spread=(pl.col("share") ** 2).sum(),
        difference_spread=(pl.col("gain") ** 2).sum(),
    )


def _with_statistics(table: polars.DataFrame, code: Cell) -> polars.DataFrame:
    """Return the table with intervals, tests and expressions, and with its columns in order."""
    pl = require_polars()
    names = ("accuracy", "weight", "fixed_share", "spoiled_share", "compared_weight")
    share, weight, fixed, spoiled, compared = (table[name].cast(pl.Float64).fill_null(0).to_numpy() for name in names)
    low, high = wilson(share / 100 * weight, weight)
    more, less = fixed * compared, spoiled * compared
    least, most = tango(more, less, compared)
    chance = score_test(more, less) if "members" in table.columns else sign_test(more.round(), less.round())
    rows = [row | {"data": row.get("members", row.get("data"))} for row in table.iter_rows(named=True)]
    code_of = {"expression": [*map(code.accuracy, rows)], "reference_expression": [*map(code.reference_accuracy, rows)]}
    numbers = {"low": low, "high": high, "difference_low": least, "difference_high": most, "p_value": chance}
    compared_only = ("fixed", "spoiled", "difference_low", "difference_high", "p_value", "reference_expression")
    groups = [name for name in table.columns if name in {*code.by, "suite", "threat", "defence"}]
    return (
        table.with_columns(
            pl.selectors.categorical().cast(pl.String),
            pl.col("data_sets", "threats").cast(pl.Int64),
            *(pl.Series(name, values, dtype=pl.Float64) for name, values in numbers.items()),
            *(pl.Series(name, values, dtype=pl.String) for name, values in code_of.items()),
            difference=100 * (pl.col("fixed_share") - pl.col("spoiled_share")),
        )
        .with_columns(
            pl.when(pl.col("images") > 0).then(pl.col("low", "high")),
            pl.when(pl.col("reference_accuracy").is_not_null()).then(pl.col(*compared_only)),
        )
        .select(*sorted(groups, key=[*COLUMNS].index), *VALUES)
    )
