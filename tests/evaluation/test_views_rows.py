"""Rows of defences that look at views and have gates, against what they decide; gates are learnt once a process."""

import math
from pathlib import Path

import pytest
import torch
from testbed.evaluated import COUNT, FIXED, MODEL, X, close, network, ours, rows
from testbed.refusals import refused

import drq
from drq.data.dataset import Data, InMemory
from drq.data.loading import load
from drq.defences import learnt_gate
from drq.defences.learnt_gate import LEARNT, LearntGate
from drq.evaluation import engines, resources
from drq.method.execution import InPrecision
from drq.views import Gamma, Gate, Mirror, Rotation

VIEWS = Rotation(90, 5) + Mirror() * Gamma(0.5)
CLEAN = torch.rand((60, 1, 4, 4), generator=torch.Generator().manual_seed(8))
LEARNT_FROM = {"data": "clean", "first": 10, "count": 40, "changes": 0.2}
VIEWED = ("view", "kept", "gate_margin", "nonfinite")


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """Data for gates, by a name."""
    data = Data("clean", InMemory(CLEAN, torch.zeros(60).long()))
    monkeypatch.setattr(learnt_gate, "load", lambda *_, **__: data)
    monkeypatch.setattr(resources, "load_data", lambda name, **given: data if name == "clean" else load(name, **given))


DEFENCES = {
    "views": {"views": str(VIEWS)},
    "held": {"views": str(VIEWS), "gate": {"threshold": 0.5}},
    "learnt": {"views": str(VIEWS), "gate": LEARNT_FROM},
    "gated ball": FIXED | {"gate": {"threshold": 0.02}},
    "learnt ball": FIXED | {"gate": LEARNT_FROM},
    "views in balls": FIXED | {"views": "Mirror()"},
    "ball": FIXED,
}
OTHERS = {"standard": {}, "its": {"views": str(VIEWS)}, "hedge": {"steps": 3}}


def by_hand(name: str) -> drq.DRQ:
    views = {} if "ball" in name and name != "views in balls" else {"views": Mirror() if "balls" in name else VIEWS}
    robust = drq.DRQ(MODEL, **(FIXED if "ball" in name else {}), **views)
    if name.startswith("learnt"):
        return robust.gated(CLEAN[10:50], 0.2)
    return robust.variant(gate={"held": Gate(0.5), "gated ball": Gate(0.02)}.get(name))


@pytest.mark.filterwarnings("ignore:drq. a gate learnt from 40 inputs")
class TestRows:
    @pytest.fixture
    def records(self, tmp_path: Path):
        return drq.evaluate(ours(defences=DEFENCES | OTHERS, rounding=False), tmp_path / "run").records

    def test_columns_are_those_of_the_decision(self, records) -> None:
        for name in DEFENCES:
            robust, found = by_hand(name), rows(records, "clean", name)
            decision = robust.decide(X)
            assert found["prediction"] == decision.label.tolist(), name
            assert found["passes"] == decision.passes.tolist(), name
            assert found["forward_passes"] == decision.forward_passes.tolist(), name
            close(found["margin"], decision.margin)
            gated, viewed = robust.gate is not None, robust.views is not None
            assert found["view"] == (decision.view.tolist() if viewed else [None] * COUNT), name
            assert found["kept"] == (decision.kept.tolist() if gated else [None] * COUNT), name
            close(found["gate_margin"], decision.gate_margin if gated else torch.full((COUNT,), math.nan))
            assert found["nonfinite"] == ([None] * COUNT if robust.ball_searched else [0] * COUNT), name
            close(found["radius"], torch.full((COUNT,), 0.2 if robust.ball_searched else math.nan, dtype=torch.float32))
        told = {name: rows(records, "clean", name) for name in DEFENCES}
        assert len(set(told["views"]["view"])) > 3
        for name in ("held", "gated ball"):
            assert set(told[name]["kept"]) == {True, False}, name
        assert told["learnt"]["prediction"] != told["views"]["prediction"]  # else nothing could tell gates apart

    def test_what_others_have_not_is_null(self, records) -> None:
        for name, (passes, forward) in {"standard": (1, 1), "its": (8, 8), "hedge": (4, 1)}.items():
            found = rows(records, "clean", name)
            assert set(found["passes"]) == {passes}
            assert set(found["forward_passes"]) == {forward}
            assert {value for column in VIEWED for value in found[column]} == {None}

    def test_an_interrupted_run_goes_on_and_grows(self, records, tmp_path: Path, monkeypatch) -> None:
        judge, judged = engines.judge, []

        def failing(context, shard):
            if len(judged) == 3:
                raise KeyboardInterrupt
            judged.append(shard)
            return judge(context, shard)

        with monkeypatch.context() as patch:
            patch.setattr(engines, "judge", failing)
            with pytest.raises(KeyboardInterrupt):
                drq.evaluate(ours(defences=DEFENCES, shard=7, rounding=False), tmp_path / "grown")
        assert 0 < drq.Run.open(tmp_path / "grown").records.height < COUNT * len(DEFENCES)
        grown = drq.evaluate(ours(defences=DEFENCES | OTHERS, shard=7, rounding=False), tmp_path / "grown").records
        assert grown.height == records.height
        for name in DEFENCES | OTHERS:
            found, expected = rows(grown.sort("index"), "clean", name), rows(records, "clean", name)
            for column in ("prediction", "passes", "forward_passes", "view", "kept", "nonfinite"):
                assert found[column] == expected[column], (name, column)


