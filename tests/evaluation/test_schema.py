"""What was written under the first schema reads and goes on under the second, and no byte of it changes."""

import json
import logging
import shutil
import subprocess
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import drq
from drq.evaluation import run as reading
from drq.evaluation.records import COLUMNS, SCHEMA_VERSION, columns, read_part
from drq.models.weights import contents
from drq.reproduction import kept_records

OLD = Path(__file__).parent / "first_schema"
KEPT = Path(__file__).parents[2] / "results" / "paper"
NEWER = [name for name, column in COLUMNS.items() if column.since == 2]


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A copy whose model is that of this machine: digits are trained where they are asked for, and processors round otherwise."""
    reading.warn_unverified.cache_clear()
    run = Path(shutil.copytree(OLD, tmp_path / "run"))
    about = json.loads((run / "run.json").read_text())
    about["models"]["digits"] = contents(drq.load_model("digits").state_dict())
    (run / "run.json").write_text(json.dumps(about))
    return run


def test_the_columns_of_both_schemas() -> None:
    assert NEWER == ["view", "kept", "gate_margin", "nonfinite", "forward_passes", "row_hash"]
    assert [COLUMNS[name].kind for name in NEWER] == ["int", "bool", "float", "int", "int", "str"]
    assert [name for name in NEWER if not COLUMNS[name].nullable] == ["row_hash"]
    assert pl.read_parquet(OLD / "records" / "0000.parquet").columns == columns(1) == [x for x in COLUMNS if x not in NEWER]
    assert columns(2) == [*COLUMNS]


def test_a_run_of_the_first_schema_reads(old: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With null in what is newer, and all else as it lies in the files; that no checksum is there is said once."""
    records = drq.Run.open(old).records
    assert records.shape == (2 * 6 + 2 * 3, len(COLUMNS))
    assert {records[name].null_count() for name in NEWER} == {len(records)}
    assert set(records["schema_version"]) == {1}
    assert records[:12].select(columns(1)).equals(pl.read_parquet(old / "records" / "0000.parquet"))
    part = np.load(old / "parts" / "0001-0000000.npz")
    assert records[12:]["prediction"].to_list() == np.broadcast_to(part["prediction"], 6).tolist()
    assert drq.Run.open(old).records.equals(records)
    assert [each.levelno for each in caplog.records] == [logging.WARNING]
    assert "has files without a checksum, which are taken as they are" in caplog.text


def test_a_run_of_the_first_schema_goes_on(old: Path, caplog: pytest.LogCaptureFixture) -> None:
    """New rows are of the second schema, beside old ones in one Parquet file; afterwards all files are vouched for."""
    before, finished = drq.Run.open(old).records, (old / "records" / "0000.parquet").read_bytes()
    heard: list = []
    run = drq.evaluate(old, tell=heard.append)
    assert [each.text for each in heard if each.what == "begin"] == ["digits on digits, noise"]
    assert (old / "records" / "0000.parquet").read_bytes() == finished
    records = run.records
    late = (pl.col("threat") == "noise") & (pl.col("index") >= 3)
    assert records.filter(~late).sort("threat", "index", "defence").equals(before.sort("threat", "index", "defence"))
    new = records.filter(late)
    assert new.select("index", "defence").rows() == [(index, name) for name in ("standard", "DRQ") for index in (3, 4, 5)]
    assert set(new["schema_version"]) == {SCHEMA_VERSION}
    (task,) = [each for each in run.about["tasks"] if each["threat"] == "noise"]
    assert new["row_hash"].unique(maintain_order=True).to_list() == task["row_hashes"]
    assert set(new["spec_hash"]) == set(before["spec_hash"]) == {run.about["spec_hash"]} == {*run.about["spec_hashes"]}
    assert caplog.text.count("without a checksum") == 1
    done = subprocess.run(["sha256sum", "-c", "sha256sums"], cwd=old, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "records/0000.parquet: OK\nrecords/0001.parquet: OK\n")
    assert drq.evaluate(old).records.equals(records)
    assert run.images(1).shape == (2, 1, 8, 8)


def test_a_run_of_the_first_schema_grows(old: Path) -> None:
    before = drq.Run.open(old).records
    table = json.loads((old / "run.json").read_text())["source"] | {"limit": 7}
    table["threats"] = {"fog": {}, **table["threats"]}
    records = drq.evaluate(table, old).records
    assert len(records) == 3 * 7 * 2
    assert records[:12].equals(before[:12])
    assert records.select("threat", "defence", "index").is_duplicated().sum() == 0


def test_parts_of_the_first_schema_belong_by_the_hash_of_their_spec(old: Path) -> None:
    path = old / "parts" / "0001-0000000.npz"
    arrays = {**np.load(path)} | {"spec_hash": np.array("0" * 64)}
    np.savez_compressed(path, **arrays)
    assert set(read_part(path)["row_hash"]) == {""}
    with pytest.raises(drq.InputError, match=r"0001-0000000\.npz must hold the rows of this run that its name says"):
        drq.evaluate(old)


def test_kept_records_of_the_first_schema_read(caplog: pytest.LogCaptureFixture) -> None:
    """The committed ones: null in what is newer, small types as in new ones, and one note for the folder."""
    caplog.set_level(logging.INFO)
    kept_records.warn_unverified.cache_clear()
    for name in ("table4", "table3"):
        rows = kept_records.read_record(KEPT, name).rows
        assert pl.read_parquet(KEPT / f"{name}.parquet").columns == [each for each in rows.columns if each not in NEWER]
        assert {each: rows[each].null_count() for each in NEWER if each in rows.columns} == dict.fromkeys(NEWER[:-1], len(rows))
    assert [each.levelno for each in caplog.records] == [logging.INFO]


def test_kept_records_are_of_the_second_schema(old: Path, tmp_path: Path) -> None:
    """They stand beside those of the first, and say the sha256 of their rows."""
    made = kept_records.write_record(drq.evaluate(old), tmp_path)
    found = kept_records.read_record(tmp_path, "old")
    assert found.rows.equals(made.rows)
    assert found.about["schema_version"] == SCHEMA_VERSION
    path = tmp_path / "old.parquet"
    told = subprocess.run(["sha256sum", path], capture_output=True, text=True, check=True).stdout.split()[0]
    assert found.about["sha256"] == told
    assert pl.concat([kept_records.read_record(KEPT, "table4").rows.head(1), found.rows]).height == len(found.rows) + 1
    made.rows.with_columns(prediction=pl.col("prediction") + 1).write_parquet(path)
    with pytest.raises(drq.InputError, match=r"old\.parquet must have the sha256 in old\.json, got another: bring both"):
        kept_records.read_record(tmp_path, "old")
