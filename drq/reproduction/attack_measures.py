"""Measure the claims of the paper on attacks, a function for each; docstrings say the rules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from drq.evaluation.paper import stand_ins
from drq.report.expressions import UNDEFENDED
from drq.reproduction.intervals import (
    NOTHING,
    Estimate,
    accuracy,
    accuracy_gain,
    by_model,
    correct_by_image,
    corrected,
    corrupted_gain,
    difference_of,
    drq_defences,
    highest,
    mean_of,
    radii_of,
    ratio_of,
    select,
    share_difference,
    trained_in,
)
from drq.reproduction.verdicts import Comparison, Measure, registering

if TYPE_CHECKING:
    import polars

MARGIN = 2.0  # points that count as marginal where the paper has no number
DRQ, ADAPTIVE = "DRQ linf", ("PGD-noise", "PGD-attack")
MEASURES: dict[str, Measure] = {}
measure = registering(MEASURES)


def _exploited(records: polars.DataFrame, shortcut: str, threat: str) -> Iterator[Comparison]:
    """Compare a shortcut with full DRQ: under a threat it must lose its correct clean answers on more images."""
    for model, rows in by_model(records, "exploits"):
        losses = []
        for defence in (shortcut, DRQ):
            clean, attacked = (select(rows, defence=defence, threat=each) for each in ("clean", threat))
            both = correct_by_image(clean).join(correct_by_image(attacked), on="index", suffix="_attacked")
            loss = both["right"].cast(int) - both["right_attacked"].cast(int)
            losses.append(both.select("index", loss=loss))
            yield Comparison(model, f"{defence}, clean", accuracy(clean))
            yield Comparison(model, "under attack", accuracy(attacked))
        both = losses[0].join(losses[1], on="index", suffix="_full")
        further = (both["loss"] - both["loss_full"]).to_numpy()
        yield Comparison(
            model, "images on which it loses more, minus less, in %,", share_difference(further > 0, further < 0), least=0
        )


@measure
def base_class_unexplored(records: polars.DataFrame) -> Iterator[Comparison]:
    """Without exploring the base class, DRQ loses more accuracy under manipulation than full DRQ under its own."""
    return _exploited(records, "DRQ linf, base class unexplored", "manipulation")


@measure
def top_k(records: polars.DataFrame) -> Iterator[Comparison]:
    """DRQ on three classes loses more accuracy than full DRQ where the true class was pushed to the last place."""
    return _exploited(records, "DRQ linf top-3", "last place")


@measure
def linf_under_attack(records: polars.DataFrame) -> Iterator[Comparison]:
    """In the worst case over the ensemble DRQ in linf is better than in l2, and than the model alone."""
    for model, rows in by_model(records, "table4"):
        if trained_in(model):
            linf, l2, alone = (select(rows, victim="base", defence=each) for each in (DRQ, "DRQ l2", UNDEFENDED))
            yield Comparison(model, "DRQ linf over the model alone", accuracy_gain(linf, alone), least=0)
            yield Comparison(model, "over DRQ l2", accuracy_gain(linf, l2), least=0)


@measure
def fab_alone(records: polars.DataFrame) -> Iterator[Comparison]:
    """DRQ in its better norm is right on more than half of the images under FAB, on less than 5 % under adaptive attacks."""
    for model, rows in by_model(records, "table4"):
        if "/corruptions/" in stand_ins().get(model, model):
            attacked = select(rows, victim="base")
            remaining = {name: accuracy(select(attacked, defence=name, threat="FAB")) for name in drq_defences(rows)}
            best = highest(remaining)
            yield Comparison(model, f"{best} under FAB", remaining.get(best, NOTHING), least=50)
            near, far = (select(attacked, threat=each, defence=best) for each in ("FAB", "APGD-CE"))
            yield Comparison(model, "no radius was found there, in % of images,", mean_of(near["found"].drop_nulls().not_(), 100))
            ratio = ratio_of(mean_of(radii_of(near, best), 1000), mean_of(radii_of(far, best)))
            yield Comparison(model, "the mean of the others, in thousandths of that under APGD-CE,", ratio)
            yield Comparison(
                model, "under the adaptive attacks", accuracy(select(attacked, defence=best, threat=ADAPTIVE)), most=5
            )


@measure
def adaptive_attacks(records: polars.DataFrame) -> Iterator[Comparison]:
    """Under each adaptive attack DRQ is right less often than under the strongest other attack."""
    for model, rows in by_model(records, "table7"):
        for defence in (DRQ, "DRQ l2"):
            given = select(rows, defence=defence, suite="ensemble")
            by_threat = {name: select(given, threat=name) for name in sorted(set(given["threat"]))}
            others = {name: accuracy(each).middle for name, each in by_threat.items() if name not in ADAPTIVE}
            strongest = min(others, key=lambda name: others[name], default="none")
            for name in ADAPTIVE:
                value = accuracy_gain(select(given, threat=strongest), select(given, threat=name))
                yield Comparison(model, f"{defence}, right under {strongest} minus right under {name},", value, least=0)


@measure
def noisy_exploration(records: polars.DataFrame) -> Iterator[Comparison]:
    """DRQ that explores with noisy gradients is better than DRQ, on clean images and in the worst case over the ensemble."""
    for model, rows in by_model(records, "table5"):
        for suite in ("clean", "ensemble"):
            noisy, plain = (select(rows, suite=suite, defence=each) for each in (f"{DRQ} + PGD-noise", DRQ))
            yield Comparison(model, f"{suite}, over DRQ linf,", accuracy_gain(noisy, plain), least=0)


@measure
def either_search(records: polars.DataFrame) -> Iterator[Comparison]:
    """DRQ is better than with random points in place of a search, on corruptions and in the worst case over the ensemble."""
    for model, rows in by_model(records, "table8"):
        for other in [name for name in drq_defences(rows) if name != DRQ]:
            attacked = (select(rows, suite="ensemble", defence=each) for each in (DRQ, other))
            what = f"DRQ over {other.removeprefix('DRQ linf, ')},"
            yield Comparison(model, f"{what} corrupted,", corrupted_gain(rows, DRQ, other), least=0)
            yield Comparison(model, f"{what} attacked,", accuracy_gain(*attacked), least=0)


@measure
def more_iterations(records: polars.DataFrame) -> Iterator[Comparison]:
    """With two and four times the iterations of attacks, DRQ in linf loses less than 2 points in the worst case."""
    before = dict(by_model(records, "table4"))
    for model, rows in by_model(records, "section5"):
        single = select(before.get(model, rows), defence=DRQ, suite="ensemble", victim="base")
        for beta in (2, 4):
            more = select(rows, defence=DRQ, suite=f"ensemble, beta {beta}")
            yield Comparison(model, f"beta {beta} minus 1", accuracy_gain(more, single), -MARGIN)
            yield Comparison(model, f"beta {beta}", accuracy(more))


@measure
def random_noise(records: polars.DataFrame) -> Iterator[Comparison]:
    """Under random noise DRQ loses less than 2 points."""
    for model, rows in by_model(records, "section5"):
        noisy, clean = (select(rows, defence=DRQ, threat=each) for each in ("random noise", "clean"))
        yield Comparison(model, "random noise minus clean", accuracy_gain(noisy, clean), least=-MARGIN)


@measure
def opposite_directions(records: polars.DataFrame) -> Iterator[Comparison]:
    """The mean cosine is below 0 for every attack, where DRQ is right and the model alone is wrong."""
    for model, rows in by_model(records, "figure5"):
        for attack, cosine in _cosines(rows).items():
            yield Comparison(model, attack, cosine, most=0)


@measure
def lowest_cosine(records: polars.DataFrame) -> Iterator[Comparison]:
    """The mean cosine of PGD-noise is below that of every other attack."""
    for model, rows in by_model(records, "figure5"):
        cosines = _cosines(rows)
        for attack, cosine in cosines.items():
            if attack != ADAPTIVE[0]:
                yield Comparison(
                    model, f"PGD-noise minus {attack}", difference_of(cosines.get(ADAPTIVE[0], NOTHING), cosine), most=0
                )


def _cosines(rows: polars.DataFrame) -> dict[str, Estimate]:
    """Return the mean cosine for every attack, where DRQ is right and the model alone is wrong."""
    parts = select(rows, defence=DRQ).partition_by("threat", maintain_order=True)
    return {each["threat"][0]: mean_of(each.filter(corrected())["cosine"].drop_nulls().to_numpy()) for each in parts}


@measure
def end_to_end(records: polars.DataFrame) -> Iterator[Comparison]:
    """Under the end-to-end attack DRQ is right at most 2 points less often than under both adaptive attacks."""
    for model, rows in by_model(records, "section5"):
        through, adaptive = select(rows, threat="end to end"), select(rows, defence=DRQ, suite="adaptive, 20 steps")
        yield Comparison(model, "end to end minus adaptive", accuracy_gain(through, adaptive), least=-MARGIN)


@measure
def square_on_the_pipeline(records: polars.DataFrame) -> Iterator[Comparison]:
    """Under Square on all of DRQ it is right at most 2 points less often than under both adaptive attacks."""
    before = dict(by_model(records, "table4"))
    for model, rows in by_model(records, "section5"):
        adaptive = select(before.get(model, rows), defence=DRQ, suite="ensemble", threat=ADAPTIVE, victim="base")
        yield Comparison(
            model, "Square minus adaptive", accuracy_gain(select(rows, threat="Square on DRQ"), adaptive), least=-MARGIN
        )
