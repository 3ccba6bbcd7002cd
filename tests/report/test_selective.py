"""Selective prediction against brute force over thresholds, closed forms, and how often a guarantee holds."""

import math

import numpy as np
import polars as pl
import pytest
import torch
from scipy import stats
from testbed.refusals import refused
from testbed.synthetic import records as made_up

from drq.report import selective
from drq.report.selective import aurc, bootstrapped, compare, excess_aurc, least_aurc, risk_coverage, threshold_for, upper_bound


def sample(images=200, levels=None, seed=0):
    """Answers that are right more often where the score is high; scores take few values on request."""
    draws = np.random.default_rng(seed)
    score = draws.random(images)
    correct = draws.random(images) < 0.4 + 0.6 * score
    return correct, score if levels is None else np.floor(score * levels) / levels


def by_hand(correct, score):
    """(coverage, risk, threshold) by trying every threshold."""
    points = []
    for threshold in sorted(set(score.tolist()), reverse=True):
        answered = [right for right, each in zip(correct, score, strict=True) if each >= threshold]
        points.append((len(answered) / len(correct), 1 - sum(answered) / len(answered), threshold))
    return points


@pytest.mark.parametrize("levels", [None, 7, 1])
def test_the_curve_is_that_of_all_thresholds(levels):
    correct, score = sample(levels=levels)
    curve, truth = risk_coverage(correct, score), by_hand(correct, score)
    assert len(curve.coverage) == len(set(score.tolist()))
    assert np.stack(curve, 1) == pytest.approx(np.array(truth))


@pytest.mark.parametrize("levels", [None, 7, 1])
def test_the_area_is_the_mean_risk_over_the_samples_own_thresholds(levels):
    correct, score = sample(levels=levels)
    risk = {threshold: risk for _, risk, threshold in by_hand(correct, score)}
    assert aurc(correct, score) == pytest.approx(np.mean([risk[each] for each in score]))


def test_only_the_order_of_scores_counts():
    correct, score = sample(levels=20)
    mixed = np.random.default_rng(1).permutation(len(score))
    assert aurc(correct[mixed], np.exp(3 * score[mixed])) == pytest.approx(aurc(correct, score))
    assert aurc(correct, np.where(score > 0.5, np.inf, score)) == pytest.approx(aurc(correct, np.where(score > 0.5, 9, score)))


def test_a_score_that_says_nothing_has_the_error_rate():
    correct, _ = sample(20_000)
    random = np.random.default_rng(1).random(len(correct))
    assert aurc(correct, random) == pytest.approx(1 - correct.mean(), abs=0.02)
    assert aurc(correct, np.zeros(len(correct))) == pytest.approx(1 - correct.mean())


def test_the_best_score_has_no_excess_and_the_closed_form():
    """For many samples with error rate r the least area is r + (1 - r) log(1 - r)."""
    correct, _ = sample(20_000)
    rate = 1 - correct.mean()
    assert excess_aurc(correct, correct + 0.1 * np.random.default_rng(0).random(len(correct))) == pytest.approx(0, abs=1e-12)
    assert least_aurc(correct) == pytest.approx(rate + (1 - rate) * math.log1p(-rate), abs=1e-4)
    assert [least_aurc([True, True]), least_aurc([False, False])] == [0, 1]


def test_no_order_beats_the_best():
    correct, _ = sample(12)
    areas = [excess_aurc(correct, np.random.default_rng(seed).random(12)) for seed in range(500)]
    assert min(areas) >= -1e-12
    assert max(areas) <= excess_aurc(correct, ~correct - 1e-3 * np.arange(12)) + 1e-12  # all errors first


@pytest.mark.parametrize("levels", [None, 7])
@pytest.mark.parametrize("risk", [0.01, 0.1, 0.2, 0.9])
def test_the_plain_threshold_is_the_lowest_that_reaches_the_target(risk, levels):
    correct, score = sample(levels=levels)
    fit = [(threshold, coverage, error) for coverage, error, threshold in by_hand(correct, score) if error <= risk]
    found = threshold_for(correct, score, risk, confidence=None)
    assert (found.value, found.coverage, found.risk) == (pytest.approx(min(fit)) if fit else (None, 0, None))
    assert found.bound is None


def test_where_no_threshold_reaches_the_target_there_is_none():
    nothing = selective.Threshold(None, 0.0, None, None)
    assert threshold_for([False] * 100, np.arange(100), 0.5, confidence=None) == nothing
    assert threshold_for([False] * 100, np.arange(100), 0.5) == nothing
    assert threshold_for([True] * 20, np.arange(20), 0.05) == nothing  # too few samples to know


