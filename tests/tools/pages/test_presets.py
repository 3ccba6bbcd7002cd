"""The page of presets: gains as a second way of counting finds them, and words that follow from them."""

import json
import re

import polars as pl
import pytest
from testbed.reproduced import MODELS, attacked, gaining, run

from drq.errors import InputError
from drq.reproduction import gains, kept_records
from drq.views import Gate
from tools.pages import presets

NAMES = ("standard", "DRQ", "DRQ shift")


def test_an_empty_page_says_what_to_run(tmp_path):
    text = presets.page(tmp_path)
    assert "Not run yet: `drq reproduce improve --keep results/paper`." in text
    assert "Not run yet: `python -m tools.benchmarks.variants try" in text


def test_gates_that_were_counted_on_other_pictures_are_shown(tmp_path):
    (tmp_path / "paper").mkdir()
    assert "tools.gates\n--held-out" not in presets.page(tmp_path / "paper")
    gate = Gate(1.0, inputs=1000, changed=20)
    row = {"model": "one", "preset": "nature", "gate": gate.record, "bound": gate.bound, "learnt": "a", "held_out": "b"}
    row |= {"inputs": 500, "changed": 5, "low": 0.004, "high": 0.023}
    (tmp_path / "view-gates.json").write_text(json.dumps({"found": [row]}))
    text = presets.page(tmp_path / "paper")
    assert "| one | nature | a | 2.0% | 2.9% | b | 1.0% [0.4, 2.3] | yes |" in text
    assert "does not keep" not in text
    (tmp_path / "view-gates.json").write_text(json.dumps({"found": [row | {"changed": 30, "low": 0.042, "high": 0.085}]}))
    broken = "- The gate of `one` for `nature` does not keep what it promises here: 6.0% of answers change"
    assert broken in presets.page(tmp_path / "paper")


def test_the_page_has_every_defence_and_a_verdict(tmp_path):
    rows = gaining().with_columns(pl.col("index") + 7)
    kept_records.write_record(run(tmp_path / "run", rows, "improve"), tmp_path)
    text = presets.page(tmp_path)
    assert len(re.findall(r"^\| cifar10-(linf|l2) \| ", text, re.MULTILINE)) == len(MODELS) * len(NAMES)
    assert "On images from 7 on." in text
    shown = [line.split(" | ") for line in text.splitlines() if line.startswith("| cifar10-linf | ")]
    for line in shown:  # clean is in no mean over shifts
        part = rows.filter(
            pl.col("model") == MODELS[0],
            pl.col("defence") == line[1],
            (pl.col("data") != "cifar10") | (pl.col("threat") != "clean"),
        )
        assert float(line[6]) == pytest.approx(100 * (part["prediction"] == part["label"]).mean(), abs=0.006)
    gained = gains.gain(gains.with_shift(rows).filter(model=MODELS[0]), "DRQ shift")
    assert shown[2][7] == str(gained)  # of this model alone
    assert "- `DRQ shift` counts as better: its interval on `cifar10-linf` lies above 0" in text
    assert "- `standard` does not count as better than the paper's: on `cifar10-linf` its interval lies below 0." in text


def test_models_of_two_experiments_stand_in_one_table(tmp_path):
    rows = gaining()
    augment = rows.filter(pl.col("model") == MODELS[1]).with_columns(model=pl.lit("cifar10-augment"))
    worse = augment.with_columns(prediction=pl.when(pl.col("defence") == "DRQ shift").then(-1).otherwise("prediction"))
    for name, part in {"improve": rows, "improve-augment": worse.filter(pl.col("index") < 20)}.items():
        kept_records.write_record(run(tmp_path / name, part, name), tmp_path)
    text = presets.page(tmp_path)
    (line,) = [each for each in text.splitlines() if each.startswith("| cifar10-augment | DRQ shift | ")]
    assert line.endswith("| 20 |")
    assert line.split(" | ")[6] == "0.00"
    assert "- `DRQ shift` does not count as better than the paper's: its interval on `cifar10-linf` lies above 0, but" in text
    assert "but it gains nothing on `cifar10-augment`." in text


