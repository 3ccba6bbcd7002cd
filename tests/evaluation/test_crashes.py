"""A run that is killed, or whose disk fills up or is damaged: what is there is whole, and it goes on."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from testbed.refusals import refused
from testbed.resumed import files, ours, same

import drq
from drq import Run
from drq.evaluation.records import UNTIMED
from drq.evaluation.writer import DRAFT, Writer

SHORT = ours(threats={"clean": None}, defences={"standard": {}}, shard=2, limit=4)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return drq.evaluate(ours(), tmp_path_factory.mktemp("whole") / "run")


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return drq.evaluate(SHORT, tmp_path_factory.mktemp("short") / "run")


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
def test_a_crash_at_any_step_of_writing(late: bool, short: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Interrupted before or after every step that touches the disk, one after the other, until none is left."""
    steps = {name: getattr(os, name) for name in ("fsync", "replace", "unlink")}
    for number in range(100):
        out, taken = tmp_path / str(number), 0

        def step(name: str, *arguments: object, number: int = number, **options: object) -> None:
            nonlocal taken
            taken += 1
            if taken == number + 1 and not late:
                raise KeyboardInterrupt
            try:
                steps[name](*arguments, **options)
            finally:
                if taken == number + 1:
                    raise KeyboardInterrupt

        with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
            for name in steps:
                patch.setattr(os, name, partial(step, name))
            drq.evaluate(SHORT, out)
            break
        same(drq.evaluate(SHORT, out), short)
        assert not [*out.glob("parts/*"), *out.rglob(DRAFT)]
    assert number > 15


