"""Every row of an evaluation against a direct computation with the model, the threat and the defence."""

import json
import math
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pandas
import polars as pl
import pytest
import torch
from testbed.evaluated import COUNT, DEFENCES, INDEX, MODEL, PGD, X, Y, images, network, ours
from testbed.refusals import refused
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

import drq
from drq import threats
from drq.errors import MissingError
from drq.method.adapters import Wrapper
from drq.models import weights
from drq.models.classifier import Card
from drq.system.threads import threads


def state(model: nn.Module) -> list:
    """All that could be changed about a model."""
    return [
        *((name, sorted(vars(each)), each.training, len(each._forward_hooks)) for name, each in model.named_modules()),
        *(
            (name, each.tolist(), each.requires_grad, each.grad, str(each.device), each.dtype)
            for name, each in model.named_parameters()
        ),
    ]


def test_what_is_handed_in_stays_as_it_was(tmp_path: Path) -> None:
    model = network().train()
    data = images(model)
    before, held, drawn = state(model), [each.clone() for each in data.tensors], torch.random.get_rng_state()
    with threads(2):
        spec = ours(
            models={"mine": model}, data={"mine": data}, defences=DEFENCES, threats={"PGD": PGD}, precision="bfloat16", limit=4
        )
        drq.evaluate(spec, tmp_path)
        assert torch.get_num_threads() == 2
    assert state(model) == before
    assert all(torch.equal(old, new) for old, new in zip(held, data.tensors, strict=True))
    assert torch.equal(torch.random.get_rng_state(), drawn)
    assert torch.is_grad_enabled()


def test_threads_are_those_of_the_spec(tmp_path: Path) -> None:
    seen: list[int] = []

    class Watching(Wrapper):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(torch.get_num_threads())
            return self.model(x)

    before = torch.get_num_threads()
    drq.evaluate(ours(defences={"watching": Watching}, threads=3, limit=2), tmp_path)
    assert set(seen) == {3}
    assert torch.get_num_threads() == before


def test_the_weights_are_told_by_their_values(tmp_path: Path) -> None:
    """A card may come from before the last training."""
    model = network()
    model.card = Card("mine", sha256="0" * 64)
    (sha256,) = set(drq.evaluate(ours(models={"mine": model}, limit=2), tmp_path).records["weights_sha256"])
    assert sha256 == weights.contents(MODEL.state_dict())


def test_events_tell_how_far_it_is(tmp_path: Path) -> None:
    heard: list = []
    drq.evaluate(ours(shard=10, threats={"clean": None, "fog": {}}), tmp_path, tell=heard.append)
    plan, *heard = [each for each in heard if each.what != "begin"]
    assert (plan.what, plan.text) == ("plan", "48 samples, up to 120 passes of models")  # fog is answered again when rounded
    assert [each.what for each in heard] == ["start", *["shard"] * 6, "done"]
    assert [each.done for each in heard] == [0, 10, 20, 24, 34, 44, 48, 48]
    assert {each.total for each in heard} == {48}
    assert (heard[0].left, heard[-1].left) == (math.inf, 0)
    assert all(each.rate > 0 and each.left >= 0 for each in heard[1:])
    assert [each.text for each in (heard[0], heard[1], heard[-1])] == ["a new run", "mine on mine, clean", "48 of 48 samples"]


def test_what_is_said_of_a_run(tmp_path: Path) -> None:
    spec = ours(title="Mine", limit=5)
    run = drq.evaluate(spec, tmp_path)
    about = json.loads((tmp_path / "run.json").read_text())
    assert about == run.about
    assert about["spec"] == spec.contents
    assert (about["title"], about["spec_hash"], about["missing"]) == ("Mine", spec.hash, [])
    assert about["models"] == {"mine": weights.contents(MODEL.state_dict())}
    task = {"model": "mine", "data": "mine", "threat": "clean", "victim": "base", "defences": ["standard"], "images": COUNT}
    task |= {"number": 0, "first": 0, "limit": 5, "samples": 5, "row_hashes": [*run.records["row_hash"].unique()]}
    assert about["tasks"] == [task]
    (line,) = run.history
    assert (line["engine"], line["samples"], line["seconds"] >= 0) == ("local", 5, True)


def test_a_run_lies_under_the_name_of_its_spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert drq.evaluate(ours(name="my run", limit=1)).path == Path("runs/my run")
    assert drq.Run.open("runs/my run").name == "my run"


