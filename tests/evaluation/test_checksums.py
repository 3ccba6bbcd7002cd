"""Every file with rows has its sha256: what changed is refused, what a crash left without one is read whole first."""

import logging
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import polars as pl
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import drq
from drq import Run, Spec
from drq.evaluation import checksums, writer
from drq.evaluation import run as reading

with torch.random.fork_rng():
    torch.manual_seed(0)
    MODEL = nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).eval()
    DATA = TensorDataset(torch.rand(6, 1, 2, 2), torch.arange(6) % 3)
SPEC = Spec(models={"mine": MODEL}, data={"mine": DATA}, defences={"standard": {}}, threats={"clean": None, "fog": {}}, shard=2)


def stopped(out: Path, shards: int = 2) -> Run:
    """A run that was interrupted after so many shards."""
    seen = []

    def stop(event: object) -> None:
        seen.extend([event] * (event.what == "shard"))
        if len(seen) == shards:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        drq.evaluate(SPEC, out, tell=stop)
    return Run.open(out)


def agreed(run: Path) -> list[str]:
    """What ``sha256sum`` finds whole; it finds nothing else."""
    done = subprocess.run(["sha256sum", "--strict", "-c", "sha256sums"], cwd=run, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return [line.removesuffix(": OK") for line in done.stdout.splitlines()]


def told(call: Callable[[], object]) -> str:
    with pytest.raises(drq.InputError) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_sha256sum_agrees_at_every_moment(tmp_path: Path) -> None:
    found = []
    drq.evaluate(SPEC, tmp_path, tell=lambda event: found.append(agreed(tmp_path) if event.what == "shard" else []))
    parts = [[f"parts/000{task}-000000{first}.npz" for first in (0, 2, 4)] for task in (0, 1)]
    first, second = (f"records/000{task}.parquet" for task in (0, 1))
    expected = [parts[0][:1], parts[0][:2], [first], [first, *parts[1][:1]], [first, *parts[1][:2]], [first, second]]
    assert [each for each in found if each] == expected
    assert agreed(tmp_path) == [first, second]


@pytest.mark.parametrize("place", [0, 200, -200])
def test_a_flipped_bit_in_parquet_is_refused(place: int, tmp_path: Path) -> None:
    """In one line that says the remedy, which works; whether it still reads as Parquet or not."""
    before = drq.evaluate(SPEC, tmp_path).records
    path = tmp_path / "records" / "0001.parquet"
    content = bytearray(path.read_bytes())
    content[place] ^= 4
    path.write_bytes(content)
    for call in (lambda: Run.open(tmp_path).records, lambda: drq.evaluate(SPEC, tmp_path)):
        message = told(call)
        assert message.startswith(str(path))
        assert message.endswith("delete that file, and the same drq evaluate computes its rows again")
    assert path.read_bytes() == content
    path.unlink()
    again = drq.evaluate(SPEC, tmp_path).records
    assert again.drop("seconds").equals(before.drop("seconds"))
    assert agreed(tmp_path) == ["records/0000.parquet", "records/0001.parquet"]


def test_values_that_were_changed_are_refused(tmp_path: Path) -> None:
    """Which read well, so that nothing but the checksum tells."""
    run = drq.evaluate(SPEC, tmp_path)
    path = tmp_path / "records" / "0000.parquet"
    pl.read_parquet(path).with_columns(prediction=pl.col("label")).write_parquet(path)
    assert "0000.parquet must be what was written, with the sha256" in told(lambda: run.records)
    assert "0000.parquet must be what was written" in told(lambda: drq.evaluate(SPEC, tmp_path))


def test_a_changed_part_is_never_made_parquet(tmp_path: Path) -> None:
    run = stopped(tmp_path / "run", 1)
    other = stopped(tmp_path / "other", 1)
    path = run.path / "parts" / "0000-0000000.npz"
    mine = path.read_bytes()
    shutil.copy(other.path / "parts" / path.name, path)  # of the same rows, at another speed
    assert "0000-0000000.npz must be what was written" in told(lambda: run.records)
    assert "0000-0000000.npz must be what was written" in told(lambda: drq.evaluate(SPEC, run.path))

    def vandal(event: object) -> None:
        if event.what == "shard" and event.done == 4:
            (other.path / "parts" / path.name).write_bytes(mine)

    assert "0000-0000000.npz must be what was written" in told(lambda: drq.evaluate(SPEC, other.path, tell=vandal))
    assert not (other.path / "records").exists()


def test_all_that_is_wrong_is_found(tmp_path: Path) -> None:
    run = stopped(tmp_path, 5)
    for name in ("records/0000.parquet", "parts/0001-0000002.npz"):
        (tmp_path / name).write_bytes(b"")
    found = {checksums.name(path): fault and str(fault) for path, fault in run.checked_files()}
    assert [*found] == ["records/0000.parquet", "parts/0001-0000000.npz", "parts/0001-0000002.npz"]
    assert found["parts/0001-0000000.npz"] is None
    assert "must be a whole Parquet file" in found["records/0000.parquet"]
    assert "must be a whole part of a run" in found["parts/0001-0000002.npz"]


@pytest.mark.parametrize("shards", [2, 3])
def test_a_file_that_a_crash_left_without_a_line_is_adopted(shards: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is computed again; a reader says it once. With three shards it is Parquet."""

    def add(run: Path, path: Path) -> None:
        if path.name == "0000-0000002.npz" and shards == 2:
            raise KeyboardInterrupt
        whole(run, path)

    def rewrite(_: Path, files: Iterable[Path]) -> None:
        if [*files]:
            raise KeyboardInterrupt

    whole = checksums.add
    with monkeypatch.context() as patch:
        patch.setattr(checksums, "add", add)
        patch.setattr(checksums, "rewrite", rewrite)
        with pytest.raises(KeyboardInterrupt):
            drq.evaluate(SPEC, tmp_path)
    orphan = "parts/0000-0000002.npz" if shards == 2 else "records/0000.parquet"
    assert orphan not in checksums.known(tmp_path)
    content = (tmp_path / orphan).read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(writer.Writer, "compact", lambda *_: None)
        drq.evaluate(SPEC, tmp_path, only="clean")
    assert orphan in agreed(tmp_path)
    assert (tmp_path / orphan).read_bytes() == content
    assert drq.evaluate(SPEC, tmp_path).records["index"].to_list() == 2 * [*range(6)]
    assert sum(each["samples"] for each in Run.open(tmp_path).history[1:]) == (8 if shards == 2 else 6)


def test_a_file_without_a_line_is_read_whole_before_it_is_adopted(tmp_path: Path) -> None:
    """One bit in its middle, which its table of contents does not show."""
    drq.evaluate(SPEC, tmp_path)
    path = tmp_path / "records" / "0001.parquet"
    content = bytearray(path.read_bytes())
    start = content.index(b"\x15", 4)  # the header of a page
    content[start : start + 8] = bytes(8)
    path.write_bytes(content)
    (tmp_path / checksums.NAME).unlink()
    assert "0001.parquet must be a whole Parquet file" in told(lambda: drq.evaluate(SPEC, tmp_path))
    assert not (tmp_path / checksums.NAME).exists()


def test_lines_that_a_crash_cut_off_and_lines_of_files_that_went(tmp_path: Path) -> None:
    stopped(tmp_path, 2)
    lines = tmp_path / checksums.NAME
    whole = lines.read_text()
    for size in range(len(whole)):
        lines.write_text(whole[:size])
        assert checksums.known(tmp_path).items() <= dict(line.split("  ")[::-1] for line in whole.splitlines()).items()
        checksums.add(tmp_path, tmp_path / "parts" / "0000-0000002.npz")
        assert "parts/0000-0000002.npz" in checksums.known(tmp_path)
    lines.write_text(f"{'0' * 64}  parts/0000-0000000.npz\n{'1' * 64} *parts/0000-0000008.npz\n{whole}{whole[:70]}")
    assert checksums.known(tmp_path)["parts/0000-0000000.npz"] == whole[:64]  # of two lines the last counts
    assert Run.open(tmp_path).records.height == 4
    stopped(tmp_path, 1)
    assert agreed(tmp_path) == ["records/0000.parquet"]


def test_lines_put_together_from_two_machines(tmp_path: Path) -> None:
    """As the docs say: files are copied into one directory, lists of checksums and histories are joined."""
    for name in ("clean", "fog"):
        drq.evaluate(SPEC, tmp_path / name, only=name)
    for file in (tmp_path / "fog" / "records").iterdir():
        shutil.copy(file, tmp_path / "clean" / "records")
    with (tmp_path / "clean" / checksums.NAME).open("ab") as lines:
        lines.write((tmp_path / "fog" / checksums.NAME).read_bytes())
    run = drq.evaluate(SPEC, tmp_path / "clean")
    assert run.history[-1]["samples"] == 0
    assert run.records.height == 12
    assert agreed(run.path) == ["records/0000.parquet", "records/0001.parquet"]


def test_parquet_of_others_is_refused(tmp_path: Path) -> None:
    """Its rows must be those that the number of its task stands for."""
    run = drq.evaluate(SPEC, tmp_path)
    first, second = (tmp_path / "records" / f"000{task}.parquet" for task in (0, 1))
    shutil.copy(first, second)
    (tmp_path / checksums.NAME).unlink()
    assert "0001.parquet must hold the rows of this run that its name says" in told(lambda: drq.evaluate(SPEC, tmp_path))
    assert run.tasks[0]["row_hashes"] != run.tasks[1]["row_hashes"]


def test_a_reader_says_once_that_nobody_vouches(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = drq.evaluate(SPEC, tmp_path)
    reading.warn_unverified.cache_clear()
    assert run.records.height == 12
    assert caplog.text == ""
    (tmp_path / checksums.NAME).unlink()
    assert [run.records.height for _ in range(3)] == [12, 12, 12]
    assert [(each.levelno, each.getMessage().count(str(tmp_path))) for each in caplog.records] == [(logging.WARNING, 1)]
    drq.evaluate(SPEC, tmp_path)
    assert len(agreed(tmp_path)) == 2


def test_without_polars_nobody_vouches_for_parquet_that_was_not_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A damaged one is told there, too, where it has a line."""
    drq.evaluate(SPEC, tmp_path)
    path = tmp_path / "records" / "0001.parquet"
    content = path.read_bytes()
    monkeypatch.setitem(sys.modules, "polars", None)
    monkeypatch.setattr(reading, "find_spec", lambda _: None)
    monkeypatch.setattr(writer, "find_spec", lambda _: None)
    drq.evaluate(SPEC, tmp_path)
    path.write_bytes(content[:-1])
    assert "0001.parquet must be what was written" in told(lambda: drq.evaluate(SPEC, tmp_path))
    path.write_bytes(content)
    (tmp_path / checksums.NAME).unlink()
    drq.evaluate(SPEC, tmp_path)
    assert checksums.known(tmp_path) == {}
