"""A run grows with its spec: what is there stays byte for byte, and only what is new is computed."""

import os
import subprocess
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from polars.testing import assert_frame_equal
from torch import nn

import drq
from drq import Run, Spec, Trial
from drq.evaluation import checksums, engines
from drq.evaluation.plan import Shard
from drq.evaluation.records import UNTIMED
from drq.evaluation.resources import WorkerContext
from drq.evaluation.showcase import examples

with torch.random.fork_rng():
    torch.manual_seed(0)
    MODEL, OTHER = (nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).eval() for _ in range(2))
NOISE = drq.threats.Corruption("gaussian_noise")
FEW = {"norm": "linf", "radius": 0.1, "explore": drq.Gradient(2), "quantify": drq.Gradient(2)}
KEY = ["model", "data", "threat", "defence", "index"]
FREE = [name for name in UNTIMED if name != "spec_hash"]  # rows that were there are of a spec that was


def ours(**changes: object) -> Spec:
    given = {"models": {"mine": MODEL}, "data": ["digits"], "limit": 5, "shard": 3, "keep_images": 4}
    given |= {"threats": {"clean": None, "noise": "gaussian_noise"}, "defences": {"standard": {}, "drq": FEW}}
    return Spec(**given | changes)


MORE: dict[str, dict[str, object]] = {
    "threat": {"threats": {"fog": {}, "clean": None, "noise": "gaussian_noise"}},
    "defence": {"defences": {"again": {"defence": "standard"}, "standard": {}, "drq": FEW}},
    "model": {"models": {"other": OTHER, "mine": MODEL}},
    "data": {"data": ["digits:train", "digits"]},
    "limit": {"limit": 8},
    "limits of threats": {"limit": None, "threats": {"clean": Trial(limit=6), "noise": Trial(NOISE, limit=7)}},
}
NEW = {  # judged: task, first and last sample, and who answers
    "threat": [(2, 0, 3, "standard drq"), (2, 3, 5, "standard drq")],
    "defence": [(task, *each, "again") for task in (2, 3) for each in ((0, 3), (3, 5))],
    "model": [(task, *each, "standard drq") for task in (2, 3) for each in ((0, 3), (3, 5))],
    "data": [(task, *each, "standard drq") for task in (2, 3) for each in ((0, 3), (3, 5))],
    "limit": [(task, 5, 8, "standard drq") for task in (2, 3)],
    "limits of threats": [(2, 5, 6, "standard drq"), (3, 5, 7, "standard drq")],
}


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, int, str]]:
    """What was judged, since the beginning of the test."""
    told, judge = [], engines.judge

    def counted(context: WorkerContext, shard: Shard) -> object:
        told.append((shard.task.number, shard.first, shard.last, " ".join(shard.task.defences)))
        return judge(context, shard)

    monkeypatch.setattr(engines, "judge", counted)
    return told


def kept(run: Path) -> dict[str, bytes]:
    """Files of rows and images."""
    return {str(each.relative_to(run)): each.read_bytes() for each in run.glob("*/*") if each.is_file()}


def vouched(run: Path) -> None:
    """``sha256sum`` agrees with every line, and every file with rows has one."""
    done = subprocess.run(["sha256sum", "--strict", "-c", "sha256sums"], cwd=run, capture_output=True, text=True)
    files = sorted(each for each in kept(run) if not each.startswith("images"))
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, [f"{each}: OK" for each in files]), done.stderr


def same(run: Run, expected: Run) -> None:
    """The same rows, wherever they lie; in shards of other sizes, sums are rounded otherwise."""
    found, rows = (each.records.select(FREE).sort(KEY) for each in (run, expected))
    assert_frame_equal(found, rows, check_exact=False, rel_tol=0, abs_tol=1e-5)


@pytest.mark.parametrize("more", NEW)
def test_a_finished_run_grows(more: str, judged: list, tmp_path: Path) -> None:
    drq.evaluate(ours(), tmp_path / "run")
    before, first = kept(tmp_path / "run"), Run.open(tmp_path / "run").about
    judged.clear()
    spec = ours(**MORE[more])
    run = drq.evaluate(spec, tmp_path / "run")
    assert judged == NEW[more]
    after = kept(tmp_path / "run")
    assert {name: after[name] for name in before} == before
    assert run.about["spec_hashes"] == [ours().hash, spec.hash]
    assert (run.about["spec_hash"], run.about["spec"]) == (spec.hash, spec.contents)
    assert run.about["tasks"][:2] == first["tasks"]
    vouched(run.path)
    same(run, drq.evaluate(spec, tmp_path / "undisturbed"))
    judged.clear()
    assert drq.evaluate(spec, tmp_path / "run").records.equals(run.records)
    assert judged == []
    assert drq.evaluate(spec, tmp_path / "run").about["spec_hashes"] == run.about["spec_hashes"]


