"""Defences behind one call: what each makes of a model, what it answers, and what that costs."""

import json
from pathlib import Path

import pytest
import torch
from testbed.digits import Digits
from testbed.refusals import refused
from torch import Tensor, nn

import drq
from drq.defences import AntiAdversary, Custom, Defence, Quantified, Standard, answers
from drq.defences.answers import answered, settings
from drq.defences.defended import Label
from drq.method.adapters import Wrapper
from drq.models.classifier import Card

FEW = {"explore": drq.Gradient(4), "quantify": drq.Gradient(3)}


class Averaged(Wrapper):
    """The mean of several looks at a model; it has scores, and no ``decide``."""

    def __init__(self, model: nn.Module, looks: int = 3) -> None:
        super().__init__(model)
        self.looks = looks

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([self.model(x) for _ in range(self.looks)]).mean(0)


class Fickle(Wrapper):
    """Answers 0, 1, 2 ... in turn: how often it was asked before."""

    asked = 0

    def forward(self, x: Tensor) -> Tensor:
        self.asked += 1
        return self.model(x)

    def decide(self, x: Tensor) -> Label:
        label = Label(torch.full((len(x),), self.asked))
        self.asked += 1
        return label


class Sloped(Wrapper):
    """A defence that needs gradients, though nobody else does."""

    def forward(self, x: Tensor) -> Tensor:
        point = x.clone().requires_grad_()
        (slope,) = torch.autograd.grad(self.model(point).sum(), point)
        return self.model(x + 0.01 * slope)


def test_no_defence_is_the_model(digits: Digits) -> None:
    found = answered(Standard().around(digits.model), digits.x[:9], digits.y[:9])
    assert Standard().around(digits.model) is digits.model
    assert torch.equal(found.prediction, digits.model(digits.x[:9]).argmax(1))
    assert found.passes.tolist() == [1] * 9
    assert found.forward_passes.tolist() == [1] * 9
    assert set(found.columns) == {"prediction", "passes", "forward_passes", "seconds"}


@pytest.mark.parametrize(
    ("card", "given", "norm", "radius"),
    [
        (None, {}, drq.L2(), drq.Calibrated()),
        (Card("trained", norm="linf", radius=0.1), {}, drq.Linf(), 0.2),
        (Card("trained", norm="linf", radius=0.1), {"norm": "linf"}, drq.Linf(), 0.2),
        (Card("trained", norm="linf", radius=0.1), {"norm": "l2"}, drq.L2(), drq.Calibrated()),
        (Card("trained", norm="linf", radius=0.1), {"radius": 0.3}, drq.Linf(), 0.3),
        (Card("trained", norm="linf", radius=0.1), {"radius": drq.Calibrated()}, drq.Linf(), drq.Calibrated()),
        (Card("plain"), {"norm": "l1", "radius": 2.0}, drq.L1(), 2.0),
    ],
)
def test_drq_looks_where_the_training_says(card: Card | None, given: dict, norm: drq.Norm, radius: object) -> None:
    model = nn.Linear(3, 2).eval()
    if card is not None:
        model.card = card
    made = Quantified({**given, "alpha": 0.3}).around(model)
    assert (made.norm, made.radius, made.alpha) == (norm, radius, 0.3)
    assert made.model is model


def test_settings_of_drq_are_checked_without_a_model() -> None:
    refused(Quantified, {"alpha": 2}, words=["alpha must lie in [0, 1], got 2"])
    refused(Quantified, {"radius": -1.0}, words=["radius must be finite and at least 0, got -1.0"])


def test_the_columns_of_drq_are_those_of_its_decision(digits: Digits) -> None:
    x, y = digits.x[:12], (digits.y[:12] + torch.arange(12) % 2) % 10
    robust = Quantified({"norm": "linf", "radius": 0.2, **FEW}).around(digits.model)
    decision, found = robust.decide(x), answered(robust, x, y)
    each = torch.arange(12)
    assert torch.equal(found.prediction, decision.label)
    assert torch.equal(found.passes, decision.passes)
    assert torch.equal(found.margin, decision.margin)
    assert torch.equal(found.robustness, decision.robustness[each, decision.label])
    assert torch.equal(found.true_robustness, decision.robustness[each, y])
    assert torch.equal(found.explored, decision.explored_confidence[each, decision.label])
    assert torch.equal(found.true_explored, decision.explored_confidence[each, y])
    assert torch.equal(found.candidates, decision.reached.sum(1))
    assert torch.equal(found.way, decision.quantified[each, decision.label] - x)
    assert not torch.equal(found.robustness, found.true_robustness)


def test_the_way_is_that_of_the_answer_where_few_classes_are_searched(digits: Digits) -> None:
    """Then points stand in the order of the logits, not of the classes."""
    x, y = digits.x[:12], digits.y[:12]
    robust = Quantified({"norm": "linf", "radius": 0.2, "classes": 3, **FEW}).around(digits.model)
    decision, found = robust.decide(x), answered(robust, x, y)
    for row in range(12):
        place = decision.classes[row].tolist().index(int(decision.label[row]))
        assert torch.equal(found.way[row], decision.quantified[row, place] - x[row])


