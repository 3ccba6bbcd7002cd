"""The page of peers: its numbers are those of the records, and its words follow from them."""

import polars as pl
import pytest
from testbed.reproduced import IMAGES, MODEL, answers, attacked, run
from testbed.synthetic import records

from drq.evaluation.plan import tasks
from drq.evaluation.sources import as_spec
from drq.reproduction import kept_records, overview
from drq.reproduction.experiments import BEYOND
from tools.pages import ledger, peers


def page(folder, **frames):
    for name, frame in frames.items():
        kept_records.write_record(run(folder / f"run-{name}", frame, name.replace("_", "-")), folder)
    return peers.page(folder)


def test_an_empty_page_says_what_to_run(tmp_path):
    text = peers.page(tmp_path)
    assert "Not run yet: `drq reproduce peers --keep results/paper`." in text
    assert "Not run yet: `drq reproduce redteam-linf --keep results/paper`." in text


def test_the_overview_has_every_place_and_cost(tmp_path):
    right = {"standard": 100, "DRQ linf": 120, "Hedge": 110, "TENT": 90}
    text = page(tmp_path, peers=answers(right), redteam_linf=attacked(60, 80))
    assert "| standard | 50.00 | 50.00 | 50.00 | 50.00 | 50.00 | 50.00 | 40.00 | 1 | 0.10 |  |" in text
    assert "| DRQ linf | 60.00 | 60.00 | 60.00 | 60.00 | 60.00 | 60.00 | 30.00 | 290 | " in text
    assert "| Hedge | 55.00 | 55.00 | 55.00 | 55.00 | 55.00 | 55.00 |  | 21 | " in text
    assert " | a batch, other weights |" in text  # TENT
    assert "| standard |  | clean -10.00 [-1" in text
    assert text.count("| Hedge |") == 2


def test_the_summary_has_one_row_for_each_kind_of_defence():
    right = {"standard": 100, "DRQ linf": 120, "Hedge": 110, "TENT": 90}
    moved = pl.when(pl.col("threat") == "translation").then("label").otherwise("prediction")  # all of these are right
    given = answers(right).with_columns(prediction=moved)
    given = given.filter((pl.col("defence") != "TENT") | (pl.col("suite") != "transferred"))  # to which nothing was carried over
    tiny = attacked(50, 70).with_columns(model=pl.lit("cifar10-tiny"))
    lines = overview.summary(given, pl.concat([attacked(60, 80), tiny])).splitlines()
    assert lines[0].startswith(
        "| defence | clean | 15 corruptions | spatial | transferred attack | adaptive worst case | adaptive, "
    )
    assert lines[2:] == [
        "| standard | 50.00 | 50.00 | 75.00 | 50.00 | 40.00 | 35.00 | 1 |  |",
        "| DRQ linf | 60.00 | 60.00 | 80.00 | 60.00 | 30.00 | 25.00 | 290 |  |",
        "| Hedge | 55.00 | 55.00 | 77.50 | 55.00 | at most 55.00 |  | 21 |  |",
        "| TENT | 45.00 | 45.00 | 72.50 |  |  |  | 21 | a batch, other weights |",
    ]


def test_every_row_of_the_summary_is_measured_by_an_experiment():
    asked = [name for experiment in overview.PEERS for name in as_spec(experiment).defences]
    assert {*overview.SUMMARY} <= {*asked}
    assert len(asked) == len({*asked})  # each once


def test_all_parts_of_the_red_team_are_on_the_page(tmp_path):
    noise = attacked(60, 80).filter(pl.col("defence") != "standard").with_columns(defence=pl.lit("DRQ noise"))
    text = page(tmp_path, redteam_linf=attacked(60, 80), redteam_noise=noise)
    assert "| cifar10-linf | DRQ linf | " in text
    assert "| cifar10-linf | DRQ noise | " in text


def test_no_part_of_the_red_team_asks_what_another_asks():
    asked = [
        (task.model, task.data, task.threat, task.first, defence)
        for name in BEYOND["redteam"]
        for task in tasks(as_spec(name))
        for defence in task.defences
    ]
    assert len(asked) == len(set(asked)) > 40


