"""Evaluations use the gate of a model's card, as DRQ in Python does, and rows tell which one it was."""

from pathlib import Path

import pytest
import torch

import drq
from drq.evaluation.run import Run
from drq.models import gates

X = torch.rand((6, 3, 32, 32), generator=torch.Generator().manual_seed(3))
Y = torch.arange(6)


@pytest.fixture
def spec() -> drq.Spec:
    data = torch.utils.data.TensorDataset(X, Y)
    return drq.Spec(models=["cifar10-tiny"], data={"noise": data}, defences={"upright": {"preset": "upright"}}, rounding=False)


def test_the_gate_of_the_card_holds_in_evaluations_too(spec: drq.Spec, tmp_path: Path) -> None:
    records = drq.evaluate(spec, tmp_path / "run").records.sort("index")
    model = drq.load_model("cifar10-tiny")
    robust = drq.DRQ(model, **drq.preset("upright"))
    assert robust.gate == model.card.gates["upright"]
    decision = robust.decide(X)
    assert records["kept"].to_list() == decision.kept.tolist()
    assert records["gate_margin"].to_list() == pytest.approx(decision.gate_margin.tolist(), abs=1e-4)


def test_rows_behind_another_gate_are_other_rows(spec: drq.Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hashes(place: str) -> list[str]:
        return Run.open(tmp_path / place).records["row_hash"].unique().to_list()

    drq.evaluate(spec, tmp_path / "first")
    drq.evaluate(spec, tmp_path / "same")
    monkeypatch.setattr(gates, "known", dict)  # no model has a gate
    drq.evaluate(spec, tmp_path / "other")
    assert hashes("first") == hashes("same") != hashes("other")
