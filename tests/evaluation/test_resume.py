"""A run that was stopped, however it was stopped, goes on where it was: nothing is lost, doubled or computed twice."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from polars.testing import assert_frame_equal
from testbed.layouts import cifar10
from testbed.refusals import refused
from torch import nn
from torch.utils.data import TensorDataset

import drq
from drq import Run, Spec
from drq.evaluation import loop
from drq.evaluation.engines import Local, Outcome
from drq.evaluation.plan import Shard
from drq.evaluation.records import UNTIMED
from drq.evaluation.stage import Provision
from drq.evaluation.writer import DRAFT, Writer

with torch.random.fork_rng():
    torch.manual_seed(0)
    MODEL, OTHER = (nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).eval() for _ in range(2))
    DATA = TensorDataset(torch.rand(8, 1, 2, 2), torch.arange(8) % 3)
FEW = {"norm": "linf", "radius": 0.1, "explore": drq.Gradient(2), "quantify": drq.Gradient(2)}


def ours(**changes: object) -> Spec:
    given = {"models": {"mine": MODEL}, "data": {"mine": DATA}, "defences": {"standard": {}, "drq": FEW}, "shard": 3}
    return Spec(**given | {"threats": {"clean": None, "noise": "gaussian_noise"}, "keep_images": 5} | changes)


SHORT = ours(threats={"clean": None}, defences={"standard": {}}, shard=2, limit=4)


def same(run: Run, expected: Run) -> None:
    """Equal in every column but the seconds, and in every image."""
    assert_frame_equal(run.records.select(UNTIMED), expected.records.select(UNTIMED), check_exact=True)
    for task in range(len(expected.about["tasks"])):
        assert np.array_equal(run.images(task), expected.images(task))


def files(run: Path) -> dict[str, bytes]:
    """Every file of a run but the lock and the history."""
    found = {str(each.relative_to(run)): each for each in run.rglob("*") if each.is_file()}
    return {name: each.read_bytes() for name, each in found.items() if name not in (".lock", "history.jsonl")}


class Counting(Local):
    """Remembers what it judged, and is interrupted before the shard after so many."""

    def __init__(self, stop: int = 1000) -> None:
        self.judged: list[str] = []
        self.stop = stop

    def run(self, provision: Provision, shards: Iterable[Shard]) -> Iterator[Outcome]:
        for shard, outcome in super().run(provision, shards):
            if len(self.judged) == self.stop:
                raise KeyboardInterrupt
            self.judged.append(shard.key)
            yield shard, outcome


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch):
    """Evaluate with a counting engine, which comes back with the run; None where it was interrupted."""

    def evaluate(spec: Spec, out: Path, stop: int = 1000) -> tuple[Run | None, list[str]]:
        engine = Counting(stop)
        with monkeypatch.context() as patch:
            patch.setattr(loop, "chosen_engine", lambda *_: engine)
            try:
                return drq.evaluate(spec, out), engine.judged
            except KeyboardInterrupt:
                return None, engine.judged

    return evaluate


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return drq.evaluate(ours(), tmp_path_factory.mktemp("whole") / "run")


@pytest.mark.parametrize("stops", [[0], [1], [2], [3], [5], [1, 1, 1, 1, 1], [2, 0, 3]])
def test_a_stopped_run_goes_on(stops: list[int], counted, whole: Run, tmp_path: Path) -> None:
    counts = {"0": 3, "3": 3, "6": 2}  # samples of a shard, by the last digit of its key
    judged: list[str] = []
    samples: list[int] = []
    for stop in stops:
        run, some = counted(ours(), tmp_path, stop)
        assert run is None
        assert len(some) == stop
        judged += some
        samples.append(sum(counts[key[-1]] for key in some))
        assert Run.open(tmp_path).records.height == 2 * sum(samples)
    run, rest = counted(ours(), tmp_path)
    assert sorted(judged + rest) == [f"{task:04d}-{first:07d}" for task in (0, 1) for first in (0, 3, 6)]  # each once
    same(run, whole)
    assert [each["samples"] for each in run.history] == [*samples, 16 - sum(samples)]


def test_a_finished_run_computes_nothing(counted, whole: Run, tmp_path: Path) -> None:
    shutil.copytree(whole.path, tmp_path / "run")
    before = files(tmp_path / "run")
    run, judged = counted(ours(), tmp_path / "run")
    assert judged == []
    assert files(tmp_path / "run") == before
    same(run, whole)
    heard: list = []
    drq.evaluate(ours(), tmp_path / "run", tell=heard.append)
    assert [each.what for each in heard] == ["start", "done"]
    assert heard[0].text == "16 of 16 samples are there already"
    assert run.about["created"] == whole.about["created"]


def test_what_no_record_depends_on_may_change(counted, whole: Run, tmp_path: Path) -> None:
    shutil.copytree(whole.path, tmp_path / "run")
    run, judged = counted(ours(title="Another", device="cpu"), tmp_path / "run")
    assert judged == []
    assert (run.about["title"], run.about["created"]) == ("Another", whole.about["created"])


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"seed": 1}, ["seed was 0, is 1"]),
        ({"shard": 4}, ["shard was 3, is 4"]),
        ({"limit": 5}, ["limit was null, is 5"]),
        ({"defences": {"standard": {}, "drq": {**FEW, "alpha": 0.2}}}, ["defences.drq.alpha was absent, is 0.2"]),
        ({"threats": {"noise": "gaussian_noise"}}, ["threats.clean was {", "is absent"]),
        ({"models": {"mine": OTHER}}, ["the content of mine was", "is"]),
        ({"data": {"mine": TensorDataset(*(each[:7] for each in DATA.tensors))}}, ["the content of mine was"]),
    ],
    ids=["seed", "shard", "limit", "defence", "threat", "weights", "images"],
)
def test_a_changed_spec_is_refused_with_the_difference(
    changes: dict, told: list[str], whole: Run, counted, tmp_path: Path
) -> None:
    """Whether the run is finished or not; and nothing of it changes."""
    shutil.copytree(whole.path, tmp_path / "whole")
    counted(ours(), tmp_path / "half", stop=2)
    for name in ("whole", "half"):
        before = files(tmp_path / name)
        words = ["spec must be that of the run in", str(tmp_path / name), *told, "--out"]
        refused(drq.evaluate, ours(**changes), tmp_path / name, words=words)
        assert files(tmp_path / name) == before


def test_many_differences_are_cut_short(whole: Run) -> None:
    changes = {"seed": 1, "limit": 2, "threads": 2, "rounding": False, "victim": "defence", "precision": "bfloat16", "name": "x"}
    refused(drq.evaluate, ours(**changes), whole.path, words=["; and ", " more)"])


def test_a_run_without_rows_may_change_its_spec(counted, tmp_path: Path) -> None:
    """A mistake that comes to light with the first shard can be mended in place."""
    bad = ours(defences={"drq": {**FEW, "classes": 9}})
    refused(drq.evaluate, bad, tmp_path, words=["mine on mine, clean: classes must be at most 3, the model's classes, got 9"])
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "0000-0000000.npz").write_bytes(b"of a crash")
    run, _ = counted(ours(keep_images=0), tmp_path)
    assert run.records.height == 32
    assert run.images(0).shape == (0,)


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


def test_without_polars_rows_stay_in_parts(counted, whole: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "polars", None)
        run, judged = counted(ours(), tmp_path)
        refused(lambda: run.records, words=["polars must be installed for records", "[report]"])
        assert len(run.parts()) == len(judged) == 6
        assert counted(ours(), tmp_path)[1] == []
    assert not (tmp_path / "records").exists()
    same(run, whole)
    run, judged = counted(ours(), tmp_path)
    assert (judged, run.parts(), len(list((tmp_path / "records").iterdir()))) == ([], [], 2)
    same(run, whole)


MIXED = {
    "groups": [
        {"models": ["digits"], "data": ["digits"]},
        {"models": ["cifar10-small", "file:mine.safetensors?arch=wrn_28_2_swish&classes=10"], "data": ["cifar10"]},
    ],
    "defences": {"standard": {}},
    "limit": 2,
    "shard": 1,
}


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place for models and data in which there is nothing yet."""
    monkeypatch.setenv("DRQ_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("DRQ_DATA", str(tmp_path / "data"))
    (tmp_path / "models").mkdir()
    return tmp_path


def test_what_is_missing_is_said_and_added_when_it_appears(counted, empty: Path) -> None:
    heard: list = []
    run = drq.evaluate(MIXED, empty / "run", tell=heard.append)
    told = [each.text for each in heard if each.what == "missing"]
    assert [each.partition(":")[0] for each in told] == ["data cifar10", "model file"]
    assert "DRQ_DATA" in told[0]
    assert "DRQ_MODELS" in told[1]
    assert set(run.records["model"]) == {"digits"}
    assert [each["what"].partition(":")[0] for each in run.about["missing"]] == ["data cifar10", "model file"]
    assert [each["images"] is None for each in run.about["tasks"]] == [False, True, True]

    cifar10(empty / "data")
    run, judged = counted(Spec.of(MIXED), empty / "run")
    assert judged == ["0001-0000000", "0001-0000001"]
    assert [each["what"] for each in run.about["missing"]] == ["model file:mine.safetensors?arch=wrn_28_2_swish&classes=10"]

    weights = Path(drq.models.__file__).parent / "cifar10-small.safetensors"
    shutil.copy(weights, empty / "models" / "mine.safetensors")
    run, judged = counted(Spec.of(MIXED), empty / "run")
    assert judged == ["0002-0000000", "0002-0000001"]
    assert run.about["missing"] == []
    assert run.records.height == 6
    same(run, drq.evaluate(MIXED, empty / "undisturbed"))
    assert [each["samples"] for each in run.history] == [2, 2, 2]

    shutil.rmtree(empty / "data")  # what goes away again does not take its rows along, nor what is known of it
    (empty / "models" / "mine.safetensors").rename(empty / "models" / "elsewhere")
    run, judged = counted(Spec.of(MIXED), empty / "run")
    assert judged == []
    assert run.records.height == 6
    changed = bytearray(weights.read_bytes())
    (empty / "models" / "mine.safetensors").write_bytes(changed.replace(b"contents_sha256", b"contents_sha257"))
    cifar10(empty / "data")
    refused(drq.evaluate, MIXED, empty / "run", words=["the content of file:mine.safetensors", "was", "is"])


def test_nothing_is_written_where_everything_is_missing(empty: Path) -> None:
    table = {**MIXED, "groups": MIXED["groups"][1:]}
    refused(drq.evaluate, table, empty / "run", words=["data cifar10: ", "; model file:mine"])
    assert not (empty / "run").exists()


BARE = """
import sys
blocked = ["polars", "pandas", "pyarrow", "matplotlib", "ray", "rich", "typer", "sklearn", "scipy", "PIL", "foolbox"]
sys.modules.update(dict.fromkeys(blocked))
import torch, drq
from torch.utils.data import TensorDataset
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 3)).eval()
for parameter in model.parameters():
    parameter.data = torch.linspace(-1, 1, parameter.numel()).view(parameter.shape)
data = TensorDataset(torch.linspace(0, 1, 32).view(8, 1, 2, 2), torch.arange(8) % 3)
attack = drq.threats.PGD("linf", 0.1, 2)
spec = drq.Spec(models={"mine": model}, data={"mine": data}, threats={"clean": None, "PGD": attack}, shard=3, keep_images=2)
run = drq.evaluate(spec, sys.argv[1])
print(len(run.parts()), len(run.images(1)), run.history[-1]["samples"])
"""


@pytest.mark.slow
def test_the_loop_needs_torch_numpy_and_safetensors_alone(tmp_path: Path) -> None:
    """A bare machine leaves parts, which read as records where polars is installed."""
    for samples in (16, 0):
        done = subprocess.run([sys.executable, "-c", BARE, str(tmp_path)], capture_output=True, text=True, timeout=300)
        assert (done.stdout.split(), done.stderr) == (["6", "2", str(samples)], "")
    assert Run.open(tmp_path).records.height == 32


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
