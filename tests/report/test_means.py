"""Means over data sets: what they count, and how far their intervals and p-values hold."""

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from scipy import stats
from testbed.synthetic import records as made_up
from testbed.trials import trial

from drq.report.statistics import wilson
from drq.report.tables import cells, mean_over_data


def test_a_mean_counts_every_data_set_the_same():
    records = trial(
        30, victims=("base",), models=("a",), data=("cifar10-c/fog/5", "cifar10-c/snow/5", "cifar10-c/fog/4", "cifar10")
    )
    extra = records.filter(pl.col("data") == "cifar10").with_columns(data=pl.lit("cifar10-c/speckle_noise/5"))
    records = pl.concat([records, extra]).filter((pl.col("data") != "cifar10-c/fog/5") | (pl.col("index") < 10))
    single = {(row["data"], row["threat"], row["defence"]): row for row in cells(records).to_dicts()}
    table = mean_over_data(records)
    assert set(table["data"]) == {"cifar10-c/*/5", "cifar10-c/*/4"}
    for row in table.to_dicts():
        kinds = ("fog", "snow") if row["data"].endswith("5") else ("fog",)
        parts = [single[row["data"].replace("*", kind), row["threat"], row["defence"]] for kind in kinds]
        assert row["data_sets"] == len(kinds)
        for name in ("images", "correct", "compared"):
            assert row[name] == sum(part[name] for part in parts)
        for name in ("accuracy", "passes", "seconds", "reference_accuracy", "difference"):
            values = [part[name] for part in parts]
            assert row[name] == (None if None in values else pytest.approx(np.mean(values))), name


def repeated(kinds, images=80, seed=0):
    """Every corruption has the very same answers."""
    one = trial(images, seed=seed, victims=("base",), models=("a",), data=("cifar10-c/fog/5",))
    return pl.concat([one.with_columns(data=pl.lit(f"cifar10-c/{kind}/5")) for kind in kinds])


def test_answers_that_repeat_each_other_count_once():
    once, thrice = mean_over_data(repeated(["fog"])), mean_over_data(repeated(["fog", "snow", "frost"]))
    same = ["accuracy", "low", "high", "difference", "difference_low", "difference_high", "p_value"]
    assert_frame_equal(once.select(same), thrice.select(same))
    exact = same[:-1]  # of single data sets the p-value is exact
    assert_frame_equal(once.select(exact), cells(repeated(["fog"])).select(exact))
    assert thrice["images"].to_list() == [3 * each for each in once["images"]]


def test_a_mean_is_compared_only_where_every_data_set_is():
    records = repeated(["fog", "snow"]).filter((pl.col("defence") != "standard") | (pl.col("data") == "cifar10-c/fog/5"))
    assert mean_over_data(records)["difference"].null_count() == len(mean_over_data(records))
    assert cells(records)["difference"].null_count() < len(cells(records))


def test_the_p_value_of_a_mean_agrees_with_its_interval():
    """The variance is that between images: the deviation of the difference, from images alone, has nearly the same p-value."""
    data = [f"cifar10-c/{kind}/5" for kind in ("fog", "snow", "frost")]
    for seed in range(12):
        records = made_up(400, ["a"], data, threats={"clean": "clean"}, seed=seed)
        (row,) = mean_over_data(records).filter(pl.col("defence") == "DRQ linf").to_dicts()
        assert (row["p_value"] < 0.05) == (row["difference_low"] > 0 or row["difference_high"] < 0)
        right = records.with_columns(right=(pl.col("prediction") == pl.col("label")).cast(pl.Int64))
        wide = right.pivot("defence", index=["data", "index"], values="right")
        nets = wide.group_by("index").agg(net=(pl.col("DRQ linf") - pl.col("standard")).sum())["net"].to_numpy()
        deviations = nets.mean() / (nets.std() / len(nets) ** 0.5)
        assert row["p_value"] == pytest.approx(2 * stats.norm.sf(abs(deviations)), abs=0.06)


def test_the_interval_of_a_mean_holds_although_answers_to_one_image_depend_on_each_other():
    """Images are easy or hard under all five corruptions: an interval that takes answers for independent often misses."""
    draws, kinds = np.random.default_rng(0), ["fog", "snow", "frost", "contrast", "pixelate"]
    blank = made_up(60, models=("a",), data=[f"cifar10-c/{kind}/5" for kind in kinds], threats={"clean": "clean"})
    held, naive = 0, 0
    for _ in range(100):
        hard = draws.random(60) < 0.4  # the mean accuracy is 0.6 * 0.95 + 0.4 * 0.2
        right = draws.random(len(blank)) < np.where(hard[blank["index"]], 0.2, 0.95)
        records = blank.with_columns(prediction=pl.Series(np.where(right, blank["label"], -1)))
        row = mean_over_data(records).row(0, named=True)
        held += row["low"] <= 65 <= row["high"]
        low, high = wilson(row["correct"], row["images"])
        naive += low <= 65 <= high
    assert held >= stats.binom.ppf(0.001, 100, 0.95)
    assert naive < 85