def test_kept_points_are_bounded_by_pieces(digits: Digits, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = digits.x[:11], digits.y[:11]
    robust = Quantified({"norm": "linf", "radius": 0.2, **FEW}).around(digits.model)
    whole, sizes = answered(robust, x, y), []
    monkeypatch.setattr(
        answers, "POINTS_BYTES", 4 * 2 * 10 * 64 * 4 + 5
    )  # 4 samples, 2 points for each of 10 classes, of 64 floats
    monkeypatch.setattr(robust, "decide", lambda x: sizes.append(len(x)) or drq.DRQ.decide(robust, x))
    pieces = answered(robust, x, y)
    assert sizes == [4, 4, 3]
    assert torch.equal(pieces.prediction, whole.prediction)
    torch.testing.assert_close(pieces.robustness, whole.robustness, atol=1e-5, rtol=0)
    assert len(pieces.way) == 11


def test_where_no_radius_is_found_there_is_none() -> None:
    """A linear model whose other class is never sure."""
    model = nn.Linear(2, 2).eval()
    model.weight.data, model.bias.data = torch.tensor([[0.0, 0.0], [1.0, 1.0]]), torch.tensor([0.0, -1.0])
    found = answered(Quantified({"radius": drq.Calibrated(0.9, 10)}).around(model), torch.rand(5, 2), torch.zeros(5).long())
    assert not found.found.any()
    assert found.radius.isnan().all()
    assert found.way.isnan().all()


def test_passes_of_others_are_the_evaluations_of_the_model_in_them(digits: Digits) -> None:
    """Anti-Adversary looks once for the label, once a step, and once more; asking for its label asks nothing else."""
    x, y, model = digits.x[:6], digits.y[:6], digits.model
    others = ((AntiAdversary(steps=2).around(model), 4, 2), (Averaged(model), 3, 3), (model, 1, 1), (Sloped(model), 2, 1))
    for defence, passes, forward in others:
        found = answered(defence, x, y, model)
        assert found.passes.tolist() == [passes] * 6
        assert found.forward_passes.tolist() == [forward] * 6
        assert torch.equal(found.prediction, defence(x).argmax(1))
        assert not model._forward_hooks
    assert answered(Averaged(model), x, y).passes.tolist() == [1] * 6  # nobody said which model is in it


def test_a_defence_is_asked_once(digits: Digits) -> None:
    defence = Fickle(digits.model)
    assert [int(answered(defence, digits.x[:1], digits.y[:1]).prediction) for _ in range(3)] == [0, 1, 2]


def test_a_drq_of_your_own_is_known_as_one(digits: Digits) -> None:
    """A function that returns DRQ has its columns; without points there is no way to them."""
    x, y = digits.x[:4], digits.y[:4]
    defence = Custom(lambda model: drq.DRQ(model, "linf", 0.2, **FEW)).around(digits.model)
    found = answered(defence, x, y)
    assert torch.equal(found.margin, drq.DRQ(digits.model, "linf", 0.2, **FEW).decide(x).margin)
    assert found.way is None


@pytest.mark.parametrize(
    ("robust", "expected"),
    [
        (drq.DRQ(nn.Identity(), **FEW), {"alpha": 0.5, "explore_steps": 4, "quantify_steps": 3}),
        (drq.DRQ(nn.Identity(), explore=drq.Random(5), alpha=0), {"alpha": 0.0, "quantify_steps": 20}),
        (
            drq.DRQ(nn.Identity(), radius=drq.Calibrated(0.9)),
            {"alpha": 0.5, "explore_steps": 20, "quantify_steps": 20, "threshold": 0.9},
        ),
        (nn.Identity(), {}),
    ],
)
def test_settings_that_records_carry(robust: nn.Module, expected: dict) -> None:
    assert settings(robust) == expected


def test_defences_of_your_own(digits: Digits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_defences.py").write_text(
        "import torch\n"
        "class Scaled(torch.nn.Module):\n"
        "    def __init__(self, model, share):\n"
        "        super().__init__()\n"
        "        self.model, self.share = model, share\n"
        "    def forward(self, x):\n"
        "        return self.share * self.model(x)\n"
        "def nothing(model):\n"
        "    return 3\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    named = Custom("my_defences:Scaled", {"share": -1}).around(digits.model)
    called = Custom(Averaged, {"looks": 2}).around(digits.model)
    assert torch.equal(named(digits.x[:5]), -digits.model(digits.x[:5]))
    assert (called.looks, called.training, named.training) == (2, False, False)
    refused(
        Custom("my_defences:nothing").around, digits.model, words=["my_defences:nothing must return a torch.nn.Module, got int"]
    )
    refused(Custom(lambda _: 3).around, digits.model, words=["defence must be a torch.nn.Module, got int"])
    refused(Custom("my_defences:Scaled").around, digits.model, words=["my_defences:Scaled must take these options"])


@pytest.mark.parametrize(
    ("defence", "record"),
    [
        (Standard(), {"defence": "standard"}),
        (Quantified({"norm": "l2", "radius": 0.5}), {"defence": "drq", "norm": "l2", "radius": 0.5}),
        (
            Quantified({"radius": drq.Calibrated(0.9), "bounds": None}),
            {"defence": "drq", "radius": repr(drq.Calibrated(0.9)), "bounds": None},
        ),
        (Custom("my.defences:Scaled", {"share": 2}), {"defence": "python:my.defences:Scaled", "share": 2}),
        (Custom(Averaged, {"looks": 2}), {"defence": "Averaged", "looks": 2}),
    ],
)
def test_records_of_defences_are_json(defence: Defence, record: dict) -> None:
    assert defence.record == record
    assert json.loads(json.dumps(record)) == record


def test_answers_that_are_none(digits: Digits) -> None:
    """What a defence returns is checked, as the red team does."""

    class Silent(Wrapper):
        def forward(self, x: Tensor) -> Tensor:
            return self.model(x)[:, 0]

    class Undecided(Wrapper):
        def decide(self, x: Tensor) -> Tensor:
            return self.model(x)

    refused(answered, Silent(digits.model), digits.x[:2], digits.y[:2], words=["model(x) must be scores of shape (N, C)"])
    refused(answered, Undecided(digits.model), digits.x[:2], digits.y[:2], words=["must return something with a label"])
