"""Measure the claims of the paper on accuracy, radii and settings, a function for each; docstrings say the rules."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from drq.evaluation.records import require_polars
from drq.report.expressions import UNDEFENDED
from drq.reproduction.intervals import (
    NOTHING,
    Value,
    average_of,
    by_model,
    corrupted_gain,
    difference_of,
    drqs,
    gain_of,
    highest,
    mean_of,
    mean_robustness,
    radii_of,
    ratio_of,
    trained_in,
    where,
)
from drq.reproduction.verdicts import Measure, Part, registering

if TYPE_CHECKING:
    import polars

MARGIN = 2.0  # points that count as marginal where the paper has no number
DRQ, PLAIN = "DRQ linf", "cifar10-plain"
RADII = {"linf": 8 / 255, "l2": 0.5}  # of adversarial training on CIFAR
MEASURES: dict[str, Measure] = {}
measure = registering(MEASURES)


@measure
def twice_the_radius(records: polars.DataFrame) -> Iterator[Part]:
    """The mean radius that merely misclassifies, over that of training, lies between 1.5 and 2.5."""
    for model, rows in by_model(records, "calibration"):
        if norm := trained_in(model):
            radii = {name: radii_of(rows, f"DRQ {norm} {name}") for name in ("c=0", "own confidence")}
            value, beside = (mean_of(each, 1 / RADII[norm]) for each in radii.values())
            yield Part(model, f"mean {norm} radius to misclassify, over that of training,", value, 1.5, 2.5)
            yield Part(model, "with the sample's own confidence", beside)


@measure
def plain_radius(records: polars.DataFrame) -> Iterator[Part]:
    """The mean radius of a robust model is more than 10 times that of the plain one, in the norm of its training."""
    models = dict(by_model(records, "calibration"))
    for model, rows in models.items():
        if (norm := trained_in(model)) and PLAIN in models:
            robust, plain = (mean_of(radii_of(each, f"DRQ {norm} own confidence")) for each in (rows, models[PLAIN]))
            yield Part(model, f"mean {norm} radius over that of `{PLAIN}`", ratio_of(robust, plain), least=10)


@measure
def plain_gains_nothing(records: polars.DataFrame) -> Iterator[Part]:
    """DRQ is within 2 points of the model alone: clean, under PGD, rotated and corrupted."""
    for model, rows in by_model(records, "plain"):
        for defence in ("DRQ linf calibrated", "DRQ l2 calibrated"):
            for threat in ("clean", "PGD", "rotation"):
                given = where(rows, threat=threat, data="cifar10")
                value = gain_of(where(given, defence=defence), where(given, defence=UNDEFENDED))
                yield Part(model, f"{defence}, {threat},", value, -MARGIN, MARGIN)
            yield Part(model, f"{defence}, corrupted,", corrupted_gain(rows, defence, UNDEFENDED), -MARGIN, MARGIN)


@measure
def training_data(records: polars.DataFrame) -> Iterator[Part]:
    """The mean robustness of the answer is higher on training images than on corrupted and on attacked ones."""
    pl = require_polars()
    shifts = {"test": pl.col("data") == "cifar10", "corrupted": pl.col("data").str.contains("-c/")}
    for model, rows in by_model(records, "training-data"):
        clean, attacked = (where(rows, defence=DRQ, threat=each) for each in ("clean", "PGD"))
        others = {name: clean.filter(condition) for name, condition in shifts.items()} | {"attacked": attacked}
        for column in ("robustness", "true_robustness"):
            train = mean_robustness(where(clean, data="cifar10:train"), column)
            for name, shifted in others.items():
                decides = column == "robustness" and name != "test"
                value = difference_of(train, mean_robustness(shifted, column))
                what = f"{column.replace('_', ' ')} (in %) on training minus {name} images"
                yield Part(model, what, value, 0 if decides else -math.inf)


@measure
def half_alpha(records: polars.DataFrame) -> Iterator[Part]:
    """0.5 is more accurate than every other alpha, in the mean over clean, attacked and corrupted images."""
    for model, rows in by_model(records, "alpha"):
        for other in [name for name in drqs(rows) if name != DRQ]:
            cells = [where(rows, data="cifar10", threat=threat) for threat in ("clean", "PGD")]
            values = [gain_of(where(cell, defence=DRQ), where(cell, defence=other)) for cell in cells]
            values.append(corrupted_gain(rows, DRQ, other))
            yield Part(model, f"0.5 over {other.removeprefix('DRQ linf, ')}", average_of(values), least=0)


@measure
def iterations(records: polars.DataFrame) -> Iterator[Part]:
    """From 1 to 20 steps accuracy under PGD rises; on the way no change is surely below 0, and all are surely above -1."""
    counts = (1, 5, 10, 20)
    for model, rows in by_model(records, "figure3"):
        for search, names in {"exploration": "DRQ {}+20", "quantification": "DRQ 20+{}"}.items():
            for threat in ("clean", "PGD"):
                steps = [where(rows, threat=threat, defence=names.format(count)) for count in counts]
                rise = gain_of(steps[-1], steps[0])
                yield Part(model, f"{search} from 1 to 20, {threat},", rise, 0 if threat == "PGD" else -math.inf)
                for place in range(1, 4):
                    what = f"from {counts[place - 1]} to {counts[place]}"
                    yield Part(model, what, gain_of(steps[place], steps[place - 1]), least=-1, fails=0)


@measure
def thresholds(records: polars.DataFrame) -> Iterator[Part]:
    """The mean radius changes by less than 10 % from 0.1 to 0.5, and more from 0.9 to 0.999 than from 0.1 to 0.9."""
    pl = require_polars()
    for model, rows in by_model(records, "figure4"):
        table = rows.filter("found", pl.col("threshold").is_in([0.1, 0.5, 0.9, 0.999]))
        if table["threshold"].n_unique() == 4:
            table = table.pivot("threshold", index="index", values="radius").drop_nulls()
            first, half, high, top = (table[str(each)].to_numpy() for each in (0.1, 0.5, 0.9, 0.999))
            percent = 100 / first.mean() if len(first) else 0.0
            yield Part(model, "radius at 0.5 over that at 0.1, in %,", mean_of(half - first, percent), -10, 10)
            yield Part(
                model, "increase from 0.9 to 0.999 minus that from 0.1 to 0.9", mean_of(top - 2 * high + first, percent), 0
            )


@measure
def clean_accuracy(records: polars.DataFrame) -> Iterator[Part]:
    """Every DRQ is within one point of the model alone."""
    for model, rows in by_model(records, "table6"):
        for defence in drqs(rows):
            value = gain_of(where(rows, defence=defence), where(rows, defence=UNDEFENDED))
            yield Part(model, defence, value, -1, 1)


def _best(rows: polars.DataFrame, what: str, gain: Callable[[str], Value]) -> Part:
    """The DRQ that gains most over the model alone must gain something."""
    gains = {defence: gain(defence) for defence in drqs(rows)}
    best = highest(gains)
    return Part(rows["model"][0], f"{best}, {what},", gains.get(best, NOTHING), least=0)


@measure
def best_on_corruptions(records: polars.DataFrame) -> Iterator[Part]:
    """On every data set the better of both DRQ is better than the model alone."""
    for _, rows in by_model(records, "table1"):
        yield from _bests(rows)


def _bests(rows: polars.DataFrame) -> Iterator[Part]:
    names = {name.partition("/")[0] for name in rows["data"].unique()}
    for name in sorted(names):
        if name.endswith("-c"):
            yield _best(rows, name, lambda defence: corrupted_gain(rows, defence, UNDEFENDED))
        else:
            yield _best(rows, name, _over_the_model(where(rows, data=name)))


def _over_the_model(rows: polars.DataFrame) -> Callable[[str], Value]:
    return lambda defence: gain_of(where(rows, defence=defence), where(rows, defence=UNDEFENDED))


@measure
def best_on_spatial_shifts(records: polars.DataFrame) -> Iterator[Part]:
    """Under either shift the better of both DRQ is better than the model alone."""
    for _, rows in by_model(records, "table3"):
        for threat in ("rotations", "translations"):
            shifted = where(rows, threat=threat)
            yield _best(rows, threat, _over_the_model(shifted))


@measure
def training_norm(records: polars.DataFrame) -> Iterator[Part]:
    """On corruptions DRQ in the norm of the training is better than in the other."""
    for model, rows in by_model(records, "table1"):
        if norm := trained_in(model):
            own, other = f"DRQ {norm}", "DRQ l2" if norm == "linf" else DRQ
            top = " top-10" if f"{own} top-10" in set(rows["defence"]) else ""
            yield Part(model, f"{own} over {other}", corrupted_gain(rows, own + top, other + top), least=0)


@measure
def raw_gradient(records: polars.DataFrame) -> Iterator[Part]:
    """With the gradient DRQ is within 2 points of itself with its sign, on clean and on attacked images."""
    for model, rows in by_model(records, "gradient"):
        for threat in ("clean", "PGD"):
            raw, sign = (where(rows, threat=threat, defence=each) for each in ("DRQ linf, raw gradient", DRQ))
            yield Part(model, threat, gain_of(raw, sign), -MARGIN, MARGIN)
