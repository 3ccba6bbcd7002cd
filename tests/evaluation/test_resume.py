"""A run that was stopped, however it was stopped, goes on where it was: nothing is lost, doubled or computed twice."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from testbed.layouts import cifar10
from testbed.refusals import refused
from testbed.resumed import DATA, FEW, OTHER, files, ours, same
from torch.utils.data import TensorDataset

import drq
from drq import Run, Spec


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