class Faulty(Dataset):
    """Data whose last item is not there."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, position: int) -> tuple[Tensor, int]:
        if position == COUNT - 1:
            raise self.error
        return X[position], int(Y[position])


def test_errors_while_it_runs(tmp_path: Path) -> None:
    """A caller's mistake says where; what the caller's own code raises stays as it is. Data is read before anything runs."""
    refused(
        drq.evaluate,
        ours(data={"mine": Faulty(drq.InputError("item must be there, got none: add it"))}, shard=10),
        tmp_path / "a",
        words=["mine on mine: item must be there"],
    )
    lost = OSError(5, "Input/output error")
    with pytest.raises(OSError, match="Input/output") as caught:
        drq.evaluate(ours(data={"mine": Faulty(lost)}, shard=10), tmp_path / "b")
    assert caught.value is lost  # and not that the directory of the run cannot be written
    assert not [*tmp_path.iterdir()]
    late = TensorDataset(X, torch.where(INDEX == COUNT - 1, 9, Y))
    refused(
        drq.evaluate,
        ours(data={"mine": late}, defences=DEFENCES, shard=10, limit=None),
        tmp_path / "c",
        words=["mine on mine, clean: labels must lie below 4, the model's classes, got 9"],
    )


def test_what_turns_out_to_be_missing_is_said_once_and_the_rest_runs(tmp_path: Path) -> None:
    """As an attack whose package is not installed."""

    @dataclass(frozen=True)
    class Absent(threats.Corruption):
        def shift(self, *arguments: object) -> None:
            raise MissingError("nothing must be installed, got none: install it")

    heard: list = []
    run = drq.evaluate(ours(threats={"absent": Absent("fog"), "clean": None}, shard=10), tmp_path, tell=heard.append)
    why = "nothing must be installed, got none: install it"
    assert [each.text for each in heard if each.what == "missing"] == [f"mine on mine, absent: {why}"]
    assert run.about["missing"] == [{"what": "mine on mine, absent", "why": why}]
    assert drq.Run.open(tmp_path).about == run.about
    assert Counter(run.records["threat"]) == {"clean": COUNT}


def test_data_that_cannot_be_a_key(tmp_path: Path) -> None:
    @dataclass
    class Items(Dataset):
        x: Tensor

        def __len__(self) -> int:
            return len(self.x)

        def __getitem__(self, position: int) -> tuple[Tensor, int]:
            return self.x[position], 0

    assert drq.evaluate(ours(data={"mine": Items(X)}), tmp_path).records.height == COUNT


def test_other_programs_read_the_records(tmp_path: Path) -> None:
    spec = ours(defences=DEFENCES, threats={"clean": None, "PGD": PGD, "noise": "gaussian_noise"}, shard=10)
    run = drq.evaluate(spec, tmp_path)
    records, files = run.records, f"{tmp_path}/records/*.parquet"
    assert len(list((tmp_path / "records").iterdir())) == 3
    right = "sum((prediction = label)::int)"
    grouped = f"select threat, defence, count(*), {right}, count(radius) from read_parquet(?) group by all order by all"
    counts = (pl.len(), (pl.col("prediction") == pl.col("label")).sum(), pl.col("radius").count())
    assert duckdb.execute(grouped, [files]).fetchall() == sorted(records.group_by("threat", "defence").agg(*counts).rows())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of pandas and pyarrow about each other
        frame = pandas.concat([pandas.read_parquet(path) for path in sorted((tmp_path / "records").iterdir())])
    assert list(frame.columns) == records.columns
    assert len(frame) == records.height == COUNT * 3 * 3
    assert frame["prediction"].tolist() == records["prediction"].to_list()
    assert frame["radius"].isna().sum() == records["radius"].null_count()


def test_handed_data_is_told_by_what_is_used_of_it(tmp_path: Path) -> None:
    """Other values are other data, though there are as many; what lies beyond the limit does not count."""
    run = drq.evaluate(ours(limit=10), tmp_path)
    beyond = X.clone()
    beyond[15:] = 0.5
    assert drq.evaluate(ours(limit=10, data={"mine": TensorDataset(beyond, Y)}), tmp_path).records.equals(run.records)
    words = ["the content of mine was", "choose another directory"]
    refused(drq.evaluate, ours(limit=10, data={"mine": TensorDataset(1 - X, Y)}), tmp_path, words=words)
    refused(drq.evaluate, ours(limit=10, data={"mine": TensorDataset(X, (Y + 1) % 4)}), tmp_path, words=words)


def test_a_model_is_looked_at_before_it_runs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    nan = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(X[0].numel(), 4))
    torch.nn.init.constant_(nan[1].bias, torch.nan)
    refused(drq.evaluate, ours(models={"mine": nan.eval()}), tmp_path / "a", words=["mine must return finite logits"])
    drq.evaluate(ours(models={"mine": torch.nn.Sequential(MODEL, torch.nn.Softmax(1)).eval()}), tmp_path / "b")
    assert "mine returns looks like probabilities" in caplog.text
    drq.evaluate(ours(), tmp_path / "c")
    assert caplog.text.count("probabilities") == 1
    refused(ours, defences={"mine": MODEL}, words=["defences.mine must be a function of the model", "lambda model"])