def test_where_all_is_right_everything_is_answered():
    found = threshold_for([True] * 200, np.arange(200), 0.05)
    assert (found.value, found.coverage, found.risk) == (-math.inf, 1, 0)
    assert found.bound == pytest.approx(1 - 0.05 ** (1 / 200))  # in closed form where there is no error


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_a_guarantee_is_for_all_above_the_best_score_that_is_not_answered(kind):
    """Given that score, those above it are independent; also where scores are tied, as at 0."""
    score = np.r_[np.linspace(1, 0.5, 150), np.zeros(150)].astype(kind)
    correct = np.r_[np.ones(150), np.arange(150) % 2].astype(bool)
    found = threshold_for(correct, score, 0.05)
    assert (found.value, found.coverage) == (float(np.nextafter(kind(0), kind(1))), 0.5)
    lower = threshold_for(np.r_[correct[:150], correct[:150]], score, 0.05)
    assert (lower.value, lower.coverage) == (-math.inf, 1)
    whole = threshold_for(correct, np.r_[score[:100], np.full(200, 0.25, kind)], 0.05)  # half of the ties would do
    assert (whole.value, whole.coverage) == (float(np.nextafter(kind(0.25), kind(1))), 1 / 3)
    untied = threshold_for(correct[:150], score[:150], 0.05)
    assert untied.value == -math.inf


@pytest.mark.parametrize(("errors", "total"), [(0, 1), (0, 50), (3, 50), (49, 50), (50, 50), (120, 10_000)])
def test_the_upper_bound_is_that_of_clopper_and_pearson(errors, total):
    truth = stats.binomtest(errors, total, alternative="less").proportion_ci(0.95, "exact").high
    assert upper_bound(errors, total) == pytest.approx(truth, rel=1e-9)


def chosen_risks(error, risk, confidence, images=300, times=200):
    """The true risks at chosen thresholds, for scores in [0, 1] and the probability ``error`` of an error at each."""
    draws, grid, risks = np.random.default_rng(0), np.linspace(0, 1, 2001), []
    for _ in range(times):
        score = draws.random(images)
        found = threshold_for(draws.random(images) >= error(score), score, risk, confidence)
        risks.append(0.0 if found.value is None else float(np.mean(error(grid[grid >= found.value]))))
    return np.array(risks)


@pytest.mark.parametrize("error", [lambda u: 0.7 * np.exp(-6 * u), lambda u: 0 * u + 0.051, lambda u: 0.4 * (u < 0.6)])
def test_a_guarantee_holds_as_often_as_it_says(error):
    """On scores that rank well, that say nothing while the risk is just above the target, and that fall off a cliff."""
    allowed = stats.binom.ppf(0.999, 200, 0.05)
    assert (chosen_risks(error, 0.05, 0.95) > 0.05).sum() <= allowed
    assert (chosen_risks(error, 0.05, None) > 0.05).sum() > allowed  # the plain choice does not have it


def test_a_guarantee_is_not_bought_by_answering_nothing():
    correct, score = sample(5000)
    plain, sure = threshold_for(correct, score, 0.2, confidence=None), threshold_for(correct, score, 0.2)
    assert plain.value < sure.value
    assert 0.7 * plain.coverage < sure.coverage < plain.coverage
    assert sure.risk < sure.bound <= 0.2


def test_areas_are_compared_for_every_defence_with_margins():
    records = made_up(100)
    table = compare(records)
    assert set(table["defence"]) == {"DRQ linf"}  # the undefended model has no margin
    assert len(table) == 6
    for row in table.to_dicts():
        part = records.filter(pl.all_horizontal(pl.col(name) == row[name] for name in selective.GROUP))
        right, base = (part[name].to_numpy() == part["label"].to_numpy() for name in ("prediction", "base_prediction"))
        areas = {
            "aurc": aurc(right, part["margin"]),
            "aurc_by_confidence": aurc(right, part["confidence"]),
            "base_aurc_by_confidence": aurc(base, part["confidence"]),
            "base_aurc_by_logit_margin": aurc(base, part["logit_margin"]),
        }
        assert {name: row[name] for name in areas} == pytest.approx(areas)
        assert row["excess_aurc"] == pytest.approx(excess_aurc(right, part["margin"]))
        assert row["excess_base_aurc_by_confidence"] == pytest.approx(excess_aurc(base, part["confidence"]))
        assert [row["images"], row["risk"], row["base_risk"]] == pytest.approx([100, 1 - right.mean(), 1 - base.mean()])
        assert row["difference"] == pytest.approx(row["aurc"] - row["base_aurc_by_confidence"])
        assert row["difference_low"] is None


