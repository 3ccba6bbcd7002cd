"""What ``drq reproduce`` prints, and its mistakes."""

import json

import polars as pl
import pytest
from testbed.refusals import refused
from testbed.reproduced import answers, attacked, cell, gaining, run, table4

from drq.commands.cli import main
from drq.evaluation import paper
from drq.reproduction import experiments, kept_records, printout
from drq.reproduction.claims import claims


def test_json_has_cells_and_claims(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        "drq.reproduction.experiments.evaluate", lambda *_, **__: run(tmp_path / "run", table4(20, 100), "table4")
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
        ["--ledger", "x.md"],
        ["table4", "--records", str(tmp_path)],
    ):
        assert main(["reproduce", *given]) == 2
        error = capsys.readouterr().err.strip()
        assert error.startswith("drq: ")
        assert "\n" not in error


def test_names_lead_to_experiments():
    known = experiments.entries()
    assert {entry.kind for entry in known.values()} == {"table", "figure", "claim", "beyond"}
    assert {name for name in known if known[name].kind == "claim"} == claims().keys()
    assert [*experiments.experiments_behind(["table4", "fab-alone", "table7"])] == ["table4", "table7"]
    assert {*experiments.experiments_behind(["all"])} == {each for entry in known.values() for each in entry.experiments}
    assert {*experiments.experiments_behind(["all"])} <= paper.experiments().keys()
    assert [*experiments.experiments_behind(["calibration"])] == ["calibration"]
    refused(experiments.experiments_behind, ["tabel3"], words=["did you mean table3"])
    refused(experiments.experiments_behind, [], words=["name must be given"])


@pytest.mark.parametrize(
    ("name", "rows", "words"),
    [
        ("improve", None, "`DRQ shift` counts as better"),
        ("improve-augment", None, "| cifar10-l2 | DRQ shift | "),
        ("improve-attacked", attacked(100, 60), " | survives | "),
        ("redteam-linf", attacked(60, 60), " | vanishes | "),
        ("peers", answers({"standard": 100, "DRQ linf": 120}), "| DRQ linf | 60.00 | "),
        *((name, answers({"standard": 100, "DRQ": 120}), " | DRQ | 60.00 [") for name in experiments.BEYOND["networks"][:-1]),
        ("ball-gate", answers({"standard": 100, "DRQ linf": 120}), " | DRQ linf | 60.00 ["),
        ("redteam-networks", attacked(60, 60), " | vanishes | "),
        ("redteam-views", attacked(60, 60), " | vanishes | "),
    ],
)
def test_every_experiment_alone_shows_what_it_found(name, rows, words, tmp_path):
    """As ``drq reproduce NAME`` prints it."""
    record = kept_records.condense(run(tmp_path / "run", gaining() if rows is None else rows, name))
    text = printout.format_record(record)
    assert text.startswith("### Made up")
    assert words in text
    assert f"`drq reproduce {name}`: " in text
