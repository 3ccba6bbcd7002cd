"""Gains over another defence: as a second way of counting finds them, and whether they count."""

import numpy as np
import polars as pl
import pytest
import scipy.stats
from testbed.reproduced import FEW, MODELS, gaining

from drq.reproduction import gains
from drq.reproduction.gains import Gain, verdict


def test_a_gain_is_that_of_images():
    rows = gaining()
    frame = gains.with_shift(rows).filter(model=MODELS[0])
    found = gains.gain(frame, "DRQ shift")
    right = {}  # by image, one by one
    for row in frame.filter(pl.col("shift") != "clean").iter_rows(named=True):
        right.setdefault((row["index"], row["defence"]), []).append(row["prediction"] == row["label"])
    assert {len(each) for each in right.values()} == {gains.SHIFTS}
    each = [100 * (np.mean(right[n, "DRQ shift"]) - np.mean(right[n, "DRQ"])) for n in range(FEW)]
    half = scipy.stats.t.ppf(0.975, FEW - 1) * np.std(each, ddof=1) / FEW**0.5
    np.testing.assert_allclose(found, (np.mean(each), np.mean(each) - half, np.mean(each) + half), rtol=1e-5)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"cifar10-linf": Gain(2, 1, 3), "cifar10-l2": Gain(0.1, -1, 1.2)}, "counts as better"),
        ({"cifar10-linf": Gain(2, 1, 3), "cifar10-l2": Gain(-0.1, -1, 1.2)}, "it gains nothing on `cifar10-l2`"),
        ({"cifar10-linf": Gain(2, -0.1, 3), "cifar10-l2": Gain(1, 0.5, 1.2)}, "its interval reaches 0"),
        ({"cifar10-linf": Gain(-2, -3, -1), "cifar10-l2": Gain(1, 0.5, 1.2)}, "its interval lies below 0"),
        ({"cifar10-linf": Gain(2, 1, 3), "cifar10-l2": Gain(0, 0, 0)}, "it gains nothing on `cifar10-l2`"),
        ({"cifar10-linf": Gain(2, 1, 3)}, "not measured on several models"),
        ({"cifar10-l2": Gain(2, 1, 3), "cifar10-augment": Gain(2, 1, 3)}, "not measured on several models"),
    ],
)
def test_a_verdict_follows_from_gains(found, words):
    assert words in verdict("mine", found)
