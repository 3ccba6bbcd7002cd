"""compile=True changes how fast a call is: not its answer, nor the model, nor what comes after an accident."""

import copy
import logging
import pickle
import threading
import time

import pytest
import torch
from testbed.classifiers import inputs, network
from torch import Tensor, nn
from torch.nn.utils import prune

import drq
from drq.engine import drive as engine
from drq.engine import slots
from drq.engine.compiled import Compiled
from drq.method.setting import InPrecision, prepare

STEPS = {"explore": drq.Gradient(5), "quantify": drq.Gradient(6)}


@pytest.fixture
def uncompiled(monkeypatch):
    """Everything but the compiler, which takes half a minute."""
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)


def pair(model, *settings, **others) -> tuple[drq.DRQ, drq.DRQ]:
    settings = settings or ("l2", 0.3)
    return tuple(drq.DRQ(model, *settings, compile=compile, **STEPS | others) for compile in (True, False))


def agree(first: drq.Decision, second: drq.Decision) -> None:
    for name in ("label", "exact", "reached", "passes"):
        assert torch.equal(getattr(first, name), getattr(second, name)), name
    torch.testing.assert_close(first.log_odds, second.log_odds, rtol=0, atol=1e-9)


UPDATES = {
    "in place": lambda model: model[-1].bias.data.add_(torch.tensor([0.0, 9.0, 0.0, 0.0])),
    "state dict": lambda model: model.load_state_dict(network(8).state_dict()),
    "parameters replaced": lambda model: [setattr(each, "data", each.data.flip(0).clone()) for each in model.parameters()],
    "layer replaced": lambda model: model.__setitem__(2, network(9)[2]),
    "buffer": lambda model: model.register_buffer("shift", torch.zeros(3)),
    "as it was": nn.Module.eval,
}


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("update", UPDATES.values(), ids=UPDATES.keys())
def test_later_weights_are_seen(update):
    model, x = network(0), inputs(0, 9, 4)
    fast, plain = pair(model)
    agree(fast.decide(x), before := plain.decide(x))
    with torch.no_grad():
        update(model)
    after = plain.decide(x)
    assert torch.equal(before.log_odds, after.log_odds) == (update in (UPDATES["as it was"], UPDATES["buffer"]))
    agree(fast.decide(x), after)


@pytest.mark.usefixtures("uncompiled")
def test_later_statistics_and_a_change_of_dtype_are_seen():
    model, x = nn.Sequential(*network(0)[:2], nn.BatchNorm1d(24), network(0)[2]).double().eval(), inputs(0, 9, 4)
    fast, plain = pair(model)
    fast.decide(x)
    model[2].running_mean += torch.linspace(-1, 1, 24)
    agree(fast.decide(x), plain.decide(x))
    fast.float()
    assert fast.decide(x.float()).log_odds.dtype == torch.float32
    fast.double()
    agree(fast.decide(x), plain.decide(x))


class Hidden(nn.Module):
    """A module whose temperature and inner network are attributes that PyTorch knows nothing of."""

    def __init__(self) -> None:
        super().__init__()
        self.temperature, self.inner = 1.0, [network(0)]

    def forward(self, x: Tensor) -> Tensor:
        return self.inner[0](x) / self.temperature


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize(
    "update", [lambda m: setattr(m, "temperature", 0.1), lambda m: m.inner[0][2].bias.data.add_(torch.eye(4)[0] * 9)]
)
@pytest.mark.xfail(strict=True, reason="the twin has copies of attributes that are neither parameters, buffers nor modules")
def test_later_attributes_are_seen(update):
    x = inputs(0, 6, 4)
    fast, plain = pair(model := Hidden().eval())
    agree(fast.decide(x), plain.decide(x))
    update(model)
    agree(fast.decide(x), plain.decide(x))


@pytest.mark.usefixtures("uncompiled")
def test_what_a_compiled_model_follows():
    model, x = nn.Sequential(network(0), nn.BatchNorm1d(4).double()).eval(), inputs(0, 3, 4)
    compiled = Compiled(model, None)
    torch.testing.assert_close(compiled(x), model(x), rtol=0, atol=1e-12)
    assert not compiled(x).requires_grad
    assert compiled(x.clone().requires_grad_()).requires_grad
    assert compiled.follows(model)
    assert not compiled.follows(copy.deepcopy(model))


@pytest.mark.usefixtures("uncompiled")
def test_variants_share_what_is_compiled(caplog):
    fast, plain = pair(network(0, classes=5, gain=4))
    x = inputs(0, 7, 4)
    with caplog.at_level(logging.WARNING, logger="drq"):
        for changes in ({}, {"alpha": 0.2}, {"explore": drq.Gradient(3)}, {"precision": "bfloat16"}, {}):
            other = fast.variant(**changes)
            if changes.get("precision") is None:
                agree(other.decide(x), plain.variant(**changes).decide(x))
            else:
                other.decide(x)
    assert len(caplog.records) == 2  # one for each precision
    assert len({id(each) for each in fast._engine.models.values()}) == 2


