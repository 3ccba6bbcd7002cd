"""The paper's cells beside ours."""

import numpy as np
import polars as pl
import pytest
from testbed.reproduced import cell, table4
from testbed.synthetic import records as made_up

from drq.evaluation.paper import experiments, published
from drq.reproduction import cells
from drq.threats.corruptions.constants import KINDS


def test_changed_answers_are_counted():
    frame = table4(fixed=30, spoiled=5, images=100)
    place = {"model": "cifar10-linf", "data": "cifar10", "suite": "ensemble", "threat": "FAB", "defence": "DRQ linf"}
    wrong = pl.when(pl.col("index") < 50).then((pl.col("label") + 1) % 10).otherwise("label")
    frame = frame.with_columns(base_prediction=wrong)  # the model is wrong on the first half, DRQ right on 30 of those
    assert cells.describe_changes(frame, place) == "35 of 100 answers change, 30 for the better, 5 for the worse"
    assert cells.describe_changes(frame, place | {"threat": "worst case"}) == ""
    renamed = frame.with_columns(data=pl.lit("cifar10-c/fog/5"))
    assert cells.describe_changes(renamed, place) == ""
    assert cells.describe_changes(renamed, place | {"data": "cifar10-c/*/5"}).startswith("35 of 100")


def test_a_mean_over_some_corruptions_is_not_the_papers():
    names = [f"cifar10-c/{kind}/5" for kind in KINDS]
    for count in (15, 14):
        records = made_up(20, ["cifar10-linf"], names[:count], {"clean": "clean"}).with_columns(experiment=pl.lit("table1"))
        found = cells.compare_cells("table1", records).filter(model="cifar10-linf")
        assert len(found) == (2 if count == 15 else 0)


def test_cells_stand_beside_those_of_the_paper():
    found = cells.compare_cells("table4", table4(fixed=100, spoiled=20))
    ours = cell(found, model="cifar10-linf", defence="DRQ linf")
    assert (ours["value"], ours["gain"], ours["of"]) == (48.52, 5.15, "robustbench:cifar10/Linf/Wong2020Fast")
    assert (ours["accuracy"], ours["difference"], ours["images"]) == (pytest.approx(58), pytest.approx(8), 1000)
    assert ours["difference_low"] < 8 < ours["difference_high"]
    alone = cell(found, model="cifar10-linf", defence="standard")
    assert (alone["accuracy"], alone["gain"], alone["sign"]) == (50, None, "")
    absent = found.filter(pl.col("accuracy").is_null())
    assert set(absent["model"]) == set(found.filter(~pl.col("stand_in"))["model"])  # weights of the paper are not run
    assert len(found) == 15 + 2
    assert found["model"].to_list().index("cifar10-linf") == found["of"].to_list().index(ours["of"]) + 1


@pytest.mark.parametrize(
    ("fixed", "spoiled", "sign"),
    [
        (100, 20, cells.SAME),
        (12, 10, cells.LIKELY),
        (10, 12, cells.UNCLEAR),
        (20, 100, cells.OPPOSITE),
        (10, 10, cells.NEITHER),
    ],
)
def test_signs_of_gains(fixed, spoiled, sign):
    found = cells.compare_cells("table4", table4(fixed, spoiled))
    assert cell(found, model="cifar10-linf", defence="DRQ linf")["sign"] == sign


def test_every_number_of_the_paper_has_its_cell():
    for name in experiments():
        if name.startswith(("table", "figure")):
            accuracies = published(name).filter(pl.col("model").str.contains("robustbench:"))
            gains = published(name, "difference").filter(pl.col("model").str.contains("robustbench:"))
            assert len(cells.compare_cells(name, None)) == len(accuracies) + len(gains), name


def test_quartiles_of_cosines():
    frame = made_up(400, ["cifar10-linf"], threats={"FAB": "ensemble"}).with_columns(experiment=pl.lit("figure5"))
    right = (pl.col("prediction") == pl.col("label")) & (pl.col("base_prediction") != pl.col("label"))
    mine = frame.filter(right, pl.col("cosine").is_not_null(), defence="DRQ linf")["cosine"].to_numpy()
    (row,) = cells.cosines("figure5", frame).to_dicts()
    assert row["images"] == len(mine) > 9
    assert [row[name] for name in ("lower quartile", "median", "upper quartile")] == pytest.approx(
        np.percentile(mine, [25, 50, 75])
    )
    assert row["paper median"] == -0.4304


def test_experiments_without_numbers_in_the_paper_have_no_cells():
    assert cells.compare_cells("alpha", table4(1, 1)).is_empty()
