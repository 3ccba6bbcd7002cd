"""The page on networks of others: its numbers are those of the records, and its verdicts follow from intervals."""

import polars as pl
import pytest
from testbed.reproduced import run
from testbed.synthetic import records

from drq.reproduction import kept_records
from drq.threats.corruptions.constants import KINDS
from tools.pages import real

NAMES = ("standard", "DRQ")
IMAGES = 200


def answers(frame: pl.DataFrame, right: dict[str, int]) -> pl.DataFrame:
    """Each defence is right on so many images under every threat, the first ones."""
    number = pl.col("defence").cast(pl.String).replace_strict(right, return_dtype=pl.Int64)
    answer = pl.when(pl.col("index") < number).then("label").otherwise((pl.col("label") + 1) % 10)
    alone = pl.when(pl.col("index") < right["standard"]).then("label").otherwise((pl.col("label") + 1) % 10)
    return frame.with_columns(prediction=answer, base_prediction=alone)


def kept(folder, name, *frames, **right):
    frame = answers(pl.concat(frames), right or {"standard": 100, "DRQ": 120})
    kept_records.write_record(run(folder / f"run-{name}", frame, name), folder)


def table(text: str, start: str) -> list[list[str]]:
    return [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith(start)]


def test_an_empty_page_says_what_to_run(tmp_path):
    text = real.page(tmp_path)
    for name in (real.CIFAR10, real.PLAIN, real.MNIST, real.PICTURES, real.INSTANT, real.RED_TEAM):
        assert f"Not run yet: `drq reproduce {name} --keep results/paper`." in text
    assert text.count("| not measured | not measured |") == len(real.STATEMENTS)


def test_corruptions_are_averaged_whether_they_are_data_or_threats(tmp_path):
    plain = records(IMAGES, ["published:resnet2b"], ["cifar10"], {"clean": "clean", "rotation": "rotation"}, NAMES)
    data = records(IMAGES, ["published:resnet2b"], [f"cifar10-c/{kind}/5" for kind in KINDS], {"clean": "clean"}, NAMES)
    kept(tmp_path, real.CIFAR10, plain, data)
    shifts = {"clean": "clean", **{kind: kind for kind in KINDS}, "transferred at 0.1": "transferred"}
    kept(tmp_path, real.MNIST, records(IMAGES, ["published:convex-mnist"], ["mnist"], shifts, NAMES), standard=180, DRQ=90)
    text = real.page(tmp_path)
    (first,), (second,) = (table(text, f"| `published:{name}` |") for name in ("resnet2b", "convex-mnist"))
    assert first[3:5] == ["200", first[4]]
    assert first[4].startswith("50.0: +10.0 [+")
    assert first[5].startswith("15 kinds, 50.0: +10.0 [+")
    assert first[6].startswith("50.0: +10.0 [+")
    assert first[7] == first[8] == ""  # not measured
    assert second[5].startswith("15 kinds, 90.0: -45.0 [-")
    assert second[8].startswith("90.0: -45.0 [-")
    said = {row[0]: row[1] for row in (each for start in ("| Corrupted", "| Rotated", "| Moved") for each in table(text, start))}
    assert [*said.values()] == [
        "same: `resnet2b` (+10.0); other: `convex-mnist` (-45.0)",
        "same: `resnet2b` (+10.0)",
        "not measured",
    ]


def test_a_worst_case_needs_all_of_its_attacks(tmp_path):
    frame = records(IMAGES, ["published:lenet5-advtrained"], ["mnist"], {"FAB": "ensemble", "Square": "ensemble"}, NAMES)
    spared = pl.when((pl.col("threat") == "FAB") & (pl.col("index") >= 100)).then("label").otherwise("prediction")
    whole = answers(frame, {"standard": 100, "DRQ": 60}).with_columns(prediction=spared)
    kept_records.write_record(run(tmp_path / "run", whole, real.MNIST), tmp_path)
    (row,) = table(real.page(tmp_path), "| `published:lenet5-advtrained` |")
    assert row[3:5] == ["200", "2"]
    assert row[5].startswith("50.0: -20.0 [-")


def test_photographs_are_told_by_severity_and_by_what_changes(tmp_path):
    names = ("standard", "DRQ fast")
    threats = {"clean": "clean", **{f"{kind}, severity {level}": f"{kind}-{level}" for kind in [*KINDS][:5] for level in (3, 5)}}
    kept(tmp_path, real.PICTURES, records(40, ["imagenet-lite0"], ["nips2017"], threats, names), standard=30, **{"DRQ fast": 31})
    (row,) = table(real.page(tmp_path), "| DRQ fast |")
    assert row[1] == "40"
    assert row[2].startswith("75.0: +2.5 [")
    assert row[3].startswith("5 kinds, 75.0: +2.5 [")
    assert row[4].startswith("5 kinds, 75.0: +2.5 [")
    assert row[5] == "11 of 440"


@pytest.mark.parametrize(
    ("low", "high", "sign", "expected"),
    [
        (0.1, 0.5, 1, "same"),
        (-0.1, 0.5, 1, "not shown"),
        (-0.5, -0.1, 1, "other"),
        (-1.9, 1.9, 0, "same"),
        (-2.1, 1.0, 0, "not shown"),
        (-9.0, -2.1, 0, "other"),
        (2.1, 9.0, 0, "other"),
    ],
)
def test_a_verdict_is_that_of_the_whole_interval(low, high, sign, expected):
    assert real.verdict({"difference_low": low, "difference_high": high}, sign) == expected
