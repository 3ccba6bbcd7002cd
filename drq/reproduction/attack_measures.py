"""Measure the claims of the paper on attacks, a function for each; docstrings say the rules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from drq.evaluation.paper import stand_ins
from drq.report.expressions import UNDEFENDED
from drq.reproduction.intervals import (
    NOTHING,
    Value,
    accuracy,
    by_model,
    corrected,
    corrupted_gain,
    difference_of,
    drqs,
    excess,
    gain_of,
    highest,
    mean_of,
    radii_of,
    ratio_of,
    right_answers,
    trained_in,
    where,
)
from drq.reproduction.verdicts import Measure, Part, registering

if TYPE_CHECKING:
    import polars

MARGIN = 2.0  # points that count as marginal where the paper has no number
DRQ, ADAPTIVE = "DRQ linf", ("PGD-noise", "PGD-attack")
MEASURES: dict[str, Measure] = {}
measure = registering(MEASURES)


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
