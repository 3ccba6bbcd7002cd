"""What modules and their outputs go through in PyTorch: moved, printed, saved, loaded, made into arrays and tables."""

import io
import math
import pickle
from dataclasses import fields

import numpy as np
import pytest
import torch
from testbed.classifiers import inputs, network
from testbed.refusals import refused
from torch import Tensor, nn

import drq

X = inputs(0, 8, 4)
FEW = {"explore": drq.Gradient(2), "quantify": drq.Gradient(2)}
KINDS = {
    "ball": {"norm": "linf", "radius": 0.1, **FEW},
    "calibrated": {"radius": drq.Calibrated(steps=5), **FEW},
    "gated ball": {"norm": "linf", "radius": 0.1, "gate": drq.views.Gate(0.01), **FEW},
    "views": {"views": "Gain(4, 5)"},
    "gated views": {"views": "Gain(4, 5)", "gate": drq.views.Gate(0.1, (0, 0, 0, 0), (1, 2, 1, 2))},
    "views in balls": {"views": "Gain(4, 3)", "radius": 0.1, **FEW},
    "half": {"norm": "linf", "radius": 0.1, "precision": "bfloat16", **FEW},
    "compiled": {"norm": "linf", "radius": 0.1, "compile": True, **FEW},
    "compiled views": {"views": "Gain(4, 3)", "compile": True},
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def stored(robust: drq.DRQ, **options: object) -> drq.DRQ:
    stream = io.BytesIO()
    torch.save(robust, stream, **options)
    stream.seek(0)
    return torch.load(stream, weights_only=False)


@every_kind
def test_it_is_saved_whole_before_and_after_calls(kind, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)  # which takes half a minute, and is not what is saved
    robust = drq.DRQ(network(0), **KINDS[kind])
    unused = stored(robust)
    expected, scores = robust.decide(X), robust(X)
    robust(X.clone().requires_grad_())
    for again in (unused, stored(robust), stored(robust, pickle_protocol=4), pickle.loads(pickle.dumps(robust))):
        found = again.decide(X)
        assert torch.equal(found.label, expected.label)
        torch.testing.assert_close(found.log_odds, expected.log_odds, rtol=0, atol=0)
        torch.testing.assert_close(again(X), scores, rtol=0, atol=0)
        assert repr(again) == repr(robust)
        assert set(again.state_dict()) == set(robust.state_dict())


def test_what_one_model_showed_is_not_kept_for_another():
    """Where it was in memory, a process that loads it may have another."""
    robust = drq.DRQ(network(0), **KINDS["ball"])
    robust.decide(X)
    assert robust._facts
    assert not stored(robust)._facts


class Inside(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x)


def test_keys_that_fit_are_loaded():
    one, other = (drq.DRQ(network(seed), **KINDS["ball"]) for seed in (0, 1))
    assert not torch.equal(one(X), other(X))
    assert str(other.load_state_dict(one.state_dict())) == "<All keys matched successfully>"
    assert torch.equal(one(X), other(X))
    three = drq.DRQ(network(2), **KINDS["ball"])
    three.model.load_state_dict(one.model.state_dict())
    assert torch.equal(one(X), three(X))
    assert three.load_state_dict({}, strict=False).missing_keys == [*three.state_dict()]


def test_keys_of_another_module_are_refused_in_a_line():
    model = network(0)
    robust, deeper = drq.DRQ(model, **KINDS["ball"]), drq.DRQ(drq.FirstOutput(model), **KINDS["ball"])
    own = "state_dict must have the keys of this DRQ, such as 'model.0.weight', got "
    bare = [own, "got '0.weight', those of the model in it: load them with .model.load_state_dict(...)"]
    refused(robust.load_state_dict, model.state_dict(), words=bare)
    inner = ["such as 'model.model.0.weight'", "those of the model in it: load them with .model.model.load_state_dict(...)"]
    refused(deeper.load_state_dict, model.state_dict(), words=inner)
    around = [own, "got 'model.model.0.weight', those of a module around it: take 'model.' off them, or load them there"]
    refused(robust.load_state_dict, deeper.state_dict(), words=around)
    refused(drq.FirstOutput(model).load_state_dict, deeper.state_dict(), words=["keys of this FirstOutput", "take 'model.' off"])
    refused(robust.load_state_dict, nn.DataParallel(robust).state_dict(), words=["take 'module.' off them"])
    other = [own, "got 'model.0.weight', 4 unknown and 0 missing: they are of another architecture"]
    longer = nn.Sequential(*model, nn.Linear(4, 4), nn.Linear(4, 4))
    refused(robust.load_state_dict, drq.DRQ(longer.eval()).state_dict(), words=other)
    refused(robust.load_state_dict, {}, words=["got 'none', 0 unknown and 4 missing"])


def test_shapes_that_differ_are_told_by_torch():
    robust, wider = drq.DRQ(network(0)), drq.DRQ(network(0, width=30))
    with pytest.raises(RuntimeError, match=r"size mismatch for model\.0\.weight"):
        robust.load_state_dict(wider.state_dict())


def test_a_defence_is_printed_in_a_line():
    model = network(0)
    assert repr(drq.DRQ(model)) == "DRQ(Sequential, norm=L2(), radius=Calibrated(confidence=None, steps=100))"
    assert repr(drq.DRQ(model, "linf", 0.1, alpha=0.4)) == "DRQ(Sequential, norm=Linf(), radius=0.1, alpha=0.4)"
    assert repr(drq.DRQ(model, views="Gain(4, 5)", prune="race")) == "DRQ(Sequential, views='Gain()', prune='race')"
    each = drq.DRQ(model, "l1", torch.full((8,), 0.3), frozen=torch.tensor([True, False, False, False]))
    assert repr(each) == "DRQ(Sequential, norm=L1(), radius=a tensor (8,), frozen=a tensor (4,))"
    assert repr(drq.DRQ(logits, classes=2)).startswith("DRQ(logits, norm=L2(), radius=Calibrated(")
    assert "classes=2" in repr(drq.DRQ(logits, classes=2))
    named = drq.models.Classifier(nn.Flatten(), drq.models.Card("mine")).eval()
    assert repr(nn.Sequential(drq.DRQ(named, "l2", 1.0))) == "Sequential(\n  (0): DRQ(mine, norm=L2(), radius=1.0)\n)"


def logits(x: Tensor) -> Tensor:
    return x


@every_kind
def test_what_is_printed_makes_it_again(kind):
    """What is not printed is at its default: but for the model and the gate, the words are arguments."""
    robust = drq.DRQ(network(0), **KINDS[kind])
    words = repr(robust).removeprefix("DRQ(Sequential, ").removesuffix(")").partition(", gate: ")[0]
    again = eval(f"dict({words})", {name: getattr(drq, name) for name in drq.__all__})
    assert drq.DRQ(network(0), **again).settings == robust.settings | {"gate": None}


def decided(**settings: object) -> drq.Decision:
    return drq.DRQ(network(0), **{"norm": "l2", "radius": 0.3, **FEW} | settings).decide(X)


def test_a_decision_is_printed_in_a_line():
    decision = decided()
    changed = int((decision.label != decision.base_label).sum())
    low, high = (f"{each:.3g}" for each in (decision.margin.min(), decision.margin.max()))
    passes = f"{int(decision.passes.sum())} passes"
    text = f"Decision(8 samples of 4 classes: {changed} of 8 labels changed, margins {low} to {high}, {passes})"
    assert repr(decision) == str(decision) == text
    one = decision[:1]
    assert repr(one).startswith(f"Decision(1 sample of 4 classes: label {int(one.label)}, margin {float(one.margin):.3g}, ")
    assert repr(decision[0])[:60] == repr(one)[:60]  # the sample itself, without a batch
    other = one._map(lambda columns: columns[0])
    object.__setattr__(other, "base_label", 1 - one.label)
    assert f"label {int(one.label)} in place of {int(1 - one.label)}," in repr(other)
    assert repr(decision[:0]) == "Decision(0 samples of 4 classes: 0 of 0 labels changed)"
    kept = decided(gate=drq.views.Gate(math.inf))
    assert repr(kept).endswith(", 8 kept by the gate)")


def test_a_decision_moves_with_all_that_it_holds():
    decision = decided(keep_points=True)
    moved = decision.to("meta")
    assert type(moved) is drq.Decision
    tensors = [getattr(moved, each.name) for each in fields(moved) if each.name != "norm"]
    assert all(each.device.type == "meta" for each in tensors)
    assert moved.norm == decision.norm
    assert decision.label.device.type == "cpu"
    for again in (decision.cpu(), decision.to(torch.device("cpu"))):
        for one, other in zip(again.tensors(), decision.tensors(), strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
    refused(decision.to, torch.float64, words=["device must name a device, got torch.float64", 'as in "cuda"'])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_decision_comes_back_from_a_gpu():
    decision = drq.DRQ(network(0).cuda(), "l2", 0.3, **FEW).decide(X.cuda())
    assert decision.cpu().label.device.type == "cpu"
    assert decision.cpu().to(0).label.device.type == "cuda"
    assert np.array_equal(decision.numpy()["label"], decision.cpu().label.numpy())
    assert repr(decision) == repr(decision.cpu())


def test_a_decision_as_arrays():
    decision = decided(keep_points=True)
    arrays = decision.numpy()
    assert {*arrays} == {each.name for each in fields(decision)} - {"norm"}
    for name, values in arrays.items():
        assert isinstance(values, np.ndarray)
        assert np.array_equal(values, np.asarray(getattr(decision, name)), equal_nan=values.dtype.kind == "f"), name
    assert {*decided().numpy()} == {*arrays} - {"x", "explored", "quantified"}


def test_a_decision_as_a_table():
    pl = pytest.importorskip("polars", reason="polars is not installed")
    decision = decided(keep_points=True)
    frame = decision.to_polars()
    assert frame.height == 8
    assert not {"x", "explored", "quantified", "norm"} & {*frame.columns}
    assert frame.columns[:2] == ["label", "base_label"]
    assert frame["label"].to_list() == decision.label.tolist()
    assert frame["margin"].to_list() == decision.margin.tolist()
    assert frame["robustness"].dtype == pl.Array(pl.Float64, 4)
    assert frame["robustness"].to_list() == decision.robustness.tolist()
    assert frame["reached"].to_list() == decision.reached.tolist()
    assert frame["radius"].to_list() == [0.3] * 8
    assert frame["gate_margin"].null_count() == 8  # there is none
    assert decision[:0].to_polars().shape == (0, frame.width)
    gated = decided(gate=drq.views.Gate(0.01))
    assert gated.to_polars()["gate_margin"].to_list() == gated.gate_margin.tolist()


def test_a_radius_that_was_not_found_is_nothing_in_a_table():
    pytest.importorskip("polars", reason="polars is not installed")
    decision = decided(radius=drq.Calibrated(confidence=0.99999, steps=2))
    assert not decision.found.any()
    assert decision.to_polars()["radius"].null_count() == 8


def test_without_polars_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "polars", None)
    refused(decided().to_polars, words=["polars must be installed for decision.to_polars()", "[report]"])
