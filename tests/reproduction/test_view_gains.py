"""What views gain, and what gates promise: as a second way of counting finds them."""

import numpy as np
import polars as pl
import pytest
import scipy.stats
from testbed.reproduced import run
from testbed.synthetic import records

from drq.reproduction import kept_records, printout, view_gains
from drq.threats.corruptions.constants import KINDS

PHOTO, ROTATED = "photo, 4 views", "rotation, 13 views"
MODEL, IMAGES, FIRST = "published:resnet20", 80, 5000


def rows(kinds: int = 15, seed: int = 0, as_threats: bool = False) -> pl.DataFrame:
    """Random answers: views are right more often than the model alone, as the experiments name them."""
    chances = {"standard": 0.5, PHOTO: 0.8, ROTATED: 0.4}
    names = [*KINDS][:kinds]
    threats = {each: each for each in ("clean", "rotation90")}
    parts = [records(IMAGES, [MODEL], ["cifar10"], threats, tuple(chances))]
    if as_threats:
        parts.append(records(IMAGES, [MODEL], ["cifar10"], {each: each for each in names}, tuple(chances)))
    else:
        parts.append(records(IMAGES, [MODEL], [f"cifar10-c/{each}/5" for each in names], {"clean": "clean"}, tuple(chances)))
    found = pl.concat(parts).with_columns(pl.selectors.categorical().cast(pl.String), pl.col("index") + FIRST)
    right = np.random.default_rng(seed).random(len(found)) < found["defence"].replace_strict(chances).to_numpy()
    looked = pl.col("defence") != "standard"
    passes = pl.col("defence").replace_strict({"standard": 1, PHOTO: 4, ROTATED: 13}, return_dtype=pl.Int64)
    return found.with_columns(
        prediction=pl.when(pl.Series(right)).then("label").otherwise((pl.col("label") + 1) % 10),
        passes=passes,
        forward_passes=pl.when(looked).then(passes),
        kept=pl.when(looked).then(pl.col("prediction") == pl.col("base_prediction")),
    )


def answers(frame: pl.DataFrame, defence: str, which: pl.Expr) -> np.ndarray:
    """(shifts, images) whether it is right, one by one."""
    mine = frame.filter(which, defence=defence).sort("data", "threat", "index")
    return (mine["prediction"] == mine["label"]).to_numpy().reshape(-1, IMAGES).astype(float)


@pytest.mark.parametrize("as_threats", [False, True])
def test_a_gain_is_that_of_the_same_images(as_threats):
    """Corruptions are those of data sets or threats; an image counts once, however often it was corrupted."""
    frame = rows(7, as_threats=as_threats)
    cells = view_gains.gain_cells(frame)
    assert view_gains.columns(cells) == ["clean", "7 corruptions", "rotation90"]
    corrupted = pl.col("data").str.contains("-c/") | pl.col("threat").is_in([*KINDS])
    for name, which in (
        ("7 corruptions", corrupted),
        ("rotation90", pl.col("threat") == "rotation90"),
        ("clean", ~corrupted & (pl.col("threat") == "clean")),
    ):
        alone, views = (answers(frame, defence, which) for defence in ("standard", PHOTO))
        row = cells.filter(defence=PHOTO, column=name).row(0, named=True)
        assert row["images"] == IMAGES
        assert row["accuracy"] == pytest.approx(100 * views.mean())
        assert row["difference"] == pytest.approx(100 * (views - alone).mean())
        each = 100 * (views - alone).mean(0)  # by image
        half = scipy.stats.t.ppf(0.975, IMAGES - 1) * each.std(ddof=1) / IMAGES**0.5
        assert (row["difference_high"] - row["difference_low"]) / 2 == pytest.approx(half, rel=0.1)


def test_the_table_has_costs_and_shares():
    frame = rows()
    table = view_gains.table(frame)
    lines = {line.split(" | ")[1]: [each.strip(" |") for each in line.split(" | ")] for line in table.splitlines()[2:]}
    heads = [each.strip(" |") for each in table.splitlines()[0].split(" | ")]
    line = dict(zip(heads, lines[PHOTO], strict=True))
    clean = frame.filter(pl.col("data") == "cifar10", threat="clean", defence=PHOTO)
    changed = 100 * (clean["prediction"] != clean["base_prediction"]).mean()
    kept = 100 * frame.filter(defence=PHOTO)["kept"].mean()
    assert (line["passes"], line["forward"], line["images"]) == ("4", "4", f"{IMAGES}")
    assert (line["changed"], line["kept"]) == (f"{changed:.1f}", f"{kept:.1f}")
    alone = dict(zip(heads, lines["standard"], strict=True))
    assert (alone["passes"], alone["forward"], alone["kept"]) == ("1", "", "")


def test_fewer_images_are_said():
    frame = rows().filter((pl.col("defence") != ROTATED) | ~pl.col("data").str.contains("-c/") | (pl.col("index") < FIRST + 20))
    assert " on 20 |" in next(line for line in view_gains.table(frame).splitlines() if ROTATED in line)
    assert " on " not in next(line for line in view_gains.table(frame).splitlines() if PHOTO in line)


def test_findings_say_where_intervals_tell():
    found = dict(line[3:].split("`: ") for line in view_gains.findings(rows()).splitlines())
    assert "better on clean (1 of 1) and on 15 corruptions (1 of 1) and on rotation90 (1 of 1)" in found[PHOTO]
    assert "worse nowhere" in found[PHOTO]
    assert "worse on 15 corruptions (1 of 1)" in found[ROTATED]


def test_every_corruption_has_a_row():
    table = view_gains.by_corruption(rows(), PHOTO)
    assert len(table.splitlines()) == 2 + 15
    assert table.startswith("| corruption | resnet20 |")


def test_gates_are_held_to_what_they_promise():
    frame = rows().with_columns(experiment=pl.lit("views-first"))
    clean = frame.filter(pl.col("data") == "cifar10", threat="clean", defence=PHOTO)
    changed = int((clean["prediction"] != clean["base_prediction"]).sum())
    found = {row["defence"]: row for row in view_gains.gate_cells(frame)}
    assert found.keys() == {PHOTO, ROTATED}  # the model alone has no gate
    row = found[PHOTO]
    assert (row["changed"], row["images"], row["learnt"], row["learnt_changed"]) == (changed, IMAGES, 500, "at most 25")
    assert row["bound"] == pytest.approx(scipy.stats.beta.ppf(0.95, 26, 475))  # Clopper and Pearson, 25 of 500
    promised = {(MODEL, PHOTO): {"changed": 7, "bound": 0.9}}
    told = view_gains.gates(frame, promised)
    assert f"| 7 of 500 | {changed} of {IMAGES} | {100 * changed / IMAGES:.1f} | 90.0 | yes |" in told
    assert "| no |" in told


def test_gates_are_not_judged_by_what_they_were_learnt_from():
    frame = rows().with_columns(pl.col("index") - 2000, experiment=pl.lit("views-first"))
    with pytest.raises(AssertionError):
        [*view_gains.gate_cells(frame)]


@pytest.mark.parametrize(("name", "words"), [("views-first", f"`{PHOTO}`: better on"), ("view-gates", "bound, %")])
def test_the_command_prints_them(name, words, tmp_path):
    frame = rows().with_columns(model=pl.lit(MODEL))
    record = kept_records.condense(run(tmp_path / "run", frame, name))
    text = printout.format_record(record)
    assert text.startswith("### Made up")
    assert words in text
    assert f"`drq reproduce {name}`: " in text
