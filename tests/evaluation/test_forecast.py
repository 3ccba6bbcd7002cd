"""What is said of an evaluation before it starts: its passes, and its time where they are many; nothing where all is done."""

import re
import time
from pathlib import Path

import pytest
import torch
from testbed.resumed import DATA, MODEL, ours
from torch import Tensor

import drq
from drq.evaluation import forecast
from drq.evaluation.resources import WorkerContext
from drq.method.adapters import Wrapper


def plans(folder: Path, **changes: object) -> list[str]:
    heard: list = []
    drq.evaluate(ours(**changes), folder, tell=heard.append)
    assert [each.what for each in heard].index("start") == sum(each.what == "plan" for each in heard)  # before anything runs
    return [each.text for each in heard if each.what == "plan"]


def test_passes_are_counted_and_only_what_is_left(tmp_path: Path) -> None:
    """One for each sample; one for the model, 1 + 3 x (3 + 3) for DRQ at most, both again for noise when it is rounded."""
    assert plans(tmp_path, threats={"clean": None}) == [f"8 samples, up to {8 * (1 + 1 + 19)} passes of models"]
    assert plans(tmp_path) == [f"8 samples, up to {8 * (1 + 2 * (1 + 19))} passes of models"]  # noise alone
    assert plans(tmp_path) == []


class Slow(Wrapper):
    """Takes a hundredth of a second for every input."""

    def forward(self, x: Tensor) -> Tensor:
        time.sleep(0.01 * len(x))
        return self.model(x)


def test_time_is_measured_where_passes_are_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecast, "WORTH_TIMING", 100)
    slow = {
        "models": {"mine": Slow(MODEL).eval()},
        "data": {"mine": DATA},
        "threats": {"clean": None},
        "defences": {"standard": {}},
    }
    (text,) = plans(tmp_path / "few", **slow)
    assert text == "8 samples, up to 16 passes of models"
    monkeypatch.setattr(forecast, "WORTH_TIMING", 10)
    before = torch.random.get_rng_state()
    (text,) = plans(tmp_path / "many", **slow)
    assert torch.equal(torch.random.get_rng_state(), before)
    seconds = re.fullmatch(r"8 samples, up to 16 passes of models, about (\d+) seconds at the pace of .* on this machine", text)
    assert seconds is not None
    assert float(seconds[1]) < 2  # 16 hundredths, on a busy machine


def test_a_slow_model_is_foreseen() -> None:
    spec = ours(models={"mine": Slow(MODEL).eval()})
    assert 0.01 <= forecast.seconds_per_pass(WorkerContext.of(spec, "cpu"), "mine", "mine") < 0.1


class Called(Wrapper):
    """Takes three hundredths of a second for every call, however many inputs it has."""

    def forward(self, x: Tensor) -> Tensor:
        time.sleep(0.03)
        return self.model(x)


def test_the_cost_of_a_call_is_shared_among_many_rows_as_searches_do() -> None:
    spec = ours(models={"mine": Called(MODEL).eval()})
    assert forecast.seconds_per_pass(WorkerContext.of(spec, "cpu"), "mine", "mine") < 0.03 / 100
