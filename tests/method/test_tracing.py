"""What traces, compiles or transforms DRQ: it works with the same scores, or one line says what does."""

import logging
import re

import pytest
import torch
from testbed.classifiers import inputs, network
from testbed.refusals import refused
from torch import nn

import drq

X = inputs(0, 6, 4).float()
FEW = {"explore": drq.Gradient(2), "quantify": drq.Gradient(2)}
ADVICE = "torch.compile leaves DRQ as it is; drq.DRQ(model, compile=True) compiles its searches, and torch.compile(robust.export"


def ball(**settings: object) -> drq.DRQ:
    return drq.DRQ(network(0).float(), **{"norm": "linf", "radius": 0.1, **FEW} | settings)


def looking(**settings: object) -> drq.DRQ:
    return drq.DRQ(network(0).float(), **{"views": "Gain(4, 5)", "gate": drq.views.Gate(0.1)} | settings)


KINDS = {"ball": ball, "gated ball": lambda: ball(gate=drq.views.Gate(0.01)), "views": looking}
RULE = "robust must look at views alone (views=, no radius) for {}, got a ball, whose search looks at values: "
TRACERS = {
    "torch.export": (lambda robust: torch.export.export(robust, (X,)), "torch.export", "export robust.model"),
    "torch.jit.trace": (lambda robust: torch.jit.trace(robust, X), "torch.jit", "trace robust.model"),
    "torch.vmap": (lambda robust: torch.vmap(robust)(X[:, None]), "torch.func", "answers for a whole batch"),
    "torch.func.vmap": (lambda robust: torch.func.vmap(lambda x: robust(x[None]))(X), "torch.func", "for a whole batch"),
    "torch.func.grad": (lambda robust: torch.func.grad(lambda x: robust(x).max())(X), "torch.func", "torch.autograd.grad"),
    "torch.func.jacrev": (lambda robust: torch.func.jacrev(robust)(X), "torch.func", "torch.autograd.grad"),
    "torch.func.jvp": (lambda robust: torch.func.jvp(robust, (X,), (X,)), "torch.func", "torch.autograd.grad"),
}


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.parametrize("tracer", TRACERS)
@pytest.mark.parametrize("kind", ["ball", "gated ball"])
def test_a_ball_is_refused_in_a_line(tracer, kind):
    call, by, remedy = TRACERS[tracer]
    robust = KINDS[kind]()
    expected = robust(X)
    refused(call, robust, words=[RULE.format(by), remedy])
    assert torch.equal(robust(X), expected)  # nothing of the trace is left behind


def test_a_strict_export_says_it_too():
    with pytest.raises(Exception, match=re.escape(RULE.format("torch.export"))):
        torch.export.export(ball(), (X,), strict=True)


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_a_script_is_refused_in_a_line(kind):
    words = ["robust must not be scripted, got torch.jit.script: torch.jit.trace takes DRQ over views, or robust.model"]
    refused(torch.jit.script, KINDS[kind](), words=words)
    refused(torch.jit.script, nn.Sequential(KINDS[kind]()), words=words)


def test_no_graph_of_a_ball_is_handed_out():
    refused(ball().exportable, words=[RULE.format("torch.export"), "let DRQ search around it in Python"])


@pytest.mark.parametrize("kind", KINDS)
def test_compiled_it_stays_as_it_is_and_says_so_once(kind, caplog):
    robust = KINDS[kind]()
    scores, label, slope = robust(X), robust.decide(X).label, sloped(robust)
    compiled = torch.compile(robust, backend="eager")
    with caplog.at_level(logging.WARNING, "drq"):
        for _ in range(2):
            torch.testing.assert_close(compiled(X), scores, rtol=0, atol=0)
            torch.testing.assert_close(sloped(compiled), slope, rtol=0, atol=0)
        assert torch.equal(torch.compile(lambda x: robust.decide(x).label + 1, backend="eager")(X), label + 1)
    assert [each.getMessage()[: len(ADVICE) + 5] for each in caplog.records] == [f"drq: {ADVICE}"]


def sloped(robust: nn.Module) -> torch.Tensor:
    x = X.clone().requires_grad_()
    return torch.autograd.grad(robust(x).max(1).values.sum(), x)[0]


def test_compiled_it_still_checks():
    refused(torch.compile(ball(), backend="eager"), 255 * X, words=["x must lie within bounds"])


def test_a_model_that_is_compiled_before_is_as_good():
    """Which is what remains where a ball is searched."""
    graphs = []

    def backend(graph: torch.fx.GraphModule, _: object) -> torch.fx.GraphModule:
        graphs.append(graph)
        return graph

    model = network(0).float()
    for settings in ({"norm": "linf", "radius": 0.1, **FEW}, {"views": "Gain(4, 5)"}):
        plain = drq.DRQ(model, **settings).decide(X)
        compiled = drq.DRQ(torch.compile(model, backend=backend), **settings).decide(X)
        assert torch.equal(compiled.label, plain.label)
        torch.testing.assert_close(compiled.log_odds, plain.log_odds, rtol=0, atol=1e-5)
    assert graphs, "it was not compiled: this test shows nothing"


def test_what_it_compiles_itself_is_compiled_inside_of_torch_compile(monkeypatch):
    calls = []
    real = torch.compile
    robust = ball(compile=True)
    monkeypatch.setattr(torch, "compile", lambda function, **_: calls.append(function) or function)
    torch.testing.assert_close(real(robust, backend="eager")(X), ball()(X), rtol=0, atol=1e-5)
    assert calls
