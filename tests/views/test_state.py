"""DRQ over views changes nothing but its result, and survives what modules go through."""

import copy
import io
import pickle
import threading

import pytest
import torch
from testbed.every_view import EVERY, SHAPES, batch, each_set, flat
from torch import nn

import drq
from drq.views import Gate, Mirror, Rotation, Scale

VIEWS = Rotation(90, 5) * Mirror() + Scale(2, 3)
SHAPE = (3, 6, 6)


def same(first: drq.Decision, second: drq.Decision) -> bool:
    return all(
        torch.equal(one, other) for one, other in zip(first.tensors(), second.tensors(), strict=True) if not one.isnan().any()
    )


@each_set
def test_inputs_are_left_alone(name):
    """Also by a model that writes into what it is given, and where memory is laid out in another order."""
    shape = SHAPES[name]
    x, model = batch(shape), flat(shape)

    class Writing(nn.Module):
        def forward(self, x):
            logits = model(x)
            x.zero_()
            return logits

    kept = x.clone()
    drq.DRQ(Writing().eval(), views=EVERY[name]).decide(x)
    assert torch.equal(x, kept)
    if len(shape) == 3:
        robust, other = drq.DRQ(model, views=EVERY[name]), x.contiguous(memory_format=torch.channels_last)
        torch.testing.assert_close(robust.decide(other).log_odds, robust.decide(x).log_odds, rtol=0, atol=1e-9)
    for view in EVERY[name]:
        view(x)
        view.inside(x, (0.0, 1.0))
    assert torch.equal(x, kept)


def test_it_survives_copies_pickle_and_state_dict():
    model, x = flat(SHAPE), batch(SHAPE)
    robust = drq.DRQ(model, views=VIEWS, keep_points=True).gated(batch(SHAPE, 100, 5))
    expected = robust.decide(x)
    for again in (copy.deepcopy(robust), pickle.loads(pickle.dumps(robust)), robust.variant(), robust.replica()):
        assert same(again.decide(x), expected)
        assert not again.ball_searched
        assert (again.gate, again.views) == (robust.gate, robust.views)
        assert again.variant(prune="race").gate == robust.gate
    stream = io.BytesIO()
    torch.save(robust.state_dict(), stream)
    stream.seek(0)
    other = drq.DRQ(flat(SHAPE), views=VIEWS, gate=robust.gate, keep_points=True)
    for parameter in other.parameters():
        parameter.data.zero_()
    other.load_state_dict(torch.load(stream))
    assert same(other.decide(x), expected)


def test_it_survives_a_change_of_dtype():
    model, x = flat(SHAPE), batch(SHAPE)
    robust = drq.DRQ(model, views=VIEWS)
    expected = robust.decide(x)
    changed = robust.to(torch.float32).decide(x.float())
    assert changed.robustness.dtype == torch.float32
    assert torch.equal(changed.label, expected.label)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("radius", [None, 0.05])
def test_it_moves_to_a_gpu(radius):
    ball = {} if radius is None else {"norm": "linf", "radius": radius, "explore": drq.Gradient(3), "quantify": drq.Gradient(3)}
    here = drq.DRQ(flat(SHAPE), views=VIEWS, keep_points=True, **ball).gated(batch(SHAPE, 100, 5))
    there, x = copy.deepcopy(here).to("cuda"), batch(SHAPE)
    expected, found = here.decide(x), there.decide(x.cuda())
    assert found.label.device.type == "cuda"
    for name in ("label", "view", "kept", "passes"):
        assert torch.equal(getattr(found, name).cpu(), getattr(expected, name))
    torch.testing.assert_close(found.log_odds.cpu(), expected.log_odds, rtol=0, atol=1e-6)
    assert there.gated(batch(SHAPE, 100, 5).cuda()).gate.threshold == pytest.approx(here.gate.threshold, abs=1e-6)
    x = x.cuda().requires_grad_()
    assert torch.autograd.grad(there(x).sum(), x)[0].isfinite().all()


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_later_weight_updates_are_seen(precision):
    model, x = flat(SHAPE).float(), batch(SHAPE).float()
    robust = drq.DRQ(model, views=VIEWS, precision=precision)
    assert (robust(x).argmax(1) != 2).any()
    with torch.no_grad():
        model[1][-1].bias[2] += 100
    assert (robust(x).argmax(1) == 2).all()
    model[1][-1] = nn.Linear(24, 3).eval()  # another head
    assert robust(x).shape == (len(x), 3)


def test_grad_modes_give_the_same_answer():
    model, x = flat(SHAPE), batch(SHAPE)
    robust = drq.DRQ(model, views=VIEWS, gate=Gate(0.1))
    expected, scores = robust.decide(x), robust(x)
    for mode in (torch.no_grad, torch.inference_mode, torch.enable_grad):
        with mode():
            assert same(robust.decide(x), expected)
            assert torch.equal(robust(x), scores)
            assert torch.equal(robust(x.clone()), scores)
            assert not robust.decide(x).log_odds.requires_grad
            fitted = robust.gated(batch(SHAPE, 100, 5)).gate
        assert fitted == robust.gated(batch(SHAPE, 100, 5)).gate
    assert not robust(x).requires_grad


def test_threads_do_not_disturb_each_other():
    robust = drq.DRQ(flat(SHAPE), views=VIEWS, alpha=0.3)
    batches = [batch(SHAPE, 6, seed) for seed in range(4)]
    expected, found = [robust.decide(each) for each in batches], dict[int, drq.Decision]()

    def work(number: int) -> None:
        for _ in range(3):
            found[number] = robust.decide(batches[number])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert all(same(found[number], expected[number]) for number in range(4))


def test_it_prints_its_settings():
    robust = drq.DRQ(flat(SHAPE), views=VIEWS, gate=Gate(0.5))
    assert robust.extra_repr() == "views='Rotation(90, 5) * Mirror() + Scale(2, 3)', gate: threshold 0.5"
    assert "norm=Linf(), radius=0.1" in drq.DRQ(flat(SHAPE), "linf", 0.1, views=VIEWS).extra_repr()


def test_what_it_costs_is_known_before(caplog):
    robust = drq.DRQ(flat(SHAPE), views=Rotation(180, 1000))
    with caplog.at_level("WARNING", logger="drq"):
        robust._log_cost(100, 5)
        assert not caplog.records
        robust._log_cost(101, 5)
    assert "this call takes up to 101,000 passes" in caplog.text


def test_an_interrupt_leaves_everything_as_it_was():
    model, x, calls = flat(SHAPE), batch(SHAPE), 0

    class Interrupted(nn.Module):
        def forward(self, x):
            nonlocal calls
            calls += 1
            if calls == 4:
                raise KeyboardInterrupt
            return model(x)

    robust = drq.DRQ(Interrupted().eval(), views=VIEWS, chunk=3)
    with torch.inference_mode(), pytest.raises(KeyboardInterrupt):
        robust.decide(x)
    assert torch.is_grad_enabled()
    expected = drq.DRQ(model, views=VIEWS, chunk=3).decide(x)
    assert same(robust.decide(x), expected)
