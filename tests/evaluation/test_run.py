"""The directory of a run: what is in its files, who may write to it, and what is said of files that are damaged."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from testbed.refusals import refused
from testbed.rows import made_up
from torch import nn
from torch.utils.data import TensorDataset

import drq
from drq import Run, Spec
from drq.evaluation.growth import differences
from drq.evaluation.plan import Shard, tasks
from drq.evaluation.records import COLUMNS, NOTHING, write_part
from drq.evaluation.writer import Writer, disk_errors, open_run

with torch.random.fork_rng():
    torch.manual_seed(0)
    MODEL = nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).eval()
    DATA = TensorDataset(torch.rand(6, 1, 2, 2), torch.arange(6) % 3)
OURS = {"models": {"mine": MODEL}, "data": {"mine": DATA}, "defences": {"standard": {}}, "shard": 2}
SPEC = Spec(**OURS, threats={"clean": None, "fog": {}})


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return drq.evaluate(SPEC, tmp_path / "run")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, ["run must be the directory of a run", "drq evaluate makes one"]),
        (b"", ["run must have a run.json that says what was evaluated", "copy"]),
        (b'{"spec": {', ["run must have a run.json"]),
        (b"\xff\xfe", ["run must have a run.json"]),
        (b"[]", ["run must have a run.json"]),
        (b'{"title": "x"}', ["run must have a run.json"]),
    ],
)
def test_what_is_no_run(content: bytes | None, words: list[str], run: Run) -> None:
    before = run.records
    said = (run.path / "run.json").read_bytes()
    (run.path / "run.json").unlink() if content is None else (run.path / "run.json").write_bytes(content)
    refused(Run.open, run.path, words=[*words, str(run.path)])
    refused(drq.evaluate, SPEC, run.path, words=["out must be a new directory"] if content is None else words)
    (run.path / "run.json").write_bytes(said)
    assert drq.evaluate(SPEC, run.path).records.equals(before)


def test_no_directory_is_no_run(tmp_path: Path) -> None:
    refused(Run.open, tmp_path / "nothing", words=["run must be the directory of a run", "No such file"])


def test_a_truncated_parquet_file_is_told_and_made_again(run: Run) -> None:
    before, path = run.records, run.path / "records" / "0001.parquet"
    whole = path.read_bytes()
    for size in (0, 3, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        words = [str(path), "must be a whole Parquet file", "delete that file"]
        refused(lambda: run.records, words=words)
        refused(drq.evaluate, SPEC, run.path, words=words)
        assert path.read_bytes() == whole[:size]
    path.unlink()
    again = drq.evaluate(SPEC, run.path)
    assert again.history[-1]["samples"] == 6
    assert again.records.drop("seconds").equals(before.drop("seconds"))


def test_parquet_files_of_another_version(run: Run) -> None:
    run.records.drop("cosine").write_parquet(run.path / "records" / "0001.parquet")
    words = ["0001.parquet must have the columns of schema_version", "version of drq"]
    refused(lambda: run.records, words=words)
    refused(drq.evaluate, SPEC, run.path, words=words)


def test_damaged_images(tmp_path: Path) -> None:
    run = drq.evaluate(Spec(**OURS, keep_images=5), tmp_path / "run")
    assert run.images(0).shape == (5, 1, 2, 2)
    assert run.images(7).shape == (0,)
    (run.path / "images" / "0000-0000002.npz").write_bytes(b"PK")
    refused(run.images, 0, words=["0000-0000002.npz must be a whole part", "no rows are"])


def test_records_of_a_run_that_is_half_done(run: Run) -> None:
    """Parquet files and parts together, in the order of the plan, and nothing twice."""
    whole = run.records
    assert whole["threat"].to_list() == 6 * ["clean"] + 6 * ["fog"]
    (run.path / "records" / "0000.parquet").unlink()
    for first in (4, 0, 2):
        rows = whole.filter(threat="clean").slice(first, 2)
        columns = {name: NOTHING[each.kind] for name, each in COLUMNS.items()}
        parts = {name: rows[name].fill_null(nothing).to_numpy() for name, nothing in columns.items()}
        write_part(run.path / "parts" / f"0000-{first:07d}.npz", parts)
        write_part(run.path / "parts" / f"0001-{first:07d}.npz", parts)  # as after a crash before it was removed
    (run.path / "parts" / "notes.txt").write_text("of somebody else")
    assert run.records.equals(whole)
    assert [key for key, _ in run.parts()] == [f"{task:04d}-{first:07d}" for task in (0, 1) for first in (0, 2, 4)]


def test_a_line_that_a_crash_cut_off_hides_no_other(run: Run) -> None:
    assert len(run.history) == 1
    with (run.path / "history.jsonl").open("a") as file:
        file.write('{"started": "2022-')
    drq.evaluate(SPEC, run.path)
    drq.evaluate(SPEC, run.path)
    assert [each["samples"] for each in run.history] == [12, 0, 0]
    (run.path / "history.jsonl").unlink()
    assert run.history == []


def test_drafts_are_cleared_away_and_nothing_else(run: Run) -> None:
    before = run.records
    drafts = [".run.json", "parts/.0000-0000000.npz", "records/.0000.parquet", "images/.0000-0000000.npz"]
    others = [".notes.txt", "parts/.keep.me", "figures/.plot.png", "plain.txt"]
    paths = [run.path / f"{each}.{'0a' * 16}" for each in drafts] + [run.path / each for each in others]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        path.write_text("half")
    assert drq.evaluate(SPEC, run.path).records.equals(before)
    assert [path.exists() for path in paths] == 4 * [False] + 4 * [True]


def test_directories_of_others_are_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("dear")
    refused(drq.evaluate, SPEC, tmp_path, words=["out must be a new directory or that of a run", str(tmp_path), "choose another"])
    assert [each.name for each in tmp_path.iterdir()] == ["thesis.tex"]
    refused(drq.evaluate, SPEC, tmp_path / "thesis.tex", words=["out must be a directory that can be written", "File exists"])
    assert (tmp_path / "thesis.tex").read_text() == "dear"


def test_a_crash_before_the_first_file_does_not_make_a_stranger(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("process 1 on there")
    (tmp_path / f".run.json.{'0123456789abcdef' * 2}").write_text("{")
    assert drq.evaluate(SPEC, tmp_path).records.height == 12
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        ".lock",
        "history.jsonl",
        "parts",
        "records",
        "run.json",
        "sha256sums",
    ]


def test_two_writers(run: Run) -> None:
    """The second is refused while the first works, and welcome afterwards."""
    before = run.records
    with open_run(run.path, run.about):
        words = ["out must not be in use", str(run.path), f"process {os.getpid()} on", "wait for it"]
        refused(drq.evaluate, SPEC, run.path, words=words)
        assert run.records.equals(before)  # who only reads is not kept out
    assert drq.evaluate(SPEC, run.path).records.equals(before)


HOLDER = """
import fcntl, sys, time
file = open(sys.argv[1], "a+")
fcntl.flock(file, fcntl.LOCK_EX)
file.truncate(0)
file.write("process 77 on another")
file.flush()
print("held", flush=True)
time.sleep(600)
"""


def test_a_lock_ends_with_its_process(run: Run) -> None:
    """However it ends: the file stays, and blocks nobody."""
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(run.path / ".lock")], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "held\n"
        refused(drq.evaluate, SPEC, run.path, words=["out must not be in use", "written by process 77 on another"])
    finally:
        holder.kill()
        holder.communicate()
    assert (run.path / ".lock").read_text() == "process 77 on another"
    assert drq.evaluate(SPEC, run.path).records.height == 12


@pytest.fixture
def closed(tmp_path: Path):
    """A directory that nobody can write to, not even root, and a run in it."""
    folder = tmp_path / "closed"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "none", str(folder)], capture_output=True).returncode == 0
    if not mounted and os.geteuid() == 0:
        pytest.skip("a mount of its own is not to be had here, and root may write to anything else")
    drq.evaluate(SPEC, folder / "run")
    try:
        if mounted:
            subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        else:
            for each in (folder, folder / "run", folder / "run" / ".lock"):
                each.chmod(each.stat().st_mode & ~0o222)
        yield folder
    finally:
        if mounted:
            subprocess.run(["umount", str(folder)], check=True)
        else:
            for each in (folder, folder / "run", folder / "run" / ".lock"):
                each.chmod(0o755)


def test_a_directory_that_cannot_be_written(closed: Path) -> None:
    words = ["out must be a directory that can be written", "change its rights"]
    refused(drq.evaluate, SPEC, closed / "new", words=[*words, str(closed / "new")])
    refused(drq.evaluate, SPEC, closed / "run", words=[*words, str(closed / "run")])
    assert Run.open(closed / "run").records.height == 12


@pytest.mark.parametrize(("number", "words"), [(28, "have room"), (122, "have room"), (27, "have room"), (30, "can be written")])
def test_errors_of_the_disk_are_told_apart(number: int, words: str, tmp_path: Path) -> None:
    def fail() -> None:
        with disk_errors(tmp_path):
            raise OSError(number, os.strerror(number))

    refused(fail, words=[f"out must {words}" if "room" in words else words, os.strerror(number), str(tmp_path)])


def test_a_shard_is_there_when_its_rows_are(run: Run) -> None:
    """Images are written first: they alone do not make it done."""
    first, second = tasks(SPEC)
    writer = Writer(run)
    assert writer.has(Shard(first, 0, 2))
    (run.path / "records" / "0001.parquet").unlink()
    (run.path / "images").mkdir()
    (run.path / "images" / "0001-0000002.npz").write_bytes(b"")
    writer = Writer(run)
    assert not writer.has(Shard(second, 2, 4))
    writer.put(Shard(second, 2, 4), made_up(2), np.zeros((2, 1, 2, 2)))
    assert writer.has(Shard(second, 2, 4))
    assert not writer.has(Shard(second, 0, 2))
    assert Writer(run).has(Shard(second, 2, 4))


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 3, "c": 2}}, ["a.b was 1, is 3"]),
        ({"a": 1}, {}, ["a was 1, is absent"]),
        ({}, {"a": None}, ["a was absent, is null"]),
        ({"a": [1, 2]}, {"a": [1, 3]}, ["a was [1, 2], is [1, 3]"]),
        ({"a": {"b": 1}}, {"a": "x"}, ['a was {"b": 1}, is "x"']),
        ({"a": 100 * "x"}, {"a": 1}, [f'a was "{59 * "x"}..., is 1']),
    ],
)
def test_differences_in_words(before: dict, now: dict, told: list[str]) -> None:
    assert list(differences(before, now)) == told
    assert list(differences(json.loads(json.dumps(before)), now)) == told


def test_kinds_of_columns(run: Run) -> None:
    kinds = {"str": pl.String, "int": pl.Int64, "float": pl.Float64, "bool": pl.Boolean}
    assert dict(run.records.schema) == {name: kinds[each.kind] for name, each in COLUMNS.items()}
    full = [name for name, each in COLUMNS.items() if not each.nullable]
    assert sum(run.records[name].null_count() for name in full) == 0
    assert all(not each.is_nan().any() for each in run.records if each.dtype == pl.Float64)
    assert all(math.isfinite(each) for each in run.records["logit_margin"])