def test_no_time_of_another_machine_is_shown(tmp_path):
    given = answers({"standard": 100, "DRQ linf": 120, "TENT": 121})
    first, second = (given.filter((pl.col("defence") == "TENT") == other) for other in (False, True))
    times = []
    for device in (first["device"][0], "another"):
        moved = second.with_columns(device=pl.lit(device))
        text = page(tmp_path / device, peers=first, peers_single=moved)
        times.append(next(line.split(" | ")[9] for line in text.splitlines() if line.startswith("| TENT | 60.50")))
    assert float(times[0]) > 0
    assert times[1] == ""


def test_peers_at_most_as_dear_are_compared_with_ours_place_by_place(tmp_path):
    given = answers({"standard": 100, "DRQ linf": 120, "Hedge": 150, "TENT": 121})
    lines = page(tmp_path, peers=given).splitlines()
    standard, hedge, tent = lines[lines.index("| defence | better | worse | passes | needs |") + 2 :][:3]
    assert hedge.startswith("| Hedge | clean +15.00 [+1")
    assert hedge.count("+15.00 [") == len(overview.PLACES)
    assert hedge.endswith(" |  | 21 |  |")
    assert standard.startswith("| standard |  | clean -10.00 [-1")
    assert standard.count("-10.00 [") == len(overview.PLACES)
    assert tent == "| TENT |  |  | 21 | a batch, other weights |"  # half a point is noise
    fewer = given.filter((pl.col("defence") != "TENT") | (pl.col("suite") != "transferred"))
    assert "| TENT |  | not measured: transferred attack | 21 |" in page(tmp_path / "fewer", peers=fewer)
    dear = given.with_columns(passes=pl.when(pl.col("defence") == "Hedge").then(421).otherwise("passes"))
    assert page(tmp_path / "dear", peers=dear).count("| Hedge |") == 1


@pytest.mark.parametrize(
    ("defended", "static", "verdict"), [(120, 80, "survives"), (82, 80, "vanishes"), (60, 80, "worse than none")]
)
def test_verdicts(tmp_path, defended, static, verdict):
    text = page(tmp_path, redteam_linf=attacked(defended, static))
    (line,) = [each for each in text.splitlines() if each.startswith(f"| {MODEL} | DRQ linf |")]
    assert f"| {100 * static / IMAGES:.2f} | {100 * defended / IMAGES:.2f} |" in line
    assert line.endswith(f"| {verdict} | 200 | 280 |")


def test_other_attacks_have_no_verdict_of_their_own(tmp_path):
    """They run on few images: beside each stands what the red team left of the same ones."""
    frame = attacked(120, 80)
    few = frame.filter(pl.col("threat") == "red team", pl.col("index") >= 110, pl.col("index") < 130)
    frame = pl.concat([frame, few.with_columns(threat=pl.lit("decisions"), suite=pl.lit("decisions"), prediction="label")])
    text = page(tmp_path, redteam_linf=frame)
    assert f"| {MODEL} | DRQ linf | decisions | 100.00 | 50.00 | 0.00 | 20 |" in text
    assert text.count("survives |") == 1


def test_margins_are_compared_shift_by_shift(tmp_path):
    clean = records(400, [MODEL], threats={"clean": "clean"})
    sure = pl.when(pl.col("prediction") == pl.col("label")).then(0.9).otherwise(0.1)
    knows = clean.with_columns(margin=sure, confidence=pl.lit(0.5))  # a margin that knows every error
    text = page(tmp_path, table6=knows)
    assert f"| {MODEL} | DRQ linf | none |" in text
    assert "| margin | -" in text
    blind = clean.with_columns(margin=pl.lit(0.5), confidence=sure, prediction="base_prediction")
    assert "| confidence | +" in page(tmp_path / "blind", table6=blind)


def test_it_is_written_beside_the_ledger_with_its_picture(tmp_path):
    page(tmp_path / "kept", table6=records(100, [MODEL], threats={"clean": "clean"}))
    names = [path.name for path in ledger.write(tmp_path / "kept", tmp_path / "ledger.md")]
    assert names == ["ledger.md", "peers.md", "presets.md", "real.md", "risk-coverage.svg"]
