"""Kept records: those of the run, shortened, and what is told of them."""

import numpy as np
import polars as pl
from testbed.refusals import refused
from testbed.reproduced import run
from testbed.synthetic import records as made_up

from drq.evaluation.records import COLUMNS, DETAILS
from drq.report import tables
from drq.reproduction import kept_records, provenance


def test_times_that_others_spent_are_told(tmp_path):
    """Answers that took longer than the run were another's."""
    records = made_up(80, ["cifar10-linf"], threats={"clean": "clean"}, defences=("standard",))
    for name, seconds, told in (("alone", 0.04, "4 s; passes"), ("after", 0.05, "4 s with answers of another")):
        each = run(tmp_path / name, records.with_columns(seconds=pl.lit(seconds)), "table4")
        line = provenance.provenance("table4", kept_records.condense(each))
        assert told in line, line


def test_kept_records_are_those_of_the_run(tmp_path):
    records = made_up(50, ["cifar10-linf"], threats={"clean": "clean", "PGD": "PGD"})
    made = kept_records.write_record(run(tmp_path / "run", records, "table4"), tmp_path / "kept")
    found = kept_records.read_record(tmp_path / "kept", "table4")
    assert found.rows.equals(made.rows)
    assert found.rows.columns == [name for name in COLUMNS if name not in DETAILS]
    for name, column in COLUMNS.items():
        if name in DETAILS or name == "experiment":
            continue
        whole, short = records[name], found.rows[name]
        assert (whole.is_null() == short.is_null()).all(), name
        if column.kind == "float":
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
    rows = kept_records.write_record(run(tmp_path / "run", records, "figure4"), tmp_path).rows
    assert {name: set(rows[name]) for name in settings} == {name: {value} for name, value in settings.items()}


def test_what_is_told_of_a_record(tmp_path):
    records = made_up(50, ["a"], threats={"clean": "clean", "PGD": "PGD"})
    told = kept_records.write_record(run(tmp_path / "run", records, "table4"), tmp_path).about
    assert told["seconds"] == 3.5
    assert (told["timed"], told["samples"]) == (80, 100)  # of the rest nobody knows: its process was killed
    assert told["versions"] == {each: records[f"{each}_version"][0] for each in ("drq", "torch")}  # not of who reads it
    assert told["seed"] == 3
    assert told["passes"] == {"answers": 50 * 2 * (280 + 1), "threats": 50 * 101}  # once for both defences
    assert not told["quick"]  # it was a CPU
    twice = pl.concat([records, records.with_columns(victim=pl.lit("defence"))])
    assert kept_records.describe(run(tmp_path / "more", twice, "table4"))["passes"]["threats"] == 50 * 101 * 3


def test_what_is_no_record(tmp_path):
    assert kept_records.read_record(tmp_path, "table4") is None
    for name in ("table4.parquet", "table4.json"):
        (tmp_path / name).write_text("{}")
    refused(kept_records.read_record, tmp_path, "table4", words=["be a record", "drq reproduce table4"])
    pl.DataFrame({"index": [1]}).write_parquet(tmp_path / "table4.parquet")
    refused(kept_records.read_record, tmp_path, "table4", words=["have the columns of this version"])
    kept_records.write_record(run(tmp_path / "run", made_up(5), "table4"), tmp_path)
    (tmp_path / "table4.json").write_text("[]")
    refused(kept_records.read_record, tmp_path, "table4", words=["say what was evaluated"])
