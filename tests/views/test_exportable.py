"""DRQ over views as tensor operations alone: the same scores as ever, whoever traces them."""

import math

import pytest
import torch
from testbed.every_view import EVERY, SHAPES, batch, each_set, flat
from testbed.refusals import refused
from torch import nn
from torch.export import Dim

import drq
from drq.views import Gate, Mirror, Rotation, Scale
from drq.views.exportable import log_sigmoid

SHAPE = (3, 6, 6)
TURNS = Rotation(90, 5) + Scale(2, 3)
HABIT = ((0.5, -0.5, 0.25, 0.0, 1.0, 0.5), (1.5, 2.0, 1.0, 0.5, 1.0, 2.0))
SETTINGS = {
    "plain": {},
    "gated": {"gate": Gate(0.5)},
    "standardised": {"gate": Gate(0.2, *HABIT)},
    "held": {"gate": Gate(math.inf)},
    "opened": {"gate": Gate(-math.inf, *HABIT)},
    "quantified": {"alpha": 0.5},
    "quantified and gated": {"alpha": 0.5, "gate": Gate(0.2, *HABIT)},
    "three classes": {"classes": 3},
    "a front": {"front": drq.Restoration()},
    "own bounds": {"bounds": (torch.zeros(3, 1, 1), torch.ones(1, 6, 6))},
    "no bounds": {"bounds": None},
    "left out early": {"gate": Gate(0.5, ahead=math.inf), "prune": "race"},
    "rounded": {"precision": "bfloat16"},
    "in pieces": {"chunk": 5},
}
each_setting = pytest.mark.parametrize("setting", SETTINGS)
STRONG = 20.0  # so confident that sigmoids are 1


def pair(gain: float = 6.0, **settings: object) -> tuple[drq.DRQ, torch.Tensor]:
    robust = drq.DRQ(flat(SHAPE, gain=gain), **{"views": TURNS} | settings)
    return robust, batch(SHAPE, 60)


@each_set
def test_every_view(name):
    robust = drq.DRQ(flat(SHAPES[name]), views=EVERY[name])
    x = batch(SHAPES[name])
    torch.testing.assert_close(robust.exportable()(x), robust(x), rtol=0, atol=1e-6)
    program = torch.export.export(robust, (x[:3],), dynamic_shapes=({0: Dim.DYNAMIC},))
    torch.testing.assert_close(program.module()(x), robust(x), rtol=0, atol=1e-6)


@each_setting
@pytest.mark.parametrize("gain", [6.0, STRONG])
def test_every_setting(setting, gain):
    robust, x = pair(gain, **SETTINGS[setting])
    decision = robust.decide(x)
    if gain == STRONG and setting == "plain":
        assert (decision.log_odds.topk(2).values[:, 1] > 20).any(), "no two classes are certain: this shows less"
    exact = robust.variant(precision="float32")  # which is how it is exported
    found = robust.exportable()(x)
    torch.testing.assert_close(found, exact(x), rtol=1e-6, atol=1e-6)
    assert torch.equal(found.argmax(1), decision.label)


def test_kept_and_changed_answers_are_among_them():
    for setting in ("gated", "standardised", "quantified and gated"):
        decision = pair(**SETTINGS[setting])[0].decide(pair()[1])
        assert decision.kept.any(), setting
        assert (decision.label != decision.base_label).any(), setting


@each_setting
def test_exported_for_any_batch_and_nothing_is_left_behind(setting):
    robust, x = pair(**SETTINGS[setting])
    before = robust.variant(precision="float32")(x)
    program = torch.export.export(robust, (x[:4],), dynamic_shapes=({0: Dim.DYNAMIC},))
    for count in (1, 2, 60):
        torch.testing.assert_close(program.module()(x[:count]), before[:count], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(drq.DRQ(robust.model, **robust.settings | {"precision": "float32"})(x), before, rtol=0, atol=0)


def test_every_way_of_tracing_it():
    robust, x = pair(gate=Gate(0.5))
    expected = robust(x)
    ways = {
        "strict": lambda: torch.export.export(robust, (x,), strict=True).module()(x),
        "vmap": lambda: torch.vmap(robust)(x[:, None])[:, 0],
        "vmap of samples": lambda: torch.vmap(lambda one: robust(one[None])[0])(x),
        "graph": lambda: torch.compile(robust.exportable(), backend="eager", fullgraph=True)(x),
    }
    for name, way in ways.items():
        torch.testing.assert_close(way(), expected, rtol=0, atol=1e-6, msg=name)


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_a_trace_of_torch_jit_holds_no_decision():
    """What was traced on some inputs is right on others."""
    robust, x = pair(gate=Gate(0.5))
    traced = torch.jit.trace(robust, x[:2])
    torch.testing.assert_close(traced(x), robust(x), rtol=0, atol=1e-6)


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")  # by which torch makes forward derivatives
def test_slopes_are_those_of_robust():
    robust, x = pair(gate=Gate(0.5))

    def top(scores: torch.Tensor) -> torch.Tensor:
        return scores.max(1).values.sum()

    leaf = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(top(robust(leaf)), leaf)
    torch.testing.assert_close(torch.func.grad(lambda x: top(robust(x)))(x), expected, rtol=0, atol=1e-6)
    each = torch.vmap(torch.func.grad(lambda one: top(robust(one[None]))))(x)
    torch.testing.assert_close(each, expected, rtol=0, atol=1e-6)
    mirrored = drq.DRQ(robust.model, views=Mirror())  # of turned pictures torch has no forward derivative
    leaf = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(top(mirrored(leaf)), leaf)
    _, along = torch.func.jvp(lambda x: top(mirrored(x)), (x,), (torch.ones_like(x),))
    torch.testing.assert_close(along, slope.sum(), rtol=0, atol=1e-6)


def test_a_model_that_looks_at_values_in_usual_calls_does_not_in_a_trace():
    model = drq.models.Classifier(flat(SHAPE), drq.models.Card("mine"), [0.5] * 3, [0.5] * 3).eval()
    robust, x = drq.DRQ(model, views=TURNS), batch(SHAPE)
    torch.testing.assert_close(torch.vmap(robust)(x[:, None])[:, 0], robust(x), rtol=0, atol=1e-6)


def test_what_is_in_training_mode_is_not_exported():
    model = nn.Sequential(flat(SHAPE), nn.Dropout())
    refused(drq.DRQ(model.eval().train(), views=TURNS).exportable, words=["got model (Sequential) in training mode"])
    robust = drq.DRQ(model.eval(), views=TURNS)
    model[1].train()
    refused(torch.export.export, robust, (batch(SHAPE),), words=["got model.1 (Dropout) in training mode"])
    fronted = drq.DRQ(flat(SHAPE), views=TURNS, front=nn.Dropout())
    refused(fronted.exportable, words=["front must be in evaluation mode, got front (Dropout) in training mode"])


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 5e-7), (torch.float64, 1e-9)])
def test_the_logarithm_of_the_sigmoid(dtype, tolerance):
    """Relative, so that those of certain classes are told apart; and they only grow."""
    odds = torch.linspace(-120, 79, 20_001, dtype=dtype)
    expected = nn.functional.logsigmoid(odds.double())
    found = log_sigmoid(odds)
    assert ((found.double() - expected) / expected).abs().max() < tolerance
    assert (found[odds > 17].diff() > 0).all()
