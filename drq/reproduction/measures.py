"""Measure the claims of the paper on accuracy, radii and settings, a function for each; docstrings say the rules."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from drq.evaluation.records import require_polars
from drq.report.expressions import UNDEFENDED
from drq.reproduction.intervals import (
    NOTHING,
    Estimate,
    accuracy_gain,
    average_of,
    by_model,
    corrupted_gain,
    difference_of,
    drq_defences,
    highest,
    mean_of,
    mean_robustness,
    radii_of,
    ratio_of,
    select,
    trained_in,
)
from drq.reproduction.verdicts import Comparison, Measure, registering

if TYPE_CHECKING:
    import polars

MARGIN = 2.0  # points that count as marginal where the paper has no number
DRQ, PLAIN = "DRQ linf", "cifar10-plain"
RADII = {"linf": 8 / 255, "l2": 0.5}  # radii of adversarial training on CIFAR
MEASURES: dict[str, Measure] = {}
measure = registering(MEASURES)


@measure
def twice_the_radius(records: polars.DataFrame) -> Iterator[Comparison]:
    """The mean radius that just suffices to misclassify is 1.5 to 2.5 times the training radius."""
    for model, rows in by_model(records, "calibration"):
        if norm := trained_in(model):
            radii = {name: radii_of(rows, f"DRQ {norm} {name}") for name in ("c=0", "own confidence")}
            value, beside = (mean_of(each, 1 / RADII[norm]) for each in radii.values())
            yield Comparison(model, f"mean {norm} radius to misclassify, over that of training,", value, 1.5, 2.5)
            yield Comparison(model, "with the sample's own confidence", beside)


@measure
def plain_radius(records: polars.DataFrame) -> Iterator[Comparison]:
    """The mean radius of a robust model is more than 10 times that of the plain one, in the norm of its training."""
    models = dict(by_model(records, "calibration"))
    for model, rows in models.items():
        if (norm := trained_in(model)) and PLAIN in models:
            robust, plain = (mean_of(radii_of(each, f"DRQ {norm} own confidence")) for each in (rows, models[PLAIN]))
            yield Comparison(model, f"mean {norm} radius over that of `{PLAIN}`", ratio_of(robust, plain), least=10)


@measure
def plain_gains_nothing(records: polars.DataFrame) -> Iterator[Comparison]:
    """DRQ is within 2 points of the model alone: on clean, attacked, rotated and corrupted images."""
    for model, rows in by_model(records, "plain"):
        for defence in ("DRQ linf calibrated", "DRQ l2 calibrated"):
            for threat in ("clean", "PGD", "rotation"):
                given = select(rows, threat=threat, data="cifar10")
                value = accuracy_gain(select(given, defence=defence), select(given, defence=UNDEFENDED))
                yield Comparison(model, f"{defence}, {threat},", value, -MARGIN, MARGIN)
            yield Comparison(model, f"{defence}, corrupted,", corrupted_gain(rows, defence, UNDEFENDED), -MARGIN, MARGIN)


@measure
def training_data(records: polars.DataFrame) -> Iterator[Comparison]:
    """The mean robustness of the answer is higher on training images than on corrupted and on attacked ones."""
    pl = require_polars()
    shifts = {"test": pl.col("data") == "cifar10", "corrupted": pl.col("data").str.contains("-c/")}
    for model, rows in by_model(records, "training-data"):
        clean, attacked = (select(rows, defence=DRQ, threat=each) for each in ("clean", "PGD"))
        others = {name: clean.filter(condition) for name, condition in shifts.items()} | {"attacked": attacked}
        for column in ("robustness", "true_robustness"):
            train = mean_robustness(select(clean, data="cifar10:train"), column)
            for name, shifted in others.items():
                decides = column == "robustness" and name != "test"
                value = difference_of(train, mean_robustness(shifted, column))
                what = f"{column.replace('_', ' ')} (in %) on training minus {name} images"
                yield Comparison(model, what, value, 0 if decides else -math.inf)


@measure
def half_alpha(records: polars.DataFrame) -> Iterator[Comparison]:
    """0.5 is more accurate than every other alpha, in the mean over clean, attacked and corrupted images."""
    for model, rows in by_model(records, "alpha"):
        for other in [name for name in drq_defences(rows) if name != DRQ]:
            cells = [select(rows, data="cifar10", threat=threat) for threat in ("clean", "PGD")]
            values = [accuracy_gain(select(cell, defence=DRQ), select(cell, defence=other)) for cell in cells]
            values.append(corrupted_gain(rows, DRQ, other))
            yield Comparison(model, f"0.5 over {other.removeprefix('DRQ linf, ')}", average_of(values), least=0)


@measure
def iterations(records: polars.DataFrame) -> Iterator[Comparison]:
    """Accuracy under PGD rises from 1 to 20 steps; in between no change is surely below 0, and all are surely above -1."""
    counts = (1, 5, 10, 20)
    for model, rows in by_model(records, "figure3"):
        for search, names in {"exploration": "DRQ {}+20", "quantification": "DRQ 20+{}"}.items():
            for threat in ("clean", "PGD"):
                steps = [select(rows, threat=threat, defence=names.format(count)) for count in counts]
                rise = accuracy_gain(steps[-1], steps[0])
                yield Comparison(model, f"{search} from 1 to 20, {threat},", rise, 0 if threat == "PGD" else -math.inf)
                for place in range(1, 4):
                    what = f"from {counts[place - 1]} to {counts[place]}"
                    yield Comparison(model, what, accuracy_gain(steps[place], steps[place - 1]), least=-1, fails=0)


@measure
def thresholds(records: polars.DataFrame) -> Iterator[Comparison]:
    """The mean radius changes by less than 10 % from 0.1 to 0.5, and more from 0.9 to 0.999 than from 0.1 to 0.9."""
    pl = require_polars()
    for model, rows in by_model(records, "figure4"):
        table = rows.filter("found", pl.col("threshold").is_in([0.1, 0.5, 0.9, 0.999]))
        if table["threshold"].n_unique() == 4:
            table = table.pivot("threshold", index="index", values="radius").drop_nulls()
            first, half, high, top = (table[str(each)].to_numpy() for each in (0.1, 0.5, 0.9, 0.999))
            percent = 100 / first.mean() if len(first) else 0.0
            yield Comparison(model, "radius at 0.5 over that at 0.1, in %,", mean_of(half - first, percent), -10, 10)
            yield Comparison(
                model, "increase from 0.9 to 0.999 minus that from 0.1 to 0.9", mean_of(top - 2 * high + first, percent), 0
            )


@measure
def clean_accuracy(records: polars.DataFrame) -> Iterator[Comparison]:
    """Every DRQ is within one point of the model alone."""
    for model, rows in by_model(records, "table6"):
        for defence in drq_defences(rows):
            value = accuracy_gain(select(rows, defence=defence), select(rows, defence=UNDEFENDED))
            yield Comparison(model, defence, value, -1, 1)


def _best_gain(rows: polars.DataFrame, what: str, gain: Callable[[str], Estimate]) -> Comparison:
    """Return the gain of the DRQ that gains most over the model alone; it must be above 0."""
    gains = {defence: gain(defence) for defence in drq_defences(rows)}
    best = highest(gains)
    return Comparison(rows["model"][0], f"{best}, {what},", gains.get(best, NOTHING), least=0)


@measure
def best_on_corruptions(records: polars.DataFrame) -> Iterator[Comparison]:
    """On every data set the better of both DRQs is better than the model alone."""
    for _, rows in by_model(records, "table1"):
        yield from _best_by_data(rows)


def _best_by_data(rows: polars.DataFrame) -> Iterator[Comparison]:
    names = {name.partition("/")[0] for name in rows["data"].unique()}
    for name in sorted(names):
        if name.endswith("-c"):
            yield _best_gain(rows, name, lambda defence: corrupted_gain(rows, defence, UNDEFENDED))
        else:
            yield _best_gain(rows, name, _gain_over_model(select(rows, data=name)))


def _gain_over_model(rows: polars.DataFrame) -> Callable[[str], Estimate]:
    return lambda defence: accuracy_gain(select(rows, defence=defence), select(rows, defence=UNDEFENDED))


@measure
def best_on_spatial_shifts(records: polars.DataFrame) -> Iterator[Comparison]:
    """Under either shift the better of both DRQs is better than the model alone."""
    for _, rows in by_model(records, "table3"):
        for threat in ("rotations", "translations"):
            shifted = select(rows, threat=threat)
            yield _best_gain(rows, threat, _gain_over_model(shifted))


@measure
def training_norm(records: polars.DataFrame) -> Iterator[Comparison]:
    """On corruptions DRQ in the norm of training is better than in the other norm."""
    for model, rows in by_model(records, "table1"):
        if norm := trained_in(model):
            own, other = f"DRQ {norm}", "DRQ l2" if norm == "linf" else DRQ
            top = " top-10" if f"{own} top-10" in set(rows["defence"]) else ""
            yield Comparison(model, f"{own} over {other}", corrupted_gain(rows, own + top, other + top), least=0)


@measure
def raw_gradient(records: polars.DataFrame) -> Iterator[Comparison]:
    """DRQ with the raw gradient is within 2 points of DRQ with its sign, on clean and on attacked images."""
    for model, rows in by_model(records, "gradient"):
        for threat in ("clean", "PGD"):
            raw, sign = (select(rows, threat=threat, defence=each) for each in ("DRQ linf, raw gradient", DRQ))
            yield Comparison(model, threat, accuracy_gain(raw, sign), -MARGIN, MARGIN)