def test_samples_without_a_margin_do_not_count():
    records = made_up(100, models=("a",), threats={"clean": "clean"})
    holes = records.with_columns(margin=pl.when(pl.col("index") < 60).then("margin"))
    assert compare(holes).rows() == compare(records.filter(pl.col("index") < 60)).rows()


def test_without_margins_the_table_is_empty():
    records = made_up(10)
    for none in (records.filter(pl.col("defence") == "standard"), records.clear()):
        assert compare(none).schema == compare(records).schema
        assert len(compare(none)) == 0


def test_the_bootstrap_is_that_of_a_loop():
    """Resample the rows one time after the other, and take the areas of what comes out."""
    correct, score = sample(40, levels=8)
    other, rank = sample(40, seed=1)
    draws, differences = np.random.default_rng(5), []
    for _ in range(50):
        rows = draws.integers(40, size=40)
        differences.append(aurc(correct[rows], score[rows]) - aurc(other[rows], rank[rows]))
    truth = np.quantile(differences, [0.025, 0.975])
    assert bootstrapped((correct, score), (other, rank), 50, seed=5) == pytest.approx(tuple(truth))


def test_rows_of_one_image_are_drawn_together():
    """Every image ten times over: as uncertain as once, where rows drawn one by one would seem far surer."""
    draws = np.random.default_rng(3)
    correct, other = draws.random((2, 40)) < 0.7
    score, rank = draws.random((2, 40))
    once = bootstrapped((correct, score), (other, rank), 200, seed=5)
    tenfold = [(np.repeat(right, 10), np.repeat(values, 10)) for right, values in ((correct, score), (other, rank))]
    together = bootstrapped(*tenfold, 200, seed=5, units=np.repeat(np.arange(40), 10))
    assert together == pytest.approx(once)
    uneven = bootstrapped((np.zeros(11), np.arange(11)), (np.ones(11), np.arange(11)), 200, seed=5, units=[0] * 10 + [1])
    assert uneven == (1, 1)  # all wrong minus all right, whichever image is drawn
    alone = bootstrapped(*tenfold, 200, seed=5)
    assert alone[1] - alone[0] < 0.6 * (once[1] - once[0])


def test_the_bootstrap_belongs_to_its_seed_and_not_to_memory(monkeypatch):
    records = made_up(50, models=("a",))
    first = compare(records, bootstrap=40, seed=1)
    monkeypatch.setattr(selective, "BLOCK", 120)
    assert compare(records, bootstrap=40, seed=1).rows() == first.rows()
    assert compare(records, bootstrap=40, seed=2)["difference_low"].to_list() != first["difference_low"].to_list()
    assert compare(records.filter(pl.col("threat") == "FAB"), bootstrap=40, seed=1).rows() == first.filter(threat="FAB").rows()


def test_the_bootstrap_interval_contains_the_truth_about_as_often_as_it_says():
    """Two scores of the same quality: the difference is zero."""
    held, draws = 0, np.random.default_rng(0)
    for number in range(200):
        first = draws.random(100) < 0.8
        second = draws.random(100) < 0.8
        low, high = bootstrapped((first, draws.random(100) + first), (second, draws.random(100) + second), 200, number)
        held += low <= 0 <= high
    assert 175 <= held <= 199


def test_mistakes_are_named():
    refused(risk_coverage, [True, False], [1.0], words=["correct and score", "(2,)", "(1,)"])
    refused(aurc, [], [], words=["N at least 1"])
    refused(aurc, [True], [math.nan], words=["score", "NaN"])
    for risk in (0, 1, -0.1, math.nan):
        refused(threshold_for, [True], [1.0], risk, words=["risk", str(risk)])
    refused(threshold_for, [True], [1.0], 0.1, confidence=95, words=["confidence", "95"])
    refused(compare, made_up(5), bootstrap=-1, words=["bootstrap", "-1"])


def test_tensors_will_do():
    correct, score = np.arange(40) >= 4, np.arange(40) / 40
    expected = threshold_for(correct, score, 0.2)
    assert threshold_for(torch.tensor(correct), torch.tensor(score), 0.2) == expected
