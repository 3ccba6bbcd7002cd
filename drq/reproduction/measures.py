"""What records say of the claims of the paper's text, a function for each.

A claim is measured by comparisons, each of which has a 95 % interval and the range in which the claim wants it. It holds where
all intervals lie in their ranges, for every model in the records; it does not hold where one lies outside; else it is
undecided. A model whose records lack one of the comparisons can refute it, and no more. Docstrings say the rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Literal, NamedTuple

from drq.evaluation.paper import stand_ins
from drq.evaluation.records import require_polars
from drq.report.expressions import UNDEFENDED
from drq.reproduction.comparisons import (
    NOTHING,
    Value,
    accuracy,
    average_of,
    by_model,
    corrected,
    corrupted_gain,
    difference_of,
    drqs,
    excess,
    gain_of,
    highest,
    mean_of,
    mean_robustness,
    radii_of,
    ratio_of,
    right_answers,
    trained_in,
    where,
)

if TYPE_CHECKING:
    import polars

MARGIN = 2.0  # points that count as marginal where the paper has no number
DRQ, ADAPTIVE, PLAIN = "DRQ linf", ("PGD-noise", "PGD-attack"), "cifar10-plain"
RADII = {"linf": 8 / 255, "l2": 0.5}  # of adversarial training on CIFAR
Verdict = Literal["holds", "does not hold", "undecided"]


class Finding(NamedTuple):
    """What came of a claim: its verdict, and the numbers behind it in one line of Markdown."""

    verdict: Verdict
    measured: str


class Part(NamedTuple):
    """One comparison, and the range in which the claim wants it; without a range it is only shown.

    Where ``fails`` is given, the claim fails where the whole interval is below that, and only there.
    """

    model: str
    what: str
    value: Value
    least: float = -math.inf
    most: float = math.inf
    fails: float | None = None

    @property
    def verdict(self) -> Verdict:
        """By its own interval alone."""
        below = self.value.high <= self.least if self.fails is None else self.value.high < self.fails
        if below or self.value.low >= self.most:
            return "does not hold"
        return "holds" if self.value.low > self.least and self.value.high < self.most else "undecided"

    @property
    def shown_only(self) -> bool:
        """Whether it decides nothing."""
        return math.isinf(self.least) and math.isinf(self.most)


Measure = Callable[["polars.DataFrame"], Finding | None]
MEASURES: dict[str, Measure] = {}


def measure(parts: Callable[[polars.DataFrame], Iterator[Part]]) -> Measure:
    """A measure, from a function that yields its comparisons."""

    @wraps(parts)
    def found(records: polars.DataFrame) -> Finding | None:
        return _merged([*parts(records)])

    MEASURES[parts.__name__] = found
    return found


def _merged(parts: Sequence[Part]) -> Finding | None:
    """The verdict over all models: one comparison refutes a claim, and a model that lacks some can only refute it."""
    there = [part for part in parts if part.value.samples]
    lacking = {part.model for part in parts if not part.value.samples and not part.shown_only}
    deciding = [part for part in there if not part.shown_only]
    verdicts = {part.verdict for part in deciding if part.model not in lacking or part.verdict == "does not hold"}
    if not verdicts:
        return None
    verdict: Verdict = next((each for each in ("does not hold", "undecided") if each in verdicts), "holds")
    lines = []
    for name in dict.fromkeys(part.model for part in there):
        numbers = "; ".join(f"{each.what} {each.value}" for each in there if each.model == name)
        lines.append(f"`{name}`: {numbers}{'; the rest was not measured' if name in lacking else ''}")
    return Finding(verdict, ". ".join(lines))


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


def _exploited(records: polars.DataFrame, shortcut: str, threat: str) -> Iterator[Part]:
    """A shortcut loses its clean accuracy under a threat on more images than full DRQ does."""
    for model, rows in by_model(records, "exploits"):
        losses = []
        for defence in (shortcut, DRQ):
            clean, attacked = (where(rows, defence=defence, threat=each) for each in ("clean", threat))
            both = right_answers(clean).join(right_answers(attacked), on="index", suffix="_attacked")
            loss = both["right"].cast(int) - both["right_attacked"].cast(int)
            losses.append(both.select("index", loss=loss))
            yield Part(model, f"{defence}, clean", accuracy(clean))
            yield Part(model, "under attack", accuracy(attacked))
        both = losses[0].join(losses[1], on="index", suffix="_full")
        further = (both["loss"] - both["loss_full"]).to_numpy()
        yield Part(model, "images on which it loses more, minus less, in %,", excess(further > 0, further < 0), least=0)


@measure
def base_class_unexplored(records: polars.DataFrame) -> Iterator[Part]:
    """Without exploring the base class, DRQ loses more accuracy under manipulation than full DRQ under its own."""
    return _exploited(records, "DRQ linf, base class unexplored", "manipulation")


@measure
def top_k(records: polars.DataFrame) -> Iterator[Part]:
    """DRQ on three classes loses more accuracy than full DRQ where the true class was pushed to the last place."""
    return _exploited(records, "DRQ linf top-3", "last place")


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
def linf_under_attack(records: polars.DataFrame) -> Iterator[Part]:
    """In the worst case over the ensemble DRQ in linf is better than in l2, and than the model alone."""
    for model, rows in by_model(records, "table4"):
        if trained_in(model):
            linf, l2, alone = (where(rows, victim="base", defence=each) for each in (DRQ, "DRQ l2", UNDEFENDED))
            yield Part(model, "DRQ linf over the model alone", gain_of(linf, alone), least=0)
            yield Part(model, "over DRQ l2", gain_of(linf, l2), least=0)


@measure
def fab_alone(records: polars.DataFrame) -> Iterator[Part]:
    """FAB leaves DRQ more than half of the images, in the norm in which it leaves more; the adaptive attacks less than 5 %."""
    for model, rows in by_model(records, "table4"):
        if "/corruptions/" in stand_ins().get(model, model):
            attacked = where(rows, victim="base")
            left = {name: accuracy(where(attacked, defence=name, threat="FAB")) for name in drqs(rows)}
            best = highest(left)
            yield Part(model, f"{best} under FAB", left.get(best, NOTHING), least=50)
            near, far = (where(attacked, threat=each, defence=best) for each in ("FAB", "APGD-CE"))
            yield Part(model, "no radius was found there, in % of images,", mean_of(near["found"].drop_nulls().not_(), 100))
            ratio = ratio_of(mean_of(radii_of(near, best), 1000), mean_of(radii_of(far, best)))
            yield Part(model, "the mean of the others, in thousandths of that under APGD-CE,", ratio)
            yield Part(model, "under the adaptive attacks", accuracy(where(attacked, defence=best, threat=ADAPTIVE)), most=5)


@measure
def adaptive_attacks(records: polars.DataFrame) -> Iterator[Part]:
    """Under either adaptive attack DRQ is right less often than under the strongest of the others."""
    for model, rows in by_model(records, "table7"):
        for defence in (DRQ, "DRQ l2"):
            given = where(rows, defence=defence, suite="ensemble")
            left = {name: where(given, threat=name) for name in sorted(set(given["threat"]))}
            others = {name: accuracy(each).middle for name, each in left.items() if name not in ADAPTIVE}
            strongest = min(others, key=lambda name: others[name], default="none")
            for name in ADAPTIVE:
                value = gain_of(where(given, threat=strongest), where(given, threat=name))
                yield Part(model, f"{defence}, right under {strongest} minus right under {name},", value, least=0)


@measure
def noisy_exploration(records: polars.DataFrame) -> Iterator[Part]:
    """DRQ that explores with noisy gradients is better than DRQ, on clean images and in the worst case over the ensemble."""
    for model, rows in by_model(records, "table5"):
        for suite in ("clean", "ensemble"):
            noisy, plain = (where(rows, suite=suite, defence=each) for each in (f"{DRQ} + PGD-noise", DRQ))
            yield Part(model, f"{suite}, over DRQ linf,", gain_of(noisy, plain), least=0)


@measure
def either_search(records: polars.DataFrame) -> Iterator[Part]:
    """DRQ is better than with random points in place of a search, on corruptions and in the worst case over the ensemble."""
    for model, rows in by_model(records, "table8"):
        for other in [name for name in drqs(rows) if name != DRQ]:
            attacked = (where(rows, suite="ensemble", defence=each) for each in (DRQ, other))
            what = f"DRQ over {other.removeprefix('DRQ linf, ')},"
            yield Part(model, f"{what} corrupted,", corrupted_gain(rows, DRQ, other), least=0)
            yield Part(model, f"{what} attacked,", gain_of(*attacked), least=0)


@measure
def more_iterations(records: polars.DataFrame) -> Iterator[Part]:
    """With twice and four times the iterations, DRQ in linf loses less than 2 points in the worst case."""
    before = dict(by_model(records, "table4"))
    for model, rows in by_model(records, "section5"):
        single = where(before.get(model, rows), defence=DRQ, suite="ensemble", victim="base")
        for beta in (2, 4):
            more = where(rows, defence=DRQ, suite=f"ensemble, beta {beta}")
            yield Part(model, f"beta {beta} minus 1", gain_of(more, single), -MARGIN)
            yield Part(model, f"beta {beta}", accuracy(more))


@measure
def random_noise(records: polars.DataFrame) -> Iterator[Part]:
    """Under random noise DRQ loses less than 2 points."""
    for model, rows in by_model(records, "section5"):
        noisy, clean = (where(rows, defence=DRQ, threat=each) for each in ("random noise", "clean"))
        yield Part(model, "random noise minus clean", gain_of(noisy, clean), least=-MARGIN)


@measure
def opposite_directions(records: polars.DataFrame) -> Iterator[Part]:
    """The mean cosine is below 0 for every attack, where DRQ is right and the model alone is wrong."""
    for model, rows in by_model(records, "figure5"):
        for attack, cosine in _cosines(rows).items():
            yield Part(model, attack, cosine, most=0)


@measure
def lowest_cosine(records: polars.DataFrame) -> Iterator[Part]:
    """The mean cosine of PGD-noise is below that of every other attack."""
    for model, rows in by_model(records, "figure5"):
        cosines = _cosines(rows)
        for attack, cosine in cosines.items():
            if attack != ADAPTIVE[0]:
                yield Part(model, f"PGD-noise minus {attack}", difference_of(cosines.get(ADAPTIVE[0], NOTHING), cosine), most=0)


def _cosines(rows: polars.DataFrame) -> dict[str, Value]:
    """The mean for every attack, where DRQ is right and the model alone is wrong."""
    parts = where(rows, defence=DRQ).partition_by("threat", maintain_order=True)
    return {each["threat"][0]: mean_of(each.filter(corrected())["cosine"].drop_nulls().to_numpy()) for each in parts}


@measure
def raw_gradient(records: polars.DataFrame) -> Iterator[Part]:
    """With the gradient DRQ is within 2 points of itself with its sign, on clean and on attacked images."""
    for model, rows in by_model(records, "gradient"):
        for threat in ("clean", "PGD"):
            raw, sign = (where(rows, threat=threat, defence=each) for each in ("DRQ linf, raw gradient", DRQ))
            yield Part(model, threat, gain_of(raw, sign), -MARGIN, MARGIN)


@measure
def end_to_end(records: polars.DataFrame) -> Iterator[Part]:
    """Under the attack through all of DRQ it is right less than 2 points less often than under both adaptive ones."""
    for model, rows in by_model(records, "section5"):
        through, adaptive = where(rows, threat="end to end"), where(rows, defence=DRQ, suite="adaptive, 20 steps")
        yield Part(model, "end to end minus adaptive", gain_of(through, adaptive), least=-MARGIN)


@measure
def square_on_the_pipeline(records: polars.DataFrame) -> Iterator[Part]:
    """Under Square on all of DRQ it is right less than 2 points less often than under both adaptive attacks."""
    before = dict(by_model(records, "table4"))
    for model, rows in by_model(records, "section5"):
        adaptive = where(before.get(model, rows), defence=DRQ, suite="ensemble", threat=ADAPTIVE, victim="base")
        yield Part(model, "Square minus adaptive", gain_of(where(rows, threat="Square on DRQ"), adaptive), least=-MARGIN)
