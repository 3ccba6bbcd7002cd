"""Accidents, threads and copies leave a compiled model as it was."""

import copy
import pickle
import threading
import time

import pytest
import torch
from testbed.classifiers import inputs, network
from testbed.compiled import agree, pair
from torch import Tensor, nn

import drq
from drq.engine import drive as engine
from drq.engine.compiled import Compiled


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
@pytest.mark.parametrize("at", [1, 9, 30])
def test_an_accident_leaves_nothing_behind(error, at):
    """Whether while blocks start, in exploration or in quantification."""
    inner, x, calls, armed = network(1, classes=5, gain=4), inputs(1, 9, 4), [], []

    def model(batch: Tensor) -> Tensor:
        calls.append(len(batch))
        if armed and len(calls) == at:
            raise error
        return inner(batch)

    fast, plain = pair(model, chunk=11)
    expected = plain.decide(x)
    agree(fast.decide(x), expected)
    calls.clear()
    armed.append(True)
    with torch.inference_mode(), pytest.raises(error) as kept:  # and its traceback with it
        fast.decide(inputs(3, 9, 4))
    assert kept
    armed.clear()
    assert torch.is_grad_enabled()
    assert not fast._engine.lock.locked()
    agree(fast.decide(x), expected)


@pytest.mark.usefixtures("uncompiled")
def test_an_accident_between_blocks_leaves_nothing_behind(monkeypatch):
    fast, _ = pair(network(1), chunk=4)
    with monkeypatch.context() as patch:
        patch.setattr("drq.drq.conclude", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError) as kept:
            fast.decide(inputs(1, 9, 4))
    assert kept
    assert not fast._engine.lock.locked()


def in_threads(robust: drq.DRQ, batches: list[Tensor]) -> list[drq.Decision | Exception | None]:
    found: list[drq.Decision | Exception | None] = [None] * len(batches)

    def work(number: int) -> None:
        try:
            found[number] = robust.decide(batches[number])
        except Exception as error:
            found[number] = error

    workers = [threading.Thread(target=work, args=(number,)) for number in range(len(batches))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=60)
    return found


@pytest.mark.usefixtures("uncompiled")
def test_threads_do_not_disturb_each_other():
    fast, plain = pair(network(2))
    batches = [inputs(seed, 3 + seed, 4) for seed in range(4)]
    fast.decide(batches[0])
    for batch, decision in zip(batches * 2, in_threads(fast, batches * 2), strict=True):
        agree(decision, plain.decide(batch))


@pytest.mark.usefixtures("uncompiled")
def test_threads_may_make_the_first_call_together(monkeypatch):
    made, together = [], threading.Barrier(2, timeout=1)

    class Late(Compiled):
        def __init__(self, *arguments) -> None:
            super().__init__(*arguments)
            made.append(self)
            last = len(made) == 2
            try:
                together.wait()
            except threading.BrokenBarrierError:
                return  # the other waited for this one to end, as it should
            time.sleep(0.2 * last)

    monkeypatch.setattr(engine, "Compiled", Late)
    fast, plain = pair(network(2), explore=drq.Gradient(300))
    x = inputs(2, 9, 4)
    for decision in in_threads(fast, [x, x]):
        agree(decision, plain.decide(x))


@pytest.mark.usefixtures("uncompiled")
def test_copies_of_a_used_engine_and_grad_modes():
    x = inputs(4, 9, 4)
    fast, plain = pair(network(4), "l2", drq.Calibrated(0.4, steps=6))
    expected, scores = plain.decide(x), plain(x)
    for robust in (fast, copy.deepcopy(fast), pickle.loads(pickle.dumps(fast)), fast.variant(alpha=0.5)):
        for mode in (torch.enable_grad, torch.inference_mode):
            with mode():
                agree(robust.decide(x.clone()), expected)
                torch.testing.assert_close(robust(x.clone()), scores, rtol=0, atol=1e-9)
        with torch.no_grad():  # not differentiated, though it could be
            assert not robust(x.clone().requires_grad_()).requires_grad


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_nothing_else_is_touched(precision):
    model, x = nn.Sequential(network(5).float(), nn.Dropout()).eval(), inputs(5, 9, 4).float()
    first, last = list(model.parameters())[::3]
    first.requires_grad_(False)
    last.grad = torch.full_like(last, 7.0)

    def state() -> list[object]:
        own = [(each.requires_grad, each.tolist(), str(each.grad)) for each in model.parameters()]
        return [own, [each.training for each in model.modules()], torch.get_rng_state().tolist(), x.tolist(), x.requires_grad]

    before = state()
    for robust in pair(model, precision=precision):
        robust.decide(x)
        robust(x)
        assert state() == before
