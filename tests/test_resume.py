"""A run that was stopped, however it was stopped, goes on where it was: nothing is lost, doubled or computed twice."""

import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from layouts import cifar10
from refusals import refused
from torch import nn
from torch.utils.data import TensorDataset

import drq
from drq import Run, Spec
from drq.evaluation.engines import Local, Outcome
from drq.evaluation.judging import Provision
from drq.evaluation.plan import Shard
from drq.evaluation.records import UNTIMED
from drq.evaluation.run import DRAFT, Writer

LOOP = sys.modules["drq.evaluate"]  # the module; drq.evaluate is its function
with torch.random.fork_rng():
    torch.manual_seed(0)
    MODEL, OTHER = (nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).eval() for _ in range(2))
    DATA = TensorDataset(torch.rand(8, 1, 2, 2), torch.arange(8) % 3)
FEW = {"norm": "linf", "radius": 0.1, "explore": drq.Gradient(2), "quantify": drq.Gradient(2)}


def ours(**changes: object) -> Spec:
    given = {"models": {"mine": MODEL}, "data": {"mine": DATA}, "defences": {"standard": {}, "drq": FEW}, "shard": 3}
    return Spec(**given | {"threats": {"clean": None, "noise": "gaussian_noise"}, "keep_images": 5} | changes)


def same(run: Run, expected: Run) -> None:
    """Equal in every column but the seconds, and in every image."""
    assert run.records.select(UNTIMED).equals(expected.records.select(UNTIMED))
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
            patch.setattr(LOOP, "chosen_engine", lambda *_: engine)
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
    judged: list[str] = []
    for stop in stops:
        run, some = counted(ours(), tmp_path, stop)
        assert run is None
        assert len(some) == stop
        judged += some
        assert Run.open(tmp_path).records.height == 2 * sum({"0": 3, "3": 3, "6": 2}[key[-1]] for key in judged)
    run, rest = counted(ours(), tmp_path)
    judged += rest
    assert sorted(judged) == [f"{task:04d}-{first:07d}" for task in (0, 1) for first in (0, 3, 6)]  # each once
    same(run, whole)
    assert [each["samples"] for each in run.history] == [
        sum({"0": 3, "3": 3, "6": 2}[key[-1]] for key in each) for each in _cut(judged, stops)
    ]


def _cut(judged: list[str], stops: list[int]) -> list[list[str]]:
    edges = [sum(stops[:number]) for number in range(len(stops) + 1)]
    return [judged[first:last] for first, last in zip(edges, [*edges[1:], None], strict=True)]


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
        ({"threats": {"clean": None}}, ["threats.noise was {", "is absent"]),
        ({"models": {"mine": OTHER}}, ["the content of mine was", "is"]),
        ({"data": {"mine": TensorDataset(*(each[:7] for each in DATA.tensors))}}, ["mine had 8 images, has 7"]),
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


def test_a_crash_at_any_step_of_writing(whole: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Interrupted before and after every step that touches the disk, one after the other, until none is left."""
    steps = {name: getattr(os, name) for name in ("fsync", "replace", "unlink")}
    for late in (False, True):
        number = 0
        while True:
            out, left = tmp_path / f"{late}-{number}", number
            crashed = False

            def step(name: str, *arguments: object, late: bool = late, **options: object) -> None:
                nonlocal left, crashed
                if not late and left == 0:
                    left, crashed = -1, True
                    raise KeyboardInterrupt
                steps[name](*arguments, **options)
                left -= 1
                if late and left == -1 and not crashed:
                    crashed = True
                    raise KeyboardInterrupt

            with monkeypatch.context() as patch:
                for name in steps:
                    patch.setattr(os, name, lambda *arguments, name=name, **options: step(name, *arguments, **options))
                try:
                    drq.evaluate(ours(), out)
                except KeyboardInterrupt:
                    pass
            run = drq.evaluate(ours(), out)
            same(run, whole)
            assert not [*out.glob("parts/*"), *out.rglob(DRAFT)]
            shutil.rmtree(out)
            if not crashed:
                break
            number += 1
        assert number > 30


def test_a_disk_that_is_full_at_any_moment(whole: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One line each time, until there is room; what was written before is not written again."""
    flush, out = os.fsync, tmp_path / "run"
    for room in range(100):
        left = 2  # one file besides run.json, which is written each time

        def full(handle: int) -> None:
            nonlocal left
            if left == 0:
                raise OSError(28, os.strerror(28))
            left -= 1
            flush(handle)

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            try:
                run = drq.evaluate(ours(), out)
                break
            except drq.InputError:
                left = 1
                refused(
                    drq.evaluate, ours(), out, words=["out must have room", str(out), "No space left", "rows so far are safe"]
                )
    assert room > 8
    same(run, whole)


def test_a_crash_between_parquet_and_the_removal_of_parts(
    counted, whole: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
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


def test_what_is_missing_is_said_and_added_when_it_appears(counted, empty: Path, caplog: pytest.LogCaptureFixture) -> None:
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