class Odd(nn.Module):
    """Models that work, and of which a careless copy does not."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what, self.first, self.norm, self.head = what, nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)
        self.seen: dict[str, Tensor] = {}
        self.other, self.first.weight.factor = nn.Parameter(torch.linspace(-1, 1, 8)), 2.0
        with torch.no_grad():
            self.norm.running_mean.copy_(torch.linspace(-0.3, 0.3, 8))
            self.norm.running_var.copy_(torch.linspace(0.2, 3, 8))
            for seed, each in enumerate(self.parameters()):
                each.copy_(inputs(seed, *each.shape) - 0.5)
        if what == "closure":
            self.norm.register_forward_hook(lambda _, __, out: self.seen.update(z=out))
        if what == "pruned":
            prune.l1_unstructured(self.norm, "weight", 0.5)

    def forward(self, x: Tensor) -> Tensor:
        z = self.first(x)
        if self.what == "transposed":
            z = z[:, :, None].expand(-1, -1, 4).transpose(1, 2).contiguous().transpose(1, 2)
            return self.head(self.norm(z).view(len(x), 8, 4).mean(2))
        if self.what == "asked for":
            return self.head(self.norm(z) if isinstance(self.norm, nn.BatchNorm1d) else z)
        if self.what == "attribute":
            return self.head(self.norm(z) * self.first.weight.factor)
        if self.what == "adapted":
            self.norm.running_mean = self.other.detach()
        z = self.norm(z)
        z = self.seen["z"] if self.what == "closure" else z
        if self.what == "full":
            with torch.autocast("cpu", enabled=False):
                return self.head(z.float())
        return self.head(z)


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("what", ["transposed", "asked for", "attribute", "adapted", "closure", "pruned", "full"])
def test_odd_models_are_compiled_as_they_are(what, precision):
    model, x = Odd(what).eval(), inputs(1, 6, 6).float()
    for robust in (pair := [drq.DRQ(model, "l2", 0.4, compile=each, precision=precision) for each in (True, False)]):
        robust.decide(x)
    with torch.no_grad():
        next(each for name, each in model.named_parameters() if "norm.weight" in name).mul_(-2)
        model.head.bias.add_(torch.tensor([0.0, 0.5, -0.5]))
    fast, plain = (robust.decide(x) for robust in pair)
    assert torch.equal(fast.label, plain.label)
    known = fast.exact & plain.exact & fast.reached & plain.reached
    torch.testing.assert_close(fast.log_odds[known], plain.log_odds[known], rtol=0, atol=1e-4 if precision == "float32" else 0.3)


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.filterwarnings("ignore:.*torch.jit.trace.*:DeprecationWarning")
def test_pictures_of_one_channel_and_scripted_models():
    """Channels last is what one channel always is; a scripted model is copied with weights of its own."""
    body = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 1, 2)).eval()
    grey = drq.FirstOutput(lambda x: (body(x).view(len(x), -1),))
    x = inputs(2, 5, 1, 6, 6).float()
    fast, plain = (drq.DRQ(grey, "l2", 0.4, compile=each, precision="bfloat16") for each in (True, False))
    assert torch.equal(fast.decide(x).label, plain.decide(x).label)
    scripted = torch.jit.trace(network(3), inputs(0, 2, 4))
    fast, plain = pair(scripted)
    fast.decide(inputs(3, 6, 4))
    with torch.no_grad():
        for each in scripted.parameters():
            each.mul_(-2)
    agree(fast.decide(inputs(3, 6, 4)), plain.decide(inputs(3, 6, 4)))


def test_each_model_is_compiled_from_code_of_its_own(monkeypatch):
    """PyTorch stops compiling code that was compiled eight times, and says so in a log only."""
    made = []
    monkeypatch.setattr(torch, "compile", lambda function, **_: made.append(function) or function)
    compiled, x = [Compiled(network(seed), None) for seed in (0, 1)], inputs(0, 3, 4)
    assert [torch.equal(each(x), network(seed)(x)) for seed, each in enumerate(compiled)] == [True, True]
    assert len({id(each.__code__) for each in made}) == 2


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("change", [{"norm": drq.Linf()}, {"bounds": None}, {"frozen": torch.arange(4) < 2}], ids=str)
def test_settings_that_are_changed_later_are_seen(change):
    x = inputs(2, 6, 4)
    fast, plain = pair(network(2), "l2", 0.4)
    agree(fast.decide(x), plain.decide(x))
    for robust in (fast, plain):
        vars(robust).update(change)
    agree(fast.decide(x), plain.decide(x))


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


@pytest.mark.usefixtures("uncompiled")
def test_differentiated_calls_are_the_same():
    fast, plain = pair(network(6), prune="none")
    fast.decide(inputs(6, 9, 4))
    gradients = []
    for robust in (fast, plain):
        x = inputs(6, 9, 4).requires_grad_()
        scores = robust(x)
        gradients.append(torch.autograd.grad(scores[scores > -1e4].sum(), x)[0])
    assert torch.equal(*gradients)
    assert (gradients[0] != 0).any(1).all()


class Picture(nn.Module):
    """Convolutions and a linear layer, between which features are flattened in its own way."""

    def __init__(self, flatten) -> None:
        super().__init__()
        self.convolution, self.flatten = nn.Conv2d(3, 5, 3, padding=1).double(), flatten
        self.head = nn.Linear(5 * 36, 4).double()
        with torch.no_grad():
            for seed, each in enumerate(self.parameters()):
                each.copy_(inputs(seed, *each.shape) * 0.6 - 0.3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.flatten(torch.tanh(self.convolution(x))))


@pytest.mark.usefixtures("uncompiled")
def test_layouts_are_those_that_the_model_takes():
    """Channels last where it may be so: ``view`` refuses. The answer is that of the model."""
    x, answers = inputs(7, 5, 3, 6, 6), []
    kinds = {torch.channels_last: lambda z: z.flatten(1), torch.contiguous_format: lambda z: z.view(len(z), -1)}
    for layout, flatten in kinds.items():
        model = Picture(flatten).eval()
        seen, setting = prepare(model, x, drq.L2(), (0.0, 1.0), None)
        assert seen.is_contiguous(memory_format=layout)
        assert setting.exact_layout == layout
        assert torch.equal(seen, x)
        fast, plain = pair(model, "l2", 1.5, chunk=7, keep_points=True)
        answers += [fast.decide(x), plain.decide(x)]
    assert answers[0].reached.sum() > 8
    for answer in answers[1:]:
        agree(answer, answers[0])
        torch.testing.assert_close(answer.explored, answers[0].explored, rtol=0, atol=1e-9, equal_nan=True)


HALF = [(dtype, order) for dtype in (torch.bfloat16, torch.float16) for order in (1, 2)]


@pytest.mark.parametrize(("kind", "order"), HALF)
def test_derivatives_in_half_precision(kind, order):
    model, found = network(0).float(), []
    for dtype in (None, kind):
        x = inputs(0, 30, 4).float().requires_grad_()
        (slope,) = torch.autograd.grad(InPrecision(model, dtype)(x)[:, 0].sum(), x, create_graph=order == 2)
        found.append(slope if order == 1 else torch.autograd.grad(slope.sum(), x)[0])
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=0.05 * found[0].abs().max().item())


@pytest.mark.usefixtures("uncompiled")
def test_compiling_is_announced_once_and_again_for_other_weights(caplog):
    fast, _ = pair(model := network(3))
    with caplog.at_level(logging.WARNING, logger="drq"):
        for count in (1, 5, 40):
            fast.decide(inputs(3, count, 4))
        assert len(caplog.records) == 1
        assert "compiled" in caplog.text
        model[0].weight.data = model[0].weight.data.clone()
        fast.decide(inputs(3, 2, 4))
    assert len(caplog.records) == 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")  # of the compiler's own
def test_one_compilation_serves_batches_of_all_sizes(caplog):
    fast, plain = pair(network(3, classes=10, gain=4).float(), "l2", 0.4)
    torch._dynamo.reset()
    graphs = torch._dynamo.utils.counters["stats"]
    before = graphs["unique_graphs"]
    with caplog.at_level(logging.WARNING, logger="drq"):
        for count in (1, 5, 40):
            x = inputs(count, count, 4).float()
            decision, expected = fast.decide(x), plain.decide(x)
            assert torch.equal(decision.label, expected.label)
            known = decision.exact & expected.exact & expected.reached
            torch.testing.assert_close(decision.log_odds[known], expected.log_odds[known], rtol=0, atol=1e-3)
    assert graphs["unique_graphs"] - before == 1
    assert len(caplog.records) == 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")  # of the compiler's own
@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_what_follows_a_look_is_the_same_when_compiled(norm, monkeypatch):
    """On a GPU it is; here every lane is made to."""
    made = slots.Lane.__init__
    monkeypatch.setattr(slots.Lane, "__init__", lambda lane, *given: made(lane, *given[:4], slots.fused()))
    for radius in (0.4, drq.Calibrated(0.4, steps=6)):
        fast, plain = pair(network(0, classes=10, gain=4), norm, radius)
        graphs = []
        for count in (3, 40, 17):
            x = inputs(count, count, 4)
            decision, expected = fast.decide(x), plain.decide(x)
            if radius == 0.4:
                agree(decision, expected)
            else:  # it ends at a boundary, and on which side of it is left to rounding
                same = torch.isclose(decision.radius, expected.radius, rtol=0, atol=1e-12)
                assert same.double().mean() > 0.9
            graphs.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
        assert graphs[1] == graphs[2]
    assert not torch._dynamo.utils.counters["graph_break"]
