"""compile=True changes how fast a call is: not its answer, nor the model, nor what comes after an accident."""

import logging

import pytest
import torch
from testbed.classifiers import inputs, network
from testbed.compiled import agree, pair
from torch import Tensor, nn
from torch.nn.utils import prune

import drq
from drq.engine import slots
from drq.engine.compiled import Compiled
from drq.method.execution import InPrecision, prepare


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
        seen, execution = prepare(model, x, drq.L2(), (0.0, 1.0), None)
        assert seen.is_contiguous(memory_format=layout)
        assert execution.exact_layout == layout
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
    made = slots.SlotGroup.__init__
    monkeypatch.setattr(slots.SlotGroup, "__init__", lambda group, *given: made(group, *given[:4], slots.fused_update()))
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


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_views_are_looked_at_by_what_is_compiled(precision):
    model, x = network(0, classes=5, gain=4), inputs(0, 30, 4)
    if precision == "bfloat16":
        model, x = model.float(), x.float()
    fast, plain = (drq.DRQ(model, views="Monotone(0.3, 3)", compile=each, precision=precision) for each in (True, False))
    agree(fast.decide(x), plain.decide(x))
    agree(fast.gated(x.repeat(4, 1)).decide(x), plain.gated(x.repeat(4, 1)).decide(x))
    assert fast._engine.models
    assert torch.equal(fast(x.clone().requires_grad_()).argmax(1), fast.decide(x).label)
    around, each = (drq.DRQ(model.double(), "linf", 0.1, views="Monotone(0.3)", compile=each) for each in (True, False))
    agree(around.decide(x.double()), each.decide(x.double()))
