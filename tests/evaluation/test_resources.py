"""What is kept between shards and runs: attacks, models, and what is compiled."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import drq
from drq import threats
from drq.data.dataset import Data
from drq.evaluation import judging, resources
from drq.evaluation.resources import Cache, WorkerContext
from drq.evaluation.spec import Spec, Trial

COLUMNS = ["threat", "defence", "index", "prediction", "distance_linf", "threat_passes"]
DRQ = {"defence": "drq", "norm": "linf", "radius": 0.2, "explore": drq.Gradient(2), "quantify": drq.Gradient(2)}


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "SHIFTED", Cache(40))
    monkeypatch.setattr(judging, "ANSWERED", Cache(40))
    monkeypatch.setattr(resources, "MODELS", Cache(2))
    resources.clear_caches()


def evaluated(out: Path, threat: Any, **more: Any) -> drq.Run:
    given = {"models": ["digits"], "data": ["digits"], "limit": 4, "defences": {"standard": {}, "DRQ": DRQ}} | more
    return drq.evaluate({"threats": {"clean" if threat is None else "attack": threat}} | given, out)


class Counted(threats.PGD):
    """PGD that counts how often it runs; it claims to be one of the package."""

    __module__ = "drq.threats.attacks"
    runs = 0

    def run(self, *given: Any, **more: Any) -> Any:
        Counted.runs += 1
        return super().run(*given, **more)


def test_an_attack_serves_the_next_experiment(tmp_path: Path) -> None:
    Counted.runs, attack = 0, Counted("linf", 0.1, 3)
    first = evaluated(tmp_path / "1", attack)
    again = evaluated(tmp_path / "2", attack, defences={"standard": {}})
    assert Counted.runs == 1
    alone = first.records.filter(defence="standard").select(COLUMNS)
    assert alone.equals(again.records.select(COLUMNS))
    evaluated(tmp_path / "3", Counted("linf", 0.2, 3))
    evaluated(tmp_path / "4", attack, limit=3)
    assert Counted.runs == 3
    evaluated(tmp_path / "5", attack, threads=2)  # sums may differ
    assert Counted.runs == 4


def test_an_answer_serves_the_next_experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def counted(defence: nn.Module, *given: Any) -> Any:
        asked.extend([defence] * (len(given) == 3))  # rounded samples come without the model
        return answered(defence, *given)

    answered = judging.answered
    monkeypatch.setattr(judging, "answered", counted)
    attack = threats.PGD("linf", 0.1, 3)
    first = [evaluated(tmp_path / f"first {each}", each) for each in (None, attack)]
    assert len(asked) == 4
    other = {"DRQ by another name": DRQ}
    again = [evaluated(tmp_path / f"again {each}", each, defences=other) for each in (None, attack)]
    assert len(asked) == 4
    for before, after in zip(first, again, strict=True):
        columns = [each for each in before.records.columns if each not in ("experiment", "defence", "row_hash", "spec_hash")]
        assert before.records.filter(defence="DRQ").select(columns).equals(after.records.select(columns))
    kept = {"DRQ": DRQ}
    evaluated(tmp_path / "alpha", attack, defences={"DRQ": DRQ | {"alpha": 0.3}})
    evaluated(tmp_path / "rounding", attack, defences=kept, rounding=False)
    evaluated(tmp_path / "quick", attack, defences=kept, quick=True)
    evaluated(tmp_path / "attack", threats.PGD("linf", 0.2, 3), defences=kept)
    evaluated(tmp_path / "samples", attack, defences=kept, first=1)
    assert len(asked) == 9
    mine = DRQ | {"front": lambda x: x}  # which no record tells from another
    for number in range(2):
        evaluated(tmp_path / f"mine {number}", attack, defences={"DRQ": mine})
        evaluated(tmp_path / f"on it {number}", Trial(attack, victim="defence"), defences=kept)
    assert len(asked) == 13


@dataclass(frozen=True)
class Dimmed:
    """A reader that does not tell how dark it makes images."""

    share: float
    sha256 = drq.load_data("digits").sha256

    def __len__(self) -> int:
        return 4

    def read(self, positions: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        x, y = drq.load_data("digits").batch(positions)
        return self.share * x, y


def test_other_images_are_another_question(tmp_path: Path) -> None:
    answers = []
    for share in (1.0, 0.2):
        data = {"mine": Data("mine", Dimmed(share))}
        records = evaluated(tmp_path / str(share), None, data=data).records
        alone, robust = (records.filter(defence=each)["prediction"] for each in ("standard", "DRQ"))
        assert alone.equals(records.filter(defence="standard")["base_prediction"])
        answers.append([*alone, *robust])
    assert answers[0] != answers[1]


def test_what_a_caller_made_is_attacked_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Counted.runs, attack = 0, Counted("linf", 0.1, 1)
    flat = nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).eval()
    for number in range(2):
        evaluated(tmp_path / f"model{number}", attack, models={"mine": flat})
    assert Counted.runs == 2
    monkeypatch.setattr(judging, "LARGEST_KEPT", 4 * 64 * 4 - 1)
    for number in range(2):
        evaluated(tmp_path / f"large{number}", attack)
    assert Counted.runs == 4
    Counted.__module__ = "mine"
    monkeypatch.undo()
    try:
        for number in range(2):
            evaluated(tmp_path / f"threat{number}", attack)
    finally:
        Counted.__module__ = "drq.threats.attacks"
    assert Counted.runs == 6


@dataclass(frozen=True)
class Remembers(drq.defences.Defence):
    """A defence whose answers depend on how often it was asked."""

    def around(self, model: nn.Module) -> nn.Module:
        class Forgetful(nn.Module):
            asked = 0

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                self.asked += 1
                return torch.full((len(x), 10), 0.0).index_fill(1, torch.tensor([self.asked]), 1.0)

        return Forgetful()

    @property
    def record(self) -> dict[str, Any]:
        return {"defence": "remembers"}


def test_other_defences_start_anew_with_every_shard(tmp_path: Path) -> None:
    run = evaluated(tmp_path, None, defences={"mine": Remembers()}, shard=2)
    assert run.records["prediction"].n_unique() == 1


def test_all_drq_around_a_model_share_what_is_compiled() -> None:
    other = DRQ | {"alpha": 0.3}
    spec = Spec(models=["digits"], data=["digits"], defences={"one": DRQ, "two": other}, quick=True)
    context = WorkerContext.of(spec, "cpu")
    scenes = [resources.model_and_data(context, "digits", "digits") for _ in range(2)]
    assert scenes[0].model is scenes[1].model
    one, two, again = (resources.build_defence(context, name, scenes[0].prepared) for name in ("one", "two", "one"))
    assert one._engine is two._engine is again._engine
    assert (one.alpha, two.alpha) == (0.5, 0.3)
    assert not one.compile_model  # quick is for GPUs


def test_a_model_outlasts_a_run_unless_its_weights_change(monkeypatch: pytest.MonkeyPatch) -> None:
    first = resources.loaded_model("digits", "cpu", None)
    resources.clear_caches()
    assert resources.loaded_model("digits", "cpu", None) is first
    resources.clear_caches()
    monkeypatch.setattr(resources.weights, "contents", lambda _: "another")
    loaded = drq.load_model("digits")
    loaded.card = None
    monkeypatch.setattr(resources, "load_model", lambda _: loaded)
    assert resources.loaded_model("digits", "cpu", None) is not first
    resources.clear_caches()


def test_a_model_that_was_changed_is_loaded_anew() -> None:
    first = resources.loaded_model("digits", "cpu", None)
    resources.clear_caches()
    with torch.no_grad():
        next(first.model.parameters()).mul_(2)
    again = resources.loaded_model("digits", "cpu", None)
    assert again is not first
    assert again.untouched
    assert not first.untouched


def test_what_functions_make_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "made.py").write_text(
        "import torch\nSIGN = 1\n"
        "class Net(torch.nn.Module):\n    def forward(self, x):\n        return SIGN * x.flatten(1)[:, 20:30]\n"
        "def net():\n    return Net().eval()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import made  # type: ignore[import-not-found]

    answers = []
    for number, sign in enumerate((1, -1)):
        made.SIGN = sign
        run = evaluated(tmp_path / str(number), Counted("linf", 0.1, 1), models=["python:made:net"], defences={"standard": {}})
        answers.append(run.records["prediction"])
    assert not answers[0].equals(answers[1])


def test_functions_of_a_caller_in_a_threat_are_told_apart() -> None:
    plain = threats.PGD("linf", 0.1, 1)
    assert judging._is_ours(plain)
    assert judging._is_ours(threats.RedTeam("linf", 0.1))
    assert not judging._is_ours(threats.PGD("linf", 0.1, 1, aim=lambda model, label: drq.away_from(model, label)))


def test_attacks_that_are_kept_hold_no_model(tmp_path: Path) -> None:
    evaluated(tmp_path, Counted("linf", 0.1, 1))
    assert len(judging.SHIFTED.things) == 1
    assert not any(isinstance(each, resources.PreparedModel) for key in judging.SHIFTED.things for each in key)


def test_kept_are_the_last() -> None:
    kept: Cache[int] = Cache(2)
    made: list[int] = []

    def make(value: int) -> int:
        made.append(value)
        return value

    for value in (1, 2, 1, 3, 1, 2):
        assert kept.get(value, lambda value=value: make(value)) == value
    assert made == [1, 2, 3, 2]
