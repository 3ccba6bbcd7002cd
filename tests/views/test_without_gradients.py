"""Views ask for forward passes alone: models answer that have no gradients, refuse them, or are not torch's at all."""

import struct

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from testbed.every_view import batch, flat, plain_loop
from testbed.refusals import refused
from torch import Tensor, nn

import drq
from drq.views import Gate, Mirror, Rotation

SHAPE = (1, 8, 8)
VIEWS = Rotation(90, 5) * Mirror()


class InNumpy:
    """A model outside of torch: what asks for a gradient cannot be handed over."""

    def __init__(self, logits) -> None:
        self.logits, self.rows = logits, 0

    def __call__(self, x: Tensor) -> Tensor:
        self.rows += len(x)
        return torch.from_numpy(self.logits(x.numpy()).astype(np.float64)).to(x.dtype)


class Refusing(nn.Module):
    """A model that takes nothing that could be differentiated, and says so in its own way."""

    class NoError(Exception):
        pass

    def __init__(self) -> None:
        super().__init__()
        self.inner = flat(SHAPE).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        if x.requires_grad:
            raise self.NoError("gradients are not for sale")
        return self.inner(x)


class Cut(Refusing):
    """A model whose output is cut off its input."""

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x.detach()).detach()


class Rounded(Refusing):
    """A model with a step that has no gradient."""

    def forward(self, x: Tensor) -> Tensor:
        return self.inner((8 * x).round() / 8)


class Frozen(Refusing):
    """A model whose parameters ask for no gradient."""

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


def same_as_loop(robust: drq.DRQ, x: Tensor, tolerance: float = 1e-9) -> drq.Decision:
    found = robust.decide(x)
    told = [plain_loop(robust.model, x[each : each + 1], robust.views, robust.gate) for each in range(len(x))]
    assert found.label.tolist() == [each.label for each in told]
    expected = torch.tensor([each.odds for each in told], dtype=x.dtype)
    torch.testing.assert_close(found.log_odds, expected, rtol=tolerance, atol=tolerance)
    return found


@pytest.mark.parametrize("gate", [None, Gate(0.5)])
@pytest.mark.parametrize("model", [Refusing(), Cut(), Rounded(), Frozen()], ids=lambda each: type(each).__name__)
def test_models_without_gradients_answer(model, gate):
    x, robust = batch(SHAPE, 20), drq.DRQ(model.eval(), views=VIEWS, gate=gate)
    found = same_as_loop(robust, x)
    assert int((found.label != found.base_label).sum()) > 2
    assert torch.equal(robust(x).argmax(1), found.label)
    assert torch.equal(found.passes, found.forward_passes)
    gated = robust.gated(batch(SHAPE, 100, 20), 0.05)
    assert gated.gate.changed <= 5
    assert len(gated.decide(x)) == 20


@pytest.fixture(scope="module", name="digits8")
def _digits8() -> tuple[RandomForestClassifier, Tensor, Tensor]:
    """A forest for digits, and those that it has not seen."""
    data = load_digits()
    x, y = data.data / 16, data.target
    forest = RandomForestClassifier(60, random_state=0, n_jobs=1).fit(x[:1000], y[:1000])
    return forest, torch.from_numpy(x[1000:]).view(-1, *SHAPE), torch.from_numpy(y[1000:])


def test_a_forest_of_scikit_learn_answers(digits8):
    """Digits on their side: views turn them back."""
    forest, x, y = digits8
    model = InNumpy(lambda x: np.log(forest.predict_proba(x.reshape(len(x), -1)).clip(1e-3)))
    robust = drq.DRQ(model, views=Rotation(90, 3)).gated(x[:300], 0.05)
    clean, turned = x[300:500], x[300:500].rot90(1, (2, 3))
    found = same_as_loop(robust, turned[:40])
    assert len(found) == 40
    alone, after = ((each(turned).argmax(1) == y[300:500]).double().mean() for each in (model, robust))
    assert after > alone + 0.2
    assert (robust(clean).argmax(1) == model(clean).argmax(1)).double().mean() > 0.9
    model.rows = 0
    passes = robust.decide(turned).passes
    assert model.rows == int(passes.sum())  # every look is counted, and no other is taken once a model is known
    refused(drq.DRQ(model, "linf", 0.1).decide, turned, words=["model must accept x, got shape (1, 1, 8, 8)"])


def onnx_model(weight: np.ndarray, bias: np.ndarray) -> bytes:
    """Flatten and a linear layer in the format of ONNX, field by field: number and kind of each, then what it holds."""

    def number(value: int) -> bytes:
        return bytes([value]) if value < 128 else bytes([value % 128 + 128]) + number(value // 128)

    def field(place: int, value: int | str | bytes) -> bytes:
        if isinstance(value, int):
            return number(8 * place) + number(value)
        raw = value.encode() if isinstance(value, str) else value
        return number(8 * place + 2) + number(len(raw)) + raw

    def node(kind: str, inputs: list[str], output: str) -> bytes:
        return b"".join(field(1, each) for each in inputs) + field(2, output) + field(4, kind)

    def constant(name: str, values: np.ndarray) -> bytes:
        sizes = b"".join(field(1, each) for each in values.shape)
        return sizes + field(2, 1) + field(8, name) + field(9, struct.pack(f"<{values.size}f", *values.flatten()))

    def value(name: str, *sizes: int | str) -> bytes:
        shape = b"".join(field(1, field(1 if isinstance(each, int) else 2, each)) for each in sizes)
        return field(1, name) + field(2, field(1, field(1, 1) + field(2, shape)))

    nodes = [node("Flatten", ["x"], "flat"), node("Gemm", ["flat", "weight", "bias"], "logits")]
    graph = b"".join(field(1, each) for each in nodes) + field(2, "linear")
    graph += field(5, constant("weight", weight)) + field(5, constant("bias", bias))
    graph += field(11, value("x", "N", *SHAPE)) + field(12, value("logits", "N", len(bias)))
    return field(1, 8) + field(7, graph) + field(8, field(2, 13))


def test_a_model_of_onnx_answers():
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    linear = nn.Linear(64, 5)
    weight, bias = linear.weight.detach(), linear.bias.detach()
    session = onnxruntime.InferenceSession(onnx_model(weight.T.numpy(), bias.numpy()), providers=["CPUExecutionProvider"])
    x = batch(SHAPE, 30).float()
    model = InNumpy(lambda x: session.run(None, {"x": x})[0])
    torch.testing.assert_close(model(x), linear(x.flatten(1)), rtol=1e-4, atol=1e-5)
    robust = drq.DRQ(model, views=VIEWS)
    found = same_as_loop(robust, x, 1e-4)
    twin = drq.DRQ(nn.Sequential(nn.Flatten(), linear).eval(), views=VIEWS).decide(x)
    assert torch.equal(found.label, twin.label)
    assert len(robust.gated(batch(SHAPE, 100).float()).decide(x)) == 30


def test_without_gradients_scores_have_none():
    x = batch(SHAPE, 3).requires_grad_()
    assert not drq.DRQ(Cut().eval(), views=VIEWS)(x.detach()).requires_grad
    with torch.no_grad():
        assert not drq.DRQ(Refusing().eval(), views=VIEWS)(x).requires_grad
    model = InNumpy(lambda x: x.reshape(len(x), -1)[:, :5])
    with torch.inference_mode():
        assert torch.equal(drq.DRQ(model, views=VIEWS)(x.detach()), drq.DRQ(model, views=VIEWS)(x.detach().clone()))