@pytest.mark.filterwarnings("ignore:drq. a gate learnt from")
def test_gates_are_learnt_once_for_a_model(tmp_path: Path) -> None:
    """However many shards, data sets and threats there are; anew for other weights, views and settings."""
    defences = {name: DEFENCES[name] for name in ("learnt", "learnt ball")}
    learnt: list[drq.DRQ] = []
    with pytest.MonkeyPatch.context() as patch:
        gated = drq.DRQ.gated
        patch.setattr(drq.DRQ, "gated", lambda self, *given, **more: learnt.append(self) or gated(self, *given, **more))
        models = {"mine": MODEL, "other": network(1)}
        drq.evaluate(ours(models=models, defences=defences, shard=5, threats={"clean": None, "noise": "fog"}), tmp_path / "run")
    assert [each.ball_searched for each in learnt] == [False, True] * 2


@pytest.mark.filterwarnings("ignore:drq. a gate learnt from")
def test_a_run_does_not_go_on_with_gates_of_other_data(monkeypatch, tmp_path: Path) -> None:
    """Its rows depend on that data, and their hashes say so."""
    spec = ours(defences={name: DEFENCES[name] for name in ("views", "learnt")}, rounding=False)
    first = drq.evaluate(spec, tmp_path / "run")
    other = Data("clean", InMemory(CLEAN.flip(0), torch.zeros(60).long()))
    monkeypatch.setattr(learnt_gate, "load", lambda *_, **__: other)
    monkeypatch.setattr(resources, "load_data", lambda name, **given: other if name == "clean" else load(name, **given))
    refused(drq.evaluate, spec, tmp_path / "run", words=["the content of clean was ", "choose another directory"])
    second = drq.evaluate(spec, tmp_path / "other")
    hashes = [{name: rows(run.records, "clean", name)["row_hash"][0] for name in ("views", "learnt")} for run in (first, second)]
    assert hashes[0]["views"] == hashes[1]["views"]
    assert hashes[0]["learnt"] != hashes[1]["learnt"]


@pytest.mark.filterwarnings("ignore:drq. a gate learnt from")
def test_a_gate_is_learnt_again_for_whatever_changes_answers() -> None:
    model, asked = network(2), LearntGate("clean", 0, 40, 0.2)
    first = asked.around(drq.DRQ(model, views=VIEWS)).gate
    assert asked.around(drq.DRQ(model, views=VIEWS)).gate is first
    assert asked.around(drq.DRQ(model, views=VIEWS, chunk=None)).gate is first
    assert len(LEARNT[model]) == 1
    fronts = [drq.DRQ(model, views=VIEWS, front=front) for front in (lambda x: x / 2, lambda x: 1 - x)]  # of one name
    own = [drq.DRQ(model, views=view) for view in (lambda x: x / 2, lambda x: 1 - x)]
    half = drq.DRQ(InPrecision(model, torch.bfloat16), views=VIEWS)
    made = [
        asked.around(each).gate for each in (*fronts, *own, half, drq.DRQ(model, views="Mirror()"), drq.DRQ(model, "linf", 0.1))
    ]
    assert len({str(each.record) for each in (first, *made)}) == 8
    model[1].weight.data *= 0.5
    assert asked.around(drq.DRQ(model, views=VIEWS)).gate.record != first.record


def test_a_gate_for_a_model_without_weights() -> None:
    """Such as one behind a service: it is told by what it is."""

    class Service(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return MODEL(x).detach()

    first, second = Service().eval(), Service().eval()
    with pytest.warns(UserWarning, match="a gate learnt from 40 inputs promises little"):
        gates = [LearntGate("clean", 0, 40, 0.2).around(drq.DRQ(each, views=VIEWS)).gate for each in (first, first, second)]
    assert gates[0] is gates[1]
    assert gates[0] is not gates[2]