def test_the_best_of_few_passes_is_named(tmp_path):
    """By model; what costs more is not among them, nor what did not see every shift."""
    cost = {"standard": 1, "DRQ": 287, "DRQ shift": 41}
    rows = gaining().with_columns(passes=pl.col("defence").cast(pl.String).replace_strict(cost))
    kept_records.write_record(run(tmp_path / "run", rows, "improve"), tmp_path)
    assert "`standard` is the most accurate on shifted images around `cifar10-l2`: " in presets.page(tmp_path)
    cheaper = rows.with_columns(passes=pl.when(pl.col("passes") < 42).then(9).otherwise("passes"))
    kept_records.write_record(run(tmp_path / "again", cheaper, "improve"), tmp_path)
    text = presets.page(tmp_path)
    (line,) = [each.split(" | ") for each in text.splitlines() if each.startswith("| cifar10-l2 | DRQ shift | ")]
    assert (
        f"`DRQ shift` is the most accurate on shifted images around `cifar10-l2`: {line[6]} %, {line[7]} over the paper's DRQ."
        in text
    )
    part = cheaper.filter((pl.col("defence") != "DRQ shift") | (pl.col("threat") != "rotation"))
    kept_records.write_record(run(tmp_path / "part", part, "improve"), tmp_path)
    assert "`standard` is the most accurate on shifted images around `cifar10-l2`: " in presets.page(tmp_path)


def test_on_more_images_the_model_alone_stands_for_the_paper(tmp_path):
    every = gaining()
    rows = every.filter(pl.col("defence") != "DRQ", pl.col("model") == MODELS[1])
    worse = rows.with_columns(prediction=pl.when(pl.col("defence") == "DRQ shift").then(-1).otherwise("prediction"))
    kept_records.write_record(run(tmp_path / "run", every, "improve"), tmp_path)
    assert "`DRQ shift` counts as better" in presets.page(tmp_path)
    for name, more in {"same": rows, "worse": worse}.items():
        kept_records.write_record(run(tmp_path / name, more, "improve-front"), tmp_path)
        text = presets.page(tmp_path)
        assert "Around `cifar10-l2` the paper's DRQ changes hardly an answer" in text
        lines = [each.split(" | ") for each in text.splitlines() if each.startswith("| cifar10-l2 | DRQ shift | ")]
        assert lines[1][7] == str(gains.gain(gains.with_shift(more), "DRQ shift", "standard"))
        assert ("`DRQ shift` counts as better" in text) == (name == "same")
    assert "its interval on `cifar10-linf` lies above 0, but it gains nothing on `cifar10-l2`." in text


def test_settings_behind_the_front_are_compared_with_it(tmp_path):
    names = {"DRQ": "restored", "DRQ shift": "DRQ at 4/255"}
    rows = gaining().with_columns(pl.col("defence").cast(pl.String).replace(names))
    kept_records.write_record(run(tmp_path / "run", rows, "improve-shift"), tmp_path)
    text = presets.page(tmp_path)
    gained = gains.gain(gains.with_shift(rows).filter(model=MODELS[0]), "DRQ at 4/255", "restored")
    (line,) = [each.split(" | ") for each in text.splitlines() if each.startswith("| cifar10-linf | DRQ at 4/255 | ")]
    assert line[7] == str(gained)
    assert gained.low > 0
    assert "counts as better" not in text  # they are chosen here, not reported


@pytest.mark.parametrize(
    "seen",
    [
        pl.col("data") == "cifar10",  # no corruption
        (pl.col("data") == "cifar10") & (pl.col("threat") == "clean"),  # no shift at all
        (pl.col("defence") != "DRQ shift") | (pl.col("threat") != "rotation"),
        (pl.col("defence") != "DRQ") | ~pl.col("data").str.contains("fog") | (pl.col("index") < 5),  # not on the same images
    ],
)
def test_part_of_the_shifts_allows_no_verdict(seen, tmp_path):
    kept_records.write_record(run(tmp_path / "run", gaining().filter(seen), "improve"), tmp_path)
    text = presets.page(tmp_path)
    assert "`DRQ shift` counts as better" not in text
    (line,) = [each.split(" | ") for each in text.splitlines() if each.startswith("| cifar10-l2 | DRQ shift | ")]
    assert line[7] == ""