def test_a_disk_that_is_full_at_any_moment(short: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One line each time, until there is room; what was written before is not written again."""
    flush, written = os.fsync, 0

    def full(handle: int) -> None:
        nonlocal written
        written += 1
        if written > 3:  # run.json, images and rows of one shard, or one Parquet file
            raise OSError(28, os.strerror(28))
        flush(handle)

    monkeypatch.setattr(os, "fsync", full)
    for _ in range(2):
        written = 0
        refused(
            drq.evaluate, SHORT, tmp_path, words=["out must have room", str(tmp_path), "No space left", "rows so far are safe"]
        )
        assert not list(tmp_path.rglob(DRAFT))
    written = 0  # and once more: run.json, one Parquet file, the checksums
    same(drq.evaluate(SHORT, tmp_path), short)


def test_a_crash_between_parquet_and_the_removal_of_parts(counted, whole: Run, monkeypatch, tmp_path: Path) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Writer, "compact", lambda *_: None)
        drq.evaluate(ours(), tmp_path / "run")
    shutil.copytree(tmp_path / "run" / "parts", tmp_path / "copy")
    drq.evaluate(ours(), tmp_path / "run")
    assert not list((tmp_path / "run" / "parts").iterdir())
    for path in list((tmp_path / "copy").iterdir())[1:]:
        shutil.copy(path, tmp_path / "run" / "parts")
    same(Run.open(tmp_path / "run"), whole)  # nothing is doubled
    run, judged = counted(ours(), tmp_path / "run")
    same(run, whole)
    assert judged == []
    assert not list((tmp_path / "run" / "parts").iterdir())


def test_a_damaged_part_is_told_before_anything_is_computed(counted, whole: Run, tmp_path: Path) -> None:
    counted(ours(), tmp_path, stop=2)
    path = tmp_path / "parts" / "0000-0000003.npz"
    path.write_bytes(path.read_bytes()[:-9])
    before = files(tmp_path)
    refused(drq.evaluate, ours(), tmp_path, words=[str(path), "must be a whole part of a run", "delete that file"])
    refused(lambda: Run.open(tmp_path).records, words=[str(path)])
    assert files(tmp_path) == before
    path.unlink()
    run, judged = counted(ours(), tmp_path)
    assert judged[0] == "0000-0000003"
    assert "0000-0000000" not in judged
    same(run, whole)


SLOWED = """
import io, os, sys, time
import numpy as np
import drq

def said(text):
    print(text, flush=True)
    time.sleep(float(sys.argv[2]))

whole, replace = np.savez_compressed, os.replace

def half(file, **arrays):
    content = io.BytesIO()
    whole(content, **arrays)
    file.write(content.getvalue()[: len(content.getvalue()) // 2])
    file.flush()
    said("half written")
    file.write(content.getvalue()[len(content.getvalue()) // 2 :])

def late(source, target):
    said("written")
    replace(source, target)
    said("replaced")

np.savez_compressed, os.replace = half, late
table = {"models": ["digits"], "data": ["digits"], "limit": 24, "shard": 3, "keep_images": 9, "seed": 1}
table |= {"threats": {"clean": {}, "noise": {"threat": "gaussian_noise"}}, "defences": {"standard": {}, "drq": {}}}
for name in ("explore", "quantify"):
    table["defences"]["drq"][name] = {"search": "Gradient", "steps": 3}
drq.evaluate(table, sys.argv[1])
print("done", flush=True)
"""


@pytest.mark.slow
def test_kills_at_any_moment_lose_and_double_nothing(tmp_path: Path) -> None:
    """SIGKILL after some events, most of them in the middle of writing; the moments come from a seed."""
    script = tmp_path / "slowed.py"
    script.write_text(SLOWED)
    subprocess.run([sys.executable, script, tmp_path / "whole", "0"], check=True, capture_output=True, timeout=300)
    draws, kills, halves, out = random.Random(11), [], 0, tmp_path / "run"
    for _ in range(40):
        work = subprocess.Popen([sys.executable, script, out, "0.02"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = ""
        for _ in range(draws.randrange(1, 25)):
            line = work.stdout.readline().strip()
            if line in ("done", ""):
                break
        if line == "done":
            work.communicate(timeout=60)
            break
        time.sleep(draws.choice([0, 0, 0.01, 0.05]))
        work.send_signal(signal.SIGKILL)
        errors = work.communicate(timeout=60)[1]
        assert (work.returncode, errors) == (-signal.SIGKILL, "")
        halves += bool(list(out.rglob(DRAFT)))
        kills.append(line)
        Run.open(out).records if (out / "run.json").exists() else None  # can be read at any moment
    print(f"seed 11: {len(kills)} kills, {halves} with a file half written: {kills}")
    assert line == "done"
    assert len(kills) >= 6
    assert halves >= 3
    same(Run.open(out), Run.open(tmp_path / "whole"))
    assert not [*out.glob("parts/*"), *out.rglob(DRAFT)]


@pytest.mark.slow
def test_a_second_process_is_refused_while_the_first_works(tmp_path: Path) -> None:
    (tmp_path / "slowed.py").write_text(SLOWED)
    first = subprocess.Popen([sys.executable, tmp_path / "slowed.py", tmp_path / "run", "0.5"], stdout=subprocess.PIPE, text=True)
    try:
        assert first.stdout.readline() == "written\n"
        table = {"models": ["digits"], "data": ["digits"], "limit": 2, "defences": {"standard": {}}}
        refused(drq.evaluate, table, tmp_path / "run", words=["out must not be in use", f"written by process {first.pid} on"])
    finally:
        first.kill()
        first.communicate()


FILLED = """
import sys, drq
table = {"models": ["digits"], "data": ["digits"], "limit": 120, "shard": 4, "keep_images": True, "defences": {"standard": {}}}
table["threats"] = {"clean": {}, "noise": {"threat": "gaussian_noise"}}
if len(sys.argv) > 2:
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    print(drq.evaluate(table, sys.argv[1]).records.height)
except drq.InputError as error:
    print(error)
    sys.exit(2)
"""


def filled(*arguments: object) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", FILLED, *map(str, arguments)], capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_a_disk_that_fills_up(tmp_path: Path) -> None:
    """A small file system of its own where that can be had, that grows once it is full; else files that may not grow."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "none", disk], capture_output=True).returncode == 0
    try:
        full = filled(disk / "run") if mounted else filled(disk / "run", 5000)
        (line,) = full.stdout.splitlines()
        assert (full.returncode, full.stderr) == (2, "")
        assert line.startswith(f"out must have room, got '{disk / 'run'}'")
        kept = Run.open(disk / "run").records.height
        if mounted:
            assert 0 < kept < 240
            assert filled(disk / "run").returncode == 2  # there still is none
            subprocess.run(["mount", "-o", "remount,size=10m", disk], check=True)
        again, whole = filled(disk / "run"), filled(tmp_path / "whole")
        assert (again.stdout, whole.stdout) == ("240\n", "240\n")
        assert Run.open(disk / "run").history[-1]["samples"] <= 240 - kept
        same(Run.open(disk / "run"), Run.open(tmp_path / "whole"))
    finally:
        if mounted:
            subprocess.run(["umount", disk], check=True)


def test_files_of_others_are_refused(whole: Run, tmp_path: Path) -> None:
    """A part is trusted for what it holds, not for its name."""
    half = tmp_path / "half"

    def stopped(event) -> None:
        if event.what == "shard":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        drq.evaluate(ours(), half, tell=stopped)
    (part,) = (half / "parts").iterdir()
    shutil.copy(part, half / "parts" / "0000-0000002.npz")  # at another place, as tools that synchronise folders leave them
    refused(drq.evaluate, ours(), half, words=["0000-0000002.npz must hold the rows of this run", "delete that file"])
    (half / "parts" / "0000-0000002.npz").unlink()
    other = tmp_path / "other"
    with pytest.raises(KeyboardInterrupt):
        drq.evaluate(ours(seed=9), other, tell=stopped)
    (foreign,) = (other / "parts").iterdir()
    shutil.copy(foreign, part)  # of another spec
    refused(drq.evaluate, ours(), half, words=[f"{part.name} must hold the rows of this run"])
    part.unlink()
    assert drq.evaluate(ours(), half).records.select(UNTIMED).equals(whole.records.select(UNTIMED))


def test_a_part_that_vanishes_is_not_baked_in(tmp_path: Path) -> None:
    def vandal(event) -> None:
        if event.what == "shard" and event.done < event.total:
            next((tmp_path / "parts").glob("[0-9]*")).unlink()

    refused(drq.evaluate, ours(threats={"clean": None}), tmp_path, words=["different rows", "the same command"], tell=vandal)
    assert drq.evaluate(ours(threats={"clean": None}), tmp_path).records["index"].n_unique() == 8