def test_a_run_that_is_half_done_grows(judged: list, tmp_path: Path) -> None:
    """In everything at once, while one task is begun and another is not."""

    def stop(event: object) -> None:
        if event.what == "shard":
            raise KeyboardInterrupt

    with suppress(KeyboardInterrupt):
        drq.evaluate(ours(), tmp_path / "run", tell=stop)
    before = kept(tmp_path / "run")
    assert {*before} == {"parts/0000-0000000.npz", "images/0000-0000000.npz"}
    judged.clear()
    more = {key: value for each in ("threat", "defence", "model", "limit") for key, value in MORE[each].items()}
    run = drq.evaluate(ours(**more), tmp_path / "run")
    assert (0, 0, 3, "standard drq") not in judged
    assert (0, 3, 5, "standard drq") in judged
    assert {name: kept(run.path).get(name) for name in before if name.startswith("images")}.items() <= before.items()
    vouched(run.path)
    same(run, drq.evaluate(ours(**more), tmp_path / "undisturbed"))
    assert [task["number"] for task in run.about["tasks"]] == [*range(len(run.about["tasks"]))]


def test_what_grew_keeps_its_images_where_they_belong(tmp_path: Path) -> None:
    drq.evaluate(ours(limit=2), tmp_path / "run")
    run, whole = drq.evaluate(ours(), tmp_path / "run"), drq.evaluate(ours(), tmp_path / "undisturbed")
    for number, task in run.tasks.items():
        expected = whole.images([each["threat"] for each in whole.tasks.values()].index(task["threat"]))
        assert np.array_equal(run.images(number), expected[task["first"] : task["first"] + len(run.images(number))])
    pictures = {each["title"]: each["image"] for each in examples(whole, whole.records, each=9)}
    found = {each["title"]: each["image"] for each in examples(run, run.records, each=9)}
    assert pictures.keys() == found.keys()
    assert all(np.array_equal(found[title], picture) for title, picture in pictures.items())


@pytest.mark.parametrize("finished", [True, False])
def test_the_order_of_tables_is_no_change(finished: bool, judged: list, tmp_path: Path) -> None:
    def stop(event: object) -> None:
        if event.what == "shard" and not finished:
            raise KeyboardInterrupt

    with suppress(KeyboardInterrupt):
        drq.evaluate(ours(), tmp_path, tell=stop)
    turned = ours(threats={"noise": "gaussian_noise", "clean": None}, defences={"drq": FEW, "standard": {}})
    before = kept(tmp_path)
    judged.clear()
    run = drq.evaluate(turned, tmp_path)
    assert len(judged) == (0 if finished else 3)
    assert run.about["spec_hashes"] == [ours().hash] == [turned.hash]
    assert len(run.records) == 20
    if finished:
        assert kept(tmp_path) == before


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"threats": {"clean": None}}, ["threats.noise was {", "is absent"]),
        (
            {"threats": {"clean": None, "noise": {"threat": "gaussian_noise", "severity": 3}}},
            ["noise.threat.severity was 5, is 3"],
        ),
        ({"threats": {"clean": None, "noise": {"threat": "gaussian_noise", "suite": "x"}}}, ['noise.suite was "noise", is "x"']),
        ({"defences": {"standard": {}}}, ["defences.drq was {", "is absent"]),
        ({"defences": {"standard": {}, "renamed": FEW}}, ["defences.drq was {", "is absent"]),
        ({"models": {"other": OTHER}}, ['models was ["mine"], is ["other"]']),
        ({"models": {"mine": OTHER}}, ["the content of mine was"]),
        ({"limit": 4}, ["limit was 5, is 4"]),
        ({"name": "other"}, ['name was "run", is "other"']),
        ({"rounding": False}, ["rounding was true, is false"]),
        ({"first": 1}, ["first was absent, is 1"]),
        ({"keep_images": 5}, ["keep_images was 4, is 5"]),
        ({"models": [], "data": [], "groups": [{"models": ["digits"], "data": ["digits"]}]}, ['models was ["mine"], is []']),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
@pytest.mark.parametrize("more", [{}, MORE["limit"] | {"data": ["digits", "digits:train"]}], ids=["alone", "with more"])
def test_what_would_orphan_rows_is_refused(more: dict, changes: dict, told: list[str], run: Callable) -> None:
    """Though other things were added; and the words name what did it, not what was added."""
    path = run()
    before = kept(path) | {"run.json": (path / "run.json").read_bytes()}
    with pytest.raises(drq.InputError) as caught:
        drq.evaluate(ours(**more | changes), path)
    message = str(caught.value)
    assert all(each in message for each in ("spec must be that of the run in", *told, "or undo the change")), message
    assert "\n" not in message
    assert "digits:train" not in message
    assert kept(path) | {"run.json": (path / "run.json").read_bytes()} == before


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """A finished run, which refusals leave as it is."""
    path = tmp_path_factory.mktemp("finished")
    drq.evaluate(ours(), path)
    return lambda: path


