"""A call changes nothing but its result; a wrapped model survives what modules go through."""

import copy
import io
import logging
import pickle
import random
import threading

import numpy as np
import pytest
import torch
from testbed.classifiers import inputs, network
from torch import Tensor, nn

import drq


class Small(nn.Module):
    """A network that can be pickled, with dropout and batch statistics to tell evaluation from training."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(), nn.Linear(8, 3))

    def forward(self, x: Tensor) -> Tensor:
        return 3 * self.layers(x)


@pytest.fixture
def model() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Small().eval()


@pytest.fixture
def x() -> Tensor:
    return inputs(0, 8, 4).float()


def same(first: drq.Decision, second: drq.Decision) -> bool:
    return torch.equal(first.label, second.label) and torch.equal(first.robustness, second.robustness)


METHODS = {
    "gradient": {},
    "random": {"explore": drq.Random(3), "quantify": drq.Random(3)},
    "noise": {"explore": drq.Gradient(3, smooth=drq.Noise(2))},
    "unrolled": {"explore": drq.Gradient(3, unroll=True, direction="raw"), "quantify": drq.Gradient(3, unroll=True)},
    "calibrated": {"radius": drq.Calibrated(steps=5)},
    "bfloat16": {"precision": "bfloat16"},
    "views": {"radius": drq.drq.CALIBRATED, "views": "Monotone(0.5, 2)"},
    "views, gated": {"radius": drq.drq.CALIBRATED, "views": "Monotone(0.5, 2)", "gate": drq.views.Gate(0.1, (0, 1), (1, 2))},
    "views, quantified": {"radius": drq.drq.CALIBRATED, "views": "Gain(4, 5)", "alpha": 0.5, "precision": "bfloat16"},
    "views in balls": {"views": "Monotone(0.5, 2)"},
}


@pytest.mark.parametrize("settings", METHODS.values(), ids=METHODS.keys())
@pytest.mark.parametrize("differentiated", [False, True])
def test_no_global_state_is_touched(model, x, settings, differentiated):
    first = next(model.parameters())
    first.requires_grad_(False)
    last = model.layers[-1].weight
    last.grad = torch.full_like(last, 7.0)
    flags = (
        lambda: torch.backends.cuda.matmul.allow_tf32,
        lambda: torch.backends.cudnn.allow_tf32,
        lambda: torch.get_float32_matmul_precision(),
        lambda: torch.is_grad_enabled(),
        lambda: torch.is_inference_mode_enabled(),
        lambda: torch.is_autocast_enabled("cpu"),
        lambda: torch.get_num_threads(),
        lambda: torch.get_default_dtype(),
        lambda: torch.initial_seed(),
        lambda: torch.get_rng_state().tolist(),
        lambda: random.getstate(),
        lambda: np.random.get_state()[1].tolist(),
        lambda: [p.requires_grad for p in model.parameters()],
        lambda: [None if p.grad is None else p.grad.tolist() for p in model.parameters()],
        lambda: [module.training for module in model.modules()],
        lambda: [buffer.tolist() for buffer in model.buffers()],
        lambda: [p.tolist() for p in model.parameters()],
        lambda: (x.tolist(), x.requires_grad, x.grad),
    )
    x.requires_grad_(differentiated)
    before = [flag() for flag in flags]
    robust = drq.DRQ(model, **{"norm": "l2", "radius": 0.3, **settings})
    robust.decide(x)
    robust(x)
    assert [flag() for flag in flags] == before


def test_grad_modes_give_the_same_answer(model, x):
    robust = drq.DRQ(model, "l2", 0.3)
    expected, scores = robust.decide(x), robust(x)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert same(robust.decide(x), expected)
            assert torch.equal(robust(x), scores)
            assert not robust(x.clone()).requires_grad
    with torch.inference_mode():
        made_inside = x.clone()
        assert torch.equal(robust(made_inside), scores)
    assert torch.equal(robust(x.clone().requires_grad_()).detach(), scores)


def test_under_ambient_autocast(model, x):
    robust = drq.DRQ(model, "l2", 0.3)
    with torch.autocast("cpu", torch.bfloat16):
        assert robust(x).dtype == torch.float32


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_later_weight_updates_are_seen(model, x, precision):
    robust = drq.DRQ(model, "l2", 0.3, precision=precision)
    before = robust(x)
    with torch.no_grad():
        model.layers[-1].bias += torch.tensor([0.0, 0.0, 50.0])
    assert (before.argmax(1) != 2).any()
    assert (robust(x).argmax(1) == 2).all()
    model.load_state_dict({name: torch.zeros_like(value) for name, value in model.state_dict().items()})
    torch.testing.assert_close(robust.decide(x).robustness.amax(1), torch.full((8,), 1 / 3), rtol=0, atol=1e-2)


def test_threads_do_not_disturb_each_other(model):
    batches = [inputs(seed, 5, 4).float() for seed in range(4)]
    robust = drq.DRQ(model, "l2", 0.3, explore=drq.Gradient(5, smooth=drq.Noise(2)))
    expected = [robust.decide(batch) for batch in batches]
    results: dict[int, drq.Decision] = {}

    def work(number: int) -> None:
        for _ in range(3):
            results[number] = robust.decide(batches[number])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert all(same(results[number], expected[number]) for number in range(4))


def test_interrupt_leaves_everything_as_it_was(model, x):
    calls = 0

    class Interrupted(nn.Module):
        def forward(self, batch: Tensor) -> Tensor:
            nonlocal calls
            calls += 1
            if calls == 9:
                raise KeyboardInterrupt
            return model(batch)

    interrupted = Interrupted().eval()
    robust, expected = drq.DRQ(interrupted, "l2", 0.3), drq.DRQ(model, "l2", 0.3).decide(x)
    with torch.inference_mode(), pytest.raises(KeyboardInterrupt):
        robust.decide(x)
    assert torch.is_grad_enabled()
    assert all(parameter.grad is None for parameter in model.parameters())
    assert same(robust.decide(x), expected)


def test_survives_copies_pickle_and_state_dict(model, x):
    robust = drq.DRQ(model, "l2", torch.full((8,), 0.3), frozen=torch.tensor([True, False, False, False]))
    expected = robust.decide(x)
    assert same(copy.deepcopy(robust).decide(x), expected)
    assert same(pickle.loads(pickle.dumps(robust)).decide(x), expected)
    stream = io.BytesIO()
    torch.save(robust.state_dict(), stream)
    stream.seek(0)
    assert set(robust.state_dict()) == {f"model.{name}" for name in model.state_dict()}
    other = drq.DRQ(Small().eval(), "l2", 0.3, frozen=robust.frozen)
    other.load_state_dict(torch.load(stream))
    assert same(other.decide(x), expected)


def test_survives_a_change_of_dtype(model, x):
    robust = drq.DRQ(model, "l2", 0.3, bounds=(torch.zeros(4), torch.ones(4)))
    expected = robust.decide(x)
    changed = robust.to(torch.float64).decide(x.double())
    assert changed.robustness.dtype == torch.float64
    assert torch.equal(changed.label, expected.label)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_moves_to_a_gpu():
    model, x = network(0), inputs(0, 20, 4)
    here = drq.DRQ(model, "l2", 0.3, bounds=(torch.zeros(4), torch.ones(4)), frozen=torch.tensor([True, False, False, False]))
    expected = here.decide(x)
    there = copy.deepcopy(here).to("cuda")
    decision = there.decide(x.cuda())
    assert decision.label.device.type == "cuda"
    assert torch.equal(decision.label.cpu(), expected.label)
    torch.testing.assert_close(decision.robustness.cpu(), expected.robustness, rtol=0, atol=1e-6)


def test_decision_is_frozen_and_indexable(model, x):
    decision = drq.DRQ(model, "l2", 0.3, keep_points=True).decide(x)
    with pytest.raises(AttributeError):
        decision.label = None
    assert len(decision) == 8
    assert torch.equal(decision[torch.tensor([3, 1])].robustness, decision.robustness[[3, 1]])


def test_costly_call_is_logged_once_and_names_the_remedy(model, caplog):
    robust = drq.DRQ(model, "l2", 0.3, explore=drq.Gradient(1), quantify=drq.Gradient(1))
    with caplog.at_level(logging.WARNING, logger="drq"):
        robust.decide(torch.rand(1000, 4))
        assert not caplog.records
        drq_large = drq.DRQ(model, "l2", 0.0, explore=drq.Random(10_000), quantify=drq.Random(10_000))
        for _ in range(2):
            drq_large._log_cost(100, 3)
    assert len(caplog.records) == 1
    assert "classes=" in caplog.text


def test_wrapper_is_in_the_mode_of_its_model(model):
    assert not drq.DRQ(model).training
    assert drq.DRQ(model.train()).training
    assert not drq.DRQ(lambda x: x).training


def test_cost_of_a_call_is_judged_at_its_threshold(model, caplog):
    with caplog.at_level(logging.WARNING, logger="drq"):
        robust = drq.DRQ(model, "l2", 0.1, explore=drq.Gradient(1), quantify=drq.Gradient(1))
        assert robust.most_passes(1) == 5
        robust._log_cost(20_000, 1)
        assert not caplog.records
        robust._log_cost(20_001, 1)
    assert len(caplog.records) == 1


@pytest.mark.parametrize("radius", [0.3, drq.Calibrated(steps=10)])
def test_most_passes_bound_what_is_spent_and_count_calibration(model, radius):
    """Reached for certain by a class that is everywhere reached; a calibrated radius takes 11 passes more."""
    robust = drq.DRQ(model, "l2", radius, explore=drq.Gradient(2), quantify=drq.Gradient(3), prune="none")
    expected = 1 + (11 if isinstance(radius, drq.Calibrated) else 0) + 3 * (3 + 4)
    assert robust.most_passes(3) == expected
    passes = robust.decide(torch.rand(50, 4)).passes
    assert passes.max() <= expected
    assert robust.variant(classes=2).most_passes(3) == expected - 7


def test_variant_changes_what_is_asked_and_nothing_else(model):
    robust = drq.DRQ(model, "linf", 0.2, alpha=0.3, explore=drq.Gradient(9), prune="none", keep_points=True, bounds=None)
    other = robust.variant(alpha=0.7)
    assert (other.alpha, robust.alpha) == (0.7, 0.3)
    assert other.model is robust.model
    same = {name for name in vars(robust) if not name.startswith("_")} - {"alpha", "training"}
    assert same >= {"norm", "radius", "explore", "quantify", "prune", "keep_points", "bounds", "explore_base"}
    assert all(getattr(other, name) == getattr(robust, name) for name in same)
    short = robust.shortened(4)
    assert (short.explore, short.quantify, short.prune) == (drq.Gradient(4), drq.Gradient(4), "none")


def test_variants_keep_every_setting() -> None:
    settings = {
        "chunk": 3,
        "frozen": torch.tensor([True, False]),
        "bounds": (0.1, 0.9),
        "classes": 2,
        "precision": "bfloat16",
        "explore_base": False,
    }
    other = drq.DRQ(torch.nn.Linear(2, 3).eval(), "l1", 0.2, **settings).variant(alpha=0.7)
    assert all(getattr(other, name) is value for name, value in settings.items())