def test_the_page_says_whether_anything_adds_to_the_front(tmp_path):
    rows = gaining()
    front = rows.filter(pl.col("defence") == "DRQ shift").with_columns(defence=pl.lit("restored"))
    for changed, words in ((front, True), (front.with_columns(prediction=pl.col("label") - 1), False)):
        kept_records.write_record(run(tmp_path / str(words), pl.concat([rows, changed]), "improve"), tmp_path)
        text = presets.page(tmp_path)
        assert "Over its front alone `DRQ shift` gains " in text
        assert ("nowhere beyond chance" in text) == words


def test_what_was_tried_is_told_by_ideas(tmp_path):
    rule = {"passes": 30, "clean": 80, "corrupted": 60, "turned": 50, "moved": 40, "PGD": 30, "gain": 1, "low": -1, "high": 3}
    rules = [{"idea": idea, "rule": f"{idea}{n}", "shifts": 50 + n} | rule for idea in "ab" for n in range(5)]
    about = {"model": "cifar10-linf", "first": 0, "images": 9, "rules": rules}
    (tmp_path / "tried.json").write_text(json.dumps(about))
    text = presets.page(tmp_path)
    assert "10 rules on 9 images from 0 on" in text
    assert "- The best at 40 passes or less: a, a4, with 54 % over all shifts for 30 passes, 1 [-1, 3] over" in text
    assert "best without a front" not in text
    assert [line.split(" | ")[1] for line in text.splitlines() if line.startswith(("| a |", "| b |"))] == [
        "a4",
        "a3",
        "a2",
        "b4",
        "b3",
        "b2",
    ]
    rules += [rule | {"idea": "c", "rule": "none: c", "shifts": 70, "passes": 41}]
    (tmp_path / "tried.json").write_text(json.dumps(about | {"rules": rules}))
    text = presets.page(tmp_path)
    assert "- The best at 40 passes or less: a, a4," in text
    assert "- The best without a front: c, none: c, with 70 % over all shifts for 41 passes" in text
    (tmp_path / "tried.json").write_text("{}")
    with pytest.raises(InputError, match="must say what was tried"):
        presets.page(tmp_path)


@pytest.mark.parametrize(("defended", "gone"), [(100, False), (60, True)])
def test_what_does_not_survive_is_said_in_words(defended, gone, tmp_path):
    kept_records.write_record(run(tmp_path / "run", attacked(defended, 60), "improve-attacked"), tmp_path)
    assert ("No gain survives here" in presets.page(tmp_path)) == gone


@pytest.mark.parametrize("name", ["improve-attacked", "improve-search", "improve-digits"])
def test_attacks_on_presets_themselves_have_verdicts(name, tmp_path):
    rows = attacked(100, 60)
    alone = rows.filter(pl.col("threat") == "red team").with_columns(defence=pl.lit("standard"))  # the model is attacked, too
    kept_records.write_record(run(tmp_path / "run", pl.concat([rows, alone]), name), tmp_path)
    text = presets.page(tmp_path)
    assert "| cifar10-linf | DRQ linf | " in text
    assert " | survives | 200 | " in text
    assert f"Not run yet: `drq reproduce {name} " not in text
    assert text.count("Not run yet: `drq reproduce improve") == 6


def test_longer_training_stands_beside_what_it_would_replace(tmp_path):
    parts = [
        attacked(defended, static).with_columns(
            model=pl.lit(model), defence=pl.when(pl.col("defence") == "DRQ linf").then(pl.lit("DRQ guarded")).otherwise("defence")
        )
        for model, defended, static in (("digits", 120, 80), ("digits?epochs=60", 130, 116))
    ]
    kept_records.write_record(run(tmp_path / "run", pl.concat(parts), "improve-digits"), tmp_path)
    text = " ".join(presets.page(tmp_path).split())
    assert "`digits?epochs=60` alone withstands 58.00 %, where `digits` alone withstands 40.00 %" in text
    assert "and with `DRQ guarded` 60.00 %" in text
    assert "at 280 passes an answer" in text
    assert "no contradiction" in text
    kept_records.write_record(run(tmp_path / "none", parts[0].filter(pl.col("threat") != "red team"), "improve-digits"), tmp_path)
    assert "no contradiction" not in presets.page(tmp_path)
