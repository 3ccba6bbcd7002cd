"""Bad input: one clear message that names the argument, the rule, the value and the remedy."""

import pytest
import torch
from testbed.classifiers import inputs, network
from torch import Tensor, nn

import drq

X = inputs(0, 3, 4)
ok = network(0)


def robust(model=ok, **settings) -> drq.DRQ:
    return drq.DRQ(model, **{"norm": "l2", "radius": 0.2, **settings})


def with_value(value: float) -> Tensor:
    x = X.clone()
    x[1, 2] = value
    return x


class Dropped(nn.Module):
    """In evaluation mode but for one part."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.dropout = ok, nn.Dropout()
        self.eval()
        self.dropout.train()

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.net(x))


NAN, INF = float("nan"), float("inf")
BAD = {
    "nan": (lambda: robust().decide(with_value(NAN)), "x must be finite, got NaN or infinity: clean the input"),
    "infinity": (lambda: robust().decide(with_value(-INF)), "x must be finite, got NaN or infinity"),
    "integers": (lambda: robust().decide((X * 255).long()), "x must be float32 or float64, got torch.int64: convert with x.float()"),
    "bytes": (lambda: robust().decide((X * 255).byte()), "x must be float32 or float64, got torch.uint8"),
    "half": (lambda: robust().decide(X.half()), "x must be float32 or float64, got torch.float16"),
    "list": (lambda: robust().decide([[0.1]]), "x must be a tensor, got list"),
    "above": (lambda: robust().decide(X * 255), "x must lie within bounds=(0.0, 1.0), got "),
    "below": (lambda: robust().decide(X - 1e-5 - X.min()), "x must lie within bounds=(0.0, 1.0), got -1e-05 in sample"),
    "one bound per feature": (
        lambda: robust(bounds=(torch.zeros(4), torch.tensor([1, 1, 0.1, 1]))).decide(X),
        "x must lie within its bounds, got",
    ),
    "dimensions": (lambda: robust().decide(X[0]), "x must be a batch of shape (N, ...), got shape (4,): add a dimension with x[None]"),
    "features": (lambda: robust().decide(inputs(0, 3, 5)), "model must accept x, got shape (1, 5) and torch.float64 for one row: check the batch dimension"),
    "no batch dimension": (
        lambda: robust(nn.Sequential(nn.Conv2d(3, 5, 1), nn.Flatten(), nn.Linear(20, 3)).eval()).decide(torch.rand(3, 2, 2)),
        "x must be a batch (N, ...), got one sample of shape (3, 2, 2): x[None] is a batch of one",
    ),
    "training": (lambda: robust(nn.Linear(4, 3).double()).decide(X), "model must be in evaluation mode, got model (Linear) in training mode: call model.eval()"),
    "part in training": (lambda: robust(Dropped()).decide(X), "got model.dropout (Dropout) in training mode: call model.eval() first"),
    "detached": (lambda: robust(lambda x: ok(x.detach())).decide(X), "model must let gradients reach its input, got an output detached"),
    "constant": (lambda: robust(lambda x: torch.zeros(len(x), 3)).decide(X), "model must let gradients reach its input"),
    "flat output": (lambda: robust(lambda x: x.sum(1)).decide(X), "model must return logits of shape (N, C), got shape (1,) for input (1, 4)"),
    "deep output": (lambda: robust(lambda x: x[:, :, None]).decide(X), "model must return logits of shape (N, C), got shape (1, 4, 1)"),
    "averaged output": (lambda: robust(lambda x: ok(x).mean(0, keepdim=True)).decide(X), "model must return one row of logits for each sample"),
    "tuple output": (lambda: robust(lambda x: (ok(x), x)).decide(X), "model must return a tensor of logits, got tuple: wrap it in drq.FirstOutput"),
    "one class": (lambda: robust(lambda x: x[:, :1]).decide(X), "model must have at least 2 classes, got shape (1, 1)"),
    "nan logits": (lambda: robust(lambda x: ok(x) * torch.tensor([1, 1, 1, NAN])).decide(X), "model must return finite logits"),
    "not callable": (lambda: drq.DRQ(3), "model must be callable, got int"),
    "negative radius": (lambda: robust(radius=-0.1), "radius must be finite and at least 0, got -0.1: 0 is the undefended classifier"),
    "nan radius": (lambda: robust(radius=NAN), "radius must be finite and at least 0, got nan"),
    "radius of another batch": (lambda: robust(radius=torch.ones(5)).decide(X), "radius must be a number or have shape (3,), got shape (5,)"),
    "radius in words": (lambda: robust(radius="0.1"), "radius must be a number, one per sample, or drq.Calibrated(), got '0.1'"),
    "no radius": (lambda: robust(radius=None), "radius must be a number, one per sample, or drq.Calibrated(), got None"),
    "swapped arguments": (lambda: drq.DRQ(ok, 0.1, "l2"), "norm must be one of linf, l2, l1 or a drq.Norm, got 0.1"),
    "half a class": (lambda: robust(classes=3.5), "classes must be a whole number of at least 1, got 3.5"),
    "smooth": (lambda: drq.Gradient(20, smooth=10), "smooth must be None, drq.Noise or drq.InnerAttack, got 10"),
    "mask of positions": (lambda: robust(frozen=[0, 1, 2, 3]).decide(X), "frozen must be a boolean mask, got torch.int64: True where"),
    "one bound": (lambda: robust(bounds=1.0), "bounds must be a pair (lowest, highest) or None"),
    "alpha in words": (lambda: robust(alpha="0.5"), "alpha must lie in [0, 1], got '0.5'"),
    "forward of a list": (lambda: robust()([[0.1]]), "x must be a tensor, got list"),
    "alpha above": (lambda: robust(alpha=1.5), "alpha must lie in [0, 1], got 1.5: the paper uses 0.5"),
    "alpha below": (lambda: robust(alpha=-0.1), "alpha must lie in [0, 1], got -0.1"),
    "norm": (lambda: robust(norm="l3"), "norm must be one of linf, l2, l1 or a drq.Norm, got 'l3'"),
    "norm of a calibration": (lambda: drq.calibrate(ok, X, "max"), "norm must be one of linf, l2, l1"),
    "zero steps": (lambda: robust(explore=drq.Gradient(0)), "steps must be a whole number of at least 1, got 0"),
    "explore": (lambda: robust(explore=20), "explore must be a search within a ball, got 20: drq.Gradient(20) is the paper's"),
    "search without a ball": (lambda: robust(quantify=drq.MinimumNorm(9)), "quantify must be a search within a ball"),
    "error of another kind": (lambda: robust(lambda _: {}["logits"]).decide(X), "model must accept x, got shape (1, 4)"),
    "too many classes": (lambda: robust(classes=9).decide(X), "classes must be at most 4, the model's classes, got 9: None searches all"),
    "no classes": (lambda: robust(classes=0), "classes must be a whole number of at least 1, got 0"),
    "prune": (lambda: robust(prune="some"), "prune must be 'none', 'exact' or 'race', got 'some'"),
    "precision": (lambda: robust(precision="int8"), "precision must be one of 'float32', 'bfloat16', 'float16', got 'int8'"),
    "chunk": (lambda: robust(chunk=0), "chunk must be None or at least 1, got 0"),
    "confidence": (lambda: drq.Calibrated(1.0), "confidence must lie in [0, 1) or be None, got 1.0"),
    "calibration steps": (lambda: drq.Calibrated(steps=0), "steps must be a whole number of at least 1, got 0"),
    "bounds": (lambda: robust(bounds=(1.0, 0.0)), "bounds must have lowest <= highest, got (1.0, 0.0): swap them"),
    "three bounds": (lambda: robust(bounds=(0, 1, 2)), "bounds must be a pair (lowest, highest) or None"),
    "bounds of other features": (lambda: robust(bounds=(torch.zeros(7), torch.ones(7))).decide(X), "bounds must broadcast over the features (4,)"),
    "mask of floats": (lambda: robust(frozen=torch.ones(4)).decide(X), "frozen must be a boolean mask, got torch.float32"),
    "mask of other features": (lambda: robust(frozen=torch.ones(3, dtype=torch.bool)).decide(X), "frozen must broadcast over the features (4,)"),
}  # fmt: skip


@pytest.mark.parametrize(("call", "message"), BAD.values(), ids=BAD.keys())
def test_message(call, message):
    with pytest.raises(drq.InputError) as caught:
        call()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value).split("its own error was")[0]


def test_rounding_outside_the_bounds_is_forgiven_and_clipped():
    x = X.clone()
    x[0, 0], x[1, 1] = -9e-7, 1 + 9e-7
    decision = robust(keep_points=True).decide(x)
    points = decision.explored[decision.reached]
    assert ((points >= 0) & (points <= 1)).all()


def test_forward_checks_too():
    with pytest.raises(drq.InputError, match="x must be finite"):
        robust()(with_value(NAN))


@pytest.mark.parametrize("radius", [0.2, drq.Calibrated()])
def test_empty_batch_gives_an_empty_decision(radius):
    decision = robust(radius=radius, keep_points=True).decide(X[:0])
    assert len(decision) == 0
    assert decision.label.shape == decision.margin.shape == decision.radius.shape == decision.found.shape == (0,)
    assert decision.robustness.shape == decision.reached.shape == decision.exact.shape == (0, 4)
    assert decision.explored.shape == (0, 4, 4)
    assert robust(radius=radius)(X[:0]).shape == (0, 4)
    assert drq.calibrate(ok, X[:0], "l2")[0].shape == (0,)


def test_memory_is_bounded_whatever_the_batch():
    """No call of the model sees more rows than `chunk`, and the automatic choice follows the memory that a row stores."""
    largest = 0

    def model(x: Tensor) -> Tensor:
        nonlocal largest
        largest = max(largest, len(x))
        return ok(x)

    for chunk in (1, 3, 10, 1000):
        largest = 0
        leaf = inputs(1, 9, 4).requires_grad_()
        output = robust(model, chunk=chunk)(leaf)
        output[output > -1e4].sum().backward()
        assert largest <= chunk


def test_automatic_chunk_follows_the_memory_of_a_row():
    from drq.method.execution import examine

    narrow, wide = (nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 3)).eval() for width in (1_000, 100_000))
    x = torch.rand(2, 4)
    small, large = examine(narrow, x), examine(wide, x)
    assert large.classes == 3
    assert 90 < large.row_bytes / small.row_bytes < 110
    assert large.row_bytes < 2_000_000  # what a row stores, without the weights
    assert small.rows > large.rows >= 1


@pytest.mark.parametrize("compile", [False, True])
def test_a_head_that_is_replaced_may_have_other_classes(compile, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    model, x = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).eval(), torch.rand(5, 4)
    robust = drq.DRQ(model, "l2", 0.3, compile=compile)
    assert robust.decide(x).robustness.shape == (5, 3)
    model[2] = nn.Linear(8, 7).eval()
    assert robust.decide(x).robustness.shape == (5, 7)


def test_rounding_outside_the_bounds_has_a_limit():
    x = X.clone()
    x[0, 0] = 1 + 2e-6
    with pytest.raises(drq.InputError, match="in sample 0 at feature 0"):
        robust().decide(x)


def test_input_is_clipped_even_where_nothing_moves():
    x = X.clone()
    x[0, 0] = 1 + 9e-7
    decision = robust(radius=0.0, keep_points=True).decide(x)
    assert decision.explored[decision.reached].max() <= 1


def test_memory_of_a_differentiated_call_is_bounded():
    """What a graph keeps alive is the points, not the activations of every block."""
    wide = nn.Sequential(nn.Linear(4, 1000), nn.Tanh(), nn.Linear(1000, 4)).double().eval()
    own = {parameter.data_ptr() for parameter in wide.parameters()}

    def hidden_rows(x: Tensor) -> int:
        rows = 0

        def store(tensor: Tensor) -> Tensor:
            nonlocal rows
            if tensor.data_ptr() not in own and tensor.shape[-1:] == (1000,):
                rows += len(tensor)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(store, lambda tensor: tensor):
            drq.DRQ(wide, "l2", 0.3, chunk=8, explore=drq.Gradient(2), quantify=drq.Gradient(2))(x)
        return rows

    searches_alone = hidden_rows(inputs(0, 40, 4))  # stored and freed again, step by step
    assert hidden_rows(inputs(0, 40, 4).requires_grad_()) == searches_alone
