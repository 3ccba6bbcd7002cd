"""Kept records, the paper's cells beside ours, and the ledger that is made of them."""

import json

import numpy as np
import polars as pl
import pytest
from testbed.refusals import refused
from testbed.reproduced import run
from testbed.synthetic import records as made_up

from drq.commands.cli import main
from drq.evaluation.published import experiments, published
from drq.evaluation.records import COLUMNS, DETAILS
from drq.report import tables
from drq.reproduction import catalogue, cells, improvements, keeping, ledger, pages, peers
from drq.reproduction.claims import claims
from drq.threats.corruptions.constants import KINDS

ENSEMBLE = ("FAB", "Square", "APGD-CE")


def attacked(fixed: int, spoiled: int, images: int = 1000) -> pl.DataFrame:
    """Table 4 with a stand-in: standard is wrong on the first half under FAB alone, DRQ changes as many answers as it is told."""
    frame = made_up(images, ["cifar10-linf"], threats=dict.fromkeys(ENSEMBLE, "ensemble"), defences=("standard", "DRQ linf"))
    index, drq = pl.col("index"), pl.col("defence") == "DRQ linf"
    wrong = (index < images // 2) & (pl.col("threat") == "FAB")
    wrong = wrong & ~(drq & (index < fixed)) | (drq & (index >= images - spoiled))
    answer = pl.when(wrong).then((pl.col("label") + 1) % 10).otherwise("label")
    return frame.with_columns(prediction=answer, experiment=pl.lit("table4"))


def cell(frame: pl.DataFrame, **place) -> dict:
    (row,) = frame.filter(**place).to_dicts()
    return row


def test_times_that_others_spent_are_told(tmp_path):
    """Answers that took longer than the run were another's."""
    records = made_up(80, ["cifar10-linf"], threats={"clean": "clean"}, defences=("standard",))
    for name, seconds, told in (("alone", 0.04, "4 s; passes"), ("after", 0.05, "4 s with answers of another")):
        each = run(tmp_path / name, records.with_columns(seconds=pl.lit(seconds)), "table4")
        line = pages.made("table4", keeping.shortened(each))
        assert told in line, line


def test_kept_records_are_those_of_the_run(tmp_path):
    records = made_up(50, ["cifar10-linf"], threats={"clean": "clean", "PGD": "PGD"})
    made = keeping.keep(run(tmp_path / "run", records, "table4"), tmp_path / "kept")
    found = keeping.kept(tmp_path / "kept", "table4")
    assert found.rows.equals(made.rows)
    assert found.rows.columns == [name for name in COLUMNS if name not in DETAILS]
    for name, column in COLUMNS.items():
        if name in DETAILS or name == "experiment":
            continue
        whole, short = records[name], found.rows[name]
        assert (whole.is_null() == short.is_null()).all(), name
        if column.kind == "number":
            apart = np.abs(whole.drop_nulls().to_numpy() - short.drop_nulls().to_numpy())
            assert (apart <= 2**-10 * np.abs(whole.drop_nulls().to_numpy())).all(), name
        else:
            assert (whole.drop_nulls().cast(pl.String) == short.drop_nulls().cast(pl.String)).all(), name
    for made_of in (tables.cells, tables.worst_case):
        ours, theirs = (made_of(each).drop("seconds", "passes", "threat_passes") for each in (records, found.rows))
        assert ours.equals(theirs)


def test_settings_are_kept_as_they_are(tmp_path):
    settings = {"alpha": 0.3, "threshold": 0.999, "threat_radius": 8 / 255}
    records = made_up(5, ["cifar10-linf"]).with_columns(pl.lit(value).alias(name) for name, value in settings.items())
    rows = keeping.keep(run(tmp_path / "run", records, "figure4"), tmp_path).rows
    assert {name: set(rows[name]) for name in settings} == {name: {value} for name, value in settings.items()}


def test_what_is_told_of_a_record(tmp_path):
    records = made_up(50, ["a"], threats={"clean": "clean", "PGD": "PGD"})
    told = keeping.keep(run(tmp_path / "run", records, "table4"), tmp_path).about
    assert told["seconds"] == 3.5
    assert (told["timed"], told["samples"]) == (80, 100)  # of the rest nobody knows: its process was killed
    assert told["versions"] == {each: records[f"{each}_version"][0] for each in ("drq", "torch")}  # not of who reads it
    assert told["seed"] == 3
    assert told["passes"] == {"answers": 50 * 2 * (280 + 1), "threats": 50 * 101}  # once for both defences
    assert not told["quick"]  # it was a CPU
    twice = pl.concat([records, records.with_columns(victim=pl.lit("defence"))])
    assert keeping.about(run(tmp_path / "more", twice, "table4"))["passes"]["threats"] == 50 * 101 * 3


def test_changed_answers_are_counted():
    frame = attacked(fixed=30, spoiled=5, images=100)
    place = {"model": "cifar10-linf", "data": "cifar10", "suite": "ensemble", "threat": "FAB", "defence": "DRQ linf"}
    wrong = pl.when(pl.col("index") < 50).then((pl.col("label") + 1) % 10).otherwise("label")
    frame = frame.with_columns(base_prediction=wrong)  # the model is wrong on the first half, DRQ right on 30 of those
    assert cells.changed(frame, place) == "35 of 100 answers change, 30 for the better, 5 for the worse; "
    assert cells.changed(frame, place | {"threat": "worst case"}) == ""
    renamed = frame.with_columns(data=pl.lit("cifar10-c/fog/5"))
    assert cells.changed(renamed, place) == ""
    assert cells.changed(renamed, place | {"data": "cifar10-c/*/5"}).startswith("35 of 100")


def test_what_is_no_record(tmp_path):
    assert keeping.kept(tmp_path, "table4") is None
    for name in ("table4.parquet", "table4.json"):
        (tmp_path / name).write_text("{}")
    refused(keeping.kept, tmp_path, "table4", words=["be a record", "drq reproduce table4"])
    pl.DataFrame({"index": [1]}).write_parquet(tmp_path / "table4.parquet")
    refused(keeping.kept, tmp_path, "table4", words=["have the columns of this version"])
    keeping.keep(run(tmp_path / "run", made_up(5), "table4"), tmp_path)
    (tmp_path / "table4.json").write_text("[]")
    refused(keeping.kept, tmp_path, "table4", words=["say what was evaluated"])


def test_a_mean_over_some_corruptions_is_not_the_papers():
    names = [f"cifar10-c/{kind}/5" for kind in KINDS]
    for count in (15, 14):
        records = made_up(20, ["cifar10-linf"], names[:count], {"clean": "clean"}).with_columns(experiment=pl.lit("table1"))
        found = cells.beside("table1", records).filter(model="cifar10-linf")
        assert len(found) == (2 if count == 15 else 0)


def test_cells_stand_beside_those_of_the_paper():
    found = cells.beside("table4", attacked(fixed=100, spoiled=20))
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
    found = cells.beside("table4", attacked(fixed, spoiled))
    assert cell(found, model="cifar10-linf", defence="DRQ linf")["sign"] == sign


def test_every_number_of_the_paper_has_its_cell():
    for name in experiments():
        if name.startswith(("table", "figure")):
            accuracies = published(name).filter(pl.col("model").str.contains("robustbench:"))
            gains = published(name, "difference").filter(pl.col("model").str.contains("robustbench:"))
            assert len(cells.beside(name, None)) == len(accuracies) + len(gains), name


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


def test_names_lead_to_experiments():
    known = catalogue.entries()
    assert {entry.kind for entry in known.values()} == {"table", "figure", "claim", "beyond"}
    assert {name for name in known if known[name].kind == "claim"} == claims().keys()
    assert [*catalogue.wanted(["table4", "fab-alone", "table7"])] == ["table4", "table7"]
    assert {*catalogue.wanted(["all"])} == {each for entry in known.values() for each in entry.experiments}
    assert {*catalogue.wanted(["all"])} <= experiments().keys()
    assert [*catalogue.wanted(["calibration"])] == ["calibration"]
    refused(catalogue.wanted, ["tabel3"], words=["did you mean table3"])
    refused(catalogue.wanted, [], words=["name must be given"])


def test_the_ledger_has_every_entry(tmp_path):
    folder = tmp_path / "kept"
    empty = ledger.ledger(folder)
    beyond = peers.page(folder) + improvements.page(folder)
    for entry in catalogue.entries().values():
        assert f"`drq reproduce {entry.name}" in (beyond if entry.kind == "beyond" else empty), entry.name
    assert all(gap.ours in empty for gap in catalogue.gaps())
    assert "| cells that were run; two models may stand in for one | 0 |" in empty
    keeping.keep(run(tmp_path / "run", attacked(20, 100), "table4"), folder)
    page = ledger.ledger(folder)
    assert page == ledger.ledger(folder)
    line = "| cifar10-linf | cifar10 | worst of ensemble | DRQ linf | 48.52 | 42.00 [38.98, 45.08] | +5.15 | -8.00 ["
    assert line in page
    assert "| opposite | 1,000 | 280 |" in page
    assert "- opposite: cifar10-linf, cifar10, worst case, DRQ linf: " in page
    assert "| gains of the opposite sign | 1 |" in page
    assert f"seed 3; spec abababababab; torch {attacked(1, 1)['torch_version'][0]}." in page


def test_json_has_cells_and_claims(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        "drq.reproduction.catalogue.evaluate", lambda *_, **__: run(tmp_path / "run", attacked(20, 100), "table4")
    )
    assert main(["reproduce", "table4", "--json", "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (
        cell(pl.DataFrame(found["cells"]["table4"], infer_schema_length=None), model="cifar10-linf", defence="DRQ linf")["sign"]
        == "opposite"
    )
    assert found["claims"].keys() == {"linf-under-attack", "fab-alone"}
    assert found["claims"]["fab-alone"] is None


def test_mistakes_are_one_line(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    for given in (
        ["nothing"],
        ["table4", "--keep", str(tmp_path / "file")],
        ["table4", "--keep", str(tmp_path), "--limit", "3"],
        ["--ledger", str(tmp_path), "--records", str(tmp_path)],
        ["--ledger", "x.md", "--records", str(tmp_path / "none")],
    ):
        assert main(["reproduce", *given]) == 2
        error = capsys.readouterr().err.strip()
        assert error.startswith("drq: ")
        assert "\n" not in error


def test_experiments_without_numbers_in_the_paper_have_no_cells():
    assert cells.beside("alpha", attacked(1, 1)).is_empty()