def test_what_has_no_rows_may_go(judged: list, tmp_path: Path) -> None:
    """Its number is free again, and images that a crash left of it are cleared away."""
    drq.evaluate(ours(), tmp_path, only="clean")
    (tmp_path / "images" / "0001-0000003.npz").write_bytes(b"of a crash")
    judged.clear()
    run = drq.evaluate(ours(threats={"clean": None, "fog": {}}), tmp_path)
    assert judged == [(1, 0, 3, "standard drq"), (1, 3, 5, "standard drq")]
    assert len(run.images(1)) == 4
    assert [task["threat"] for task in run.tasks.values()] == ["clean", "fog"]


def test_rows_that_were_deleted_in_the_middle_come_back(judged: list, tmp_path: Path) -> None:
    """Of a task that grew, though what was added to it is there."""
    drq.evaluate(ours(threats={"clean": None}), tmp_path)
    whole = drq.evaluate(ours(threats={"clean": None}, limit=8), tmp_path).records
    (tmp_path / "records" / "0000.parquet").unlink()
    judged.clear()
    again = drq.evaluate(ours(threats={"clean": None}, limit=9), tmp_path)
    assert judged == [(0, 0, 3, "standard drq"), (0, 3, 5, "standard drq"), (2, 8, 9, "standard drq")]
    assert again.records.filter(pl.col("index") < 8).sort(KEY).select(FREE).equals(whole.sort(KEY).select(FREE))
    assert len(again.records) == len(whole) + 2
    vouched(tmp_path)


def test_the_hash_of_a_row(tmp_path: Path) -> None:
    """The same for the samples of a task and defence, whatever else a spec asks for; another wherever the values could be."""
    hashes = {}
    specs = {"it": ours(), "more": ours(**MORE["limit"] | MORE["threat"], keep_images=1, shard=2, name="x"), "seed": ours(seed=1)}
    specs |= {"weights": ours(models={"mine": OTHER}), "rounding": ours(rounding=False), "threads": ours(threads=2)}
    for name, spec in specs.items():
        rows = drq.evaluate(spec, tmp_path / name).records
        groups = rows.group_by("threat", "defence").agg("row_hash")
        hashes[name] = {(threat, who): {*each} for threat, who, each in groups.rows()}
        assert {len(each) for each in hashes[name].values()} == {1}
        assert len({next(iter(each)) for each in hashes[name].values()}) == len(hashes[name])
    assert hashes["it"].items() <= hashes["more"].items()
    for name in ("seed", "weights", "rounding", "threads"):
        assert not [key for key in hashes["it"] if hashes["it"][key] == hashes[name][key]], name


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
def test_a_crash_at_any_step_of_growing(late: bool, judged: list, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Interrupted before or after every step that touches the disk, that of a checksum too, until none is left."""
    small = {"threats": {"clean": None}, "defences": {"standard": {}}, "shard": 2, "limit": 2, "keep_images": 0}
    more = small | {"defences": {"standard": {}, "again": {"defence": "standard"}}, "limit": 5}
    whole = drq.evaluate(ours(**more), tmp_path / "undisturbed")
    steps = {(os, name): getattr(os, name) for name in ("fsync", "replace", "unlink")} | {(checksums, "add"): checksums.add}
    for number in range(100):
        out, taken = tmp_path / str(number), 0
        before = kept(drq.evaluate(ours(**small), out).path)

        def step(work: Callable, *arguments: object, number: int = number, **options: object) -> None:
            nonlocal taken
            taken += 1
            if taken == number + 1 and not late:
                raise KeyboardInterrupt
            try:
                work(*arguments, **options)
            finally:
                if taken == number + 1:
                    raise KeyboardInterrupt

        judged.clear()
        with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
            for (module, name), work in steps.items():
                patch.setattr(module, name, partial(step, work))
            drq.evaluate(ours(**more), out)
            break
        assert Run.open(out).records.select(KEY).is_duplicated().sum() == 0  # it reads at any moment
        run = drq.evaluate(ours(**more), out)
        same(run, whole)
        assert len(judged) - len({*judged}) <= 1  # the shard at which it was interrupted
        assert {name: kept(out)[name] for name in before} == before
        vouched(out)
    assert number > 25
