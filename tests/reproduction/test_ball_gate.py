"""The gate around a ball, from records: as one counts by hand."""

import polars as pl
import pytest
from testbed.synthetic import records

from drq.reproduction import ball_gate
from drq.threats.corruptions.constants import KINDS

MODEL, DEFENCE = ball_gate.DEFENCES[0]


def shifted(first: int, data=("cifar10",), threats=None) -> pl.DataFrame:
    """Records of all defences on a hundred images."""
    threats = {"clean": "clean"} if threats is None else threats
    models = sorted({model for model, _ in ball_gate.DEFENCES})
    found = records(100, models, data, threats, ("standard", "DRQ linf", "DRQ l2"))
    return found.with_columns(pl.selectors.categorical().cast(pl.String), pl.col("index") + first)


@pytest.fixture
def kept() -> dict[str, pl.DataFrame]:
    """What an experiment each would leave: clean images on both sides of the border, shifted ones beyond it."""
    ensemble = dict.fromkeys(("FAB", "Square"), "ensemble")
    once = {each: each for each in ("one rotation", "one translation", "rotations")}
    return {
        "table6": pl.concat([shifted(0), shifted(5000), shifted(8000)]),
        "table1": shifted(5000, [f"cifar10-c/{kind}/5" for kind in KINDS]),
        "table3": shifted(5000, threats=once),
        "table4": shifted(5000, threats=ensemble),
        "table7": shifted(0, threats=ensemble),  # ends too early
        "ball-gate": shifted(5000, threats={"transferred": "transferred"}).filter(pl.col("index") < 5040, model=MODEL),
    }


def test_the_threshold_is_the_median_of_changed_clean_answers_below_the_border(kept):
    (found, *_) = ball_gate.gated(kept)
    clean = kept["table6"].filter(model=MODEL, defence=DEFENCE).filter(pl.col("index") < 5000)
    margins = sorted(row["margin"] for row in clean.iter_rows(named=True) if row["prediction"] != row["base_prediction"])
    middle = len(margins) // 2
    median = margins[middle] if len(margins) % 2 else (margins[middle - 1] + margins[middle]) / 2
    assert found.changed == len(margins)
    assert found.threshold == pytest.approx(median)


def test_gated_answers_are_the_models_own_up_to_the_threshold(kept):
    (found, *_) = ball_gate.gated(kept)
    rows = kept["table6"].filter(model=MODEL, defence=DEFENCE).filter(pl.col("index").is_between(5000, 7999))
    right = [
        (row["prediction"] if row["margin"] > found.threshold else row["base_prediction"]) == row["label"]
        for row in rows.iter_rows(named=True)
    ]
    gated = found.cells["clean", ball_gate.GATED]
    assert gated["images"] == len(right) == 100  # none from 8000 on
    assert gated["accuracy"] == pytest.approx(100 * sum(right) / len(right))
    assert found.cells["clean", ball_gate.OPEN]["accuracy"] == pytest.approx(100 * (rows["prediction"] == rows["label"]).mean())
    assert gated["difference"] == pytest.approx(gated["accuracy"] - gated["reference_accuracy"])


def test_every_column_has_its_cells_where_there_are_records(kept):
    (found, *_) = ball_gate.gated(kept)
    assert {name for name, _ in found.cells} == set(ball_gate.COLUMNS)
    assert found.cells["15 corruptions", ball_gate.GATED]["data_sets"] == 15
    assert found.cells["ensemble of attacks on the model alone", ball_gate.OPEN]["threats"] == 2
    table = ball_gate.table(kept)
    assert len(table.splitlines()) == 2 + len(ball_gate.DEFENCES)
    assert "15 corruptions, gated" in table


def test_cells_of_fewer_images_say_so_and_cells_without_records_are_empty(kept):
    heads, _, *rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in ball_gate.table(kept).splitlines())
    (alone,) = (place for place, head in enumerate(heads) if head.startswith("one attack, APGD, ") and head.endswith(", gated"))
    corrupted, images = heads.index("15 corruptions, gated"), heads.index("images")
    for row in rows:
        assert row[images] == "100"  # of each corruption, not of all
        assert " on " not in row[corrupted]
        assert row[alone].endswith(" on 40") if row[0] == f"`{MODEL}`" else row[alone] == ""


def test_columns_without_records_are_left_out(kept):
    few = kept | {name: rows.filter(pl.col("index") < 5000) for name, rows in kept.items() if name != "table6"}
    assert "corruptions" not in ball_gate.table(few)
    assert "corruptions" not in ball_gate.table(few, 5000, 5050)
    assert "ensemble of attacks on the model alone, gated" in ball_gate.table(few, 0, 999)  # of table7
