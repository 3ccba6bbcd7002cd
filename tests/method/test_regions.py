"""Exploration and quantification as a procedure: pruning by proof, rounding that does not decide, memory that is bounded."""

from dataclasses import replace
from itertools import chain

import pytest
import torch
from testbed.classifiers import inputs, network
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import drq
from drq.decision import Block, conclude
from drq.method.calibration import Calibrated
from drq.method.execution import prepare
from drq.method.regions import Regions, one_by_one
from drq.objectives import log_odds
from drq.search.loop import Problems, solve

NORMS = ["linf", "l2", "l1"]


@pytest.fixture(autouse=True)
def uncompiled(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)


def regions(
    model, x: Tensor, *, prune: str = "exact", chunk: int | None = None, dtype=None, points=False
) -> tuple[Tensor, Regions]:
    x, execution = prepare(model, x, drq.L2(), (0.0, 1.0), None, chunk, dtype)
    return x, Regions(execution, Calibrated(), 0.5, drq.Gradient(5), drq.Gradient(6), None, True, prune, points)


def test_exact_pruning_by_brute_force():
    """Label, runner-up and margin of all that was searched; what is not known is bounded by its explored confidence."""
    contested = bounded = 0
    for seed in range(25):
        classes = 2 + seed % 11
        model, x = network(seed, 3, classes, gain=2 + seed % 4), inputs(seed, 12, 3)
        settings = {"norm": NORMS[seed % 3], "radius": 0.2 + 0.2 * (seed % 3), "explore": drq.Gradient(5)}
        settings |= {"quantify": drq.Gradient(6), "alpha": (0.5, 1.0, 0.2)[seed % 3]}
        full, exact = (drq.DRQ(model, **settings, prune=prune).decide(x) for prune in ("none", "exact"))
        for name in ("label", "runner_up", "reached", "base_label"):
            assert torch.equal(getattr(full, name), getattr(exact, name)), name
        for name in ("margin", "explored_log_odds"):
            torch.testing.assert_close(getattr(exact, name), getattr(full, name), rtol=0, atol=1e-9)
        known, bound = exact.exact & exact.reached, ~exact.exact
        torch.testing.assert_close(exact.log_odds[known], full.log_odds[known], rtol=0, atol=1e-9)
        assert torch.equal(exact.log_odds[bound], exact.explored_log_odds[bound])
        assert (exact.log_odds[bound] >= full.log_odds[bound]).all()
        second = full.log_odds.topk(2).values[:, 1:].expand_as(full.log_odds)  # what won, came second or is level is known
        assert (full.log_odds[bound] < second[bound]).all()
        assert (exact.passes <= full.passes).all()
        contested, bounded = contested + (exact.label != exact.base_label).sum(), bounded + bound.sum()
    assert contested > 15
    assert bounded > 250


@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("prune", ["none", "exact"])
def test_a_sample_is_decided_alone(compile, prune):
    model, x = network(3, classes=9, gain=4), inputs(3, 6, 4)
    settings = {"prune": prune, "explore": drq.Gradient(5), "quantify": drq.Gradient(6)}
    whole = drq.DRQ(model, "l2", drq.Calibrated(0.4, steps=4), **settings).decide(x)

    def decide(samples: Tensor, chunk: int | None = None) -> drq.Decision:
        return drq.DRQ(model, "l2", drq.Calibrated(0.4, steps=4), compile=compile, chunk=chunk, **settings).decide(samples)

    order = torch.tensor([5, 0, 1, 2, 3, 4])
    cases = [(decide(x[order]), order), *((decide(x, chunk), slice(None)) for chunk in (4, 30, 500))]
    for other, rows in chain(cases, ((decide(x[row : row + 1]), slice(row, row + 1)) for row in range(6))):
        for name in ("label", "exact", "reached", "passes"):
            assert torch.equal(getattr(other, name), getattr(whole, name)[rows]), name
        torch.testing.assert_close(other.log_odds, whole.log_odds[rows], rtol=0, atol=1e-9)


def rounds(regions: Regions, x: Tensor, radius: Tensor) -> tuple[list[tuple[Problems, Tensor]], Block]:
    """Every request of a search with the values that were found for it, and what it ends with."""
    procedure, asked = regions.search(x, radius), []
    problems = next(procedure)
    try:
        while True:
            progress = solve(problems)
            asked.append((problems, progress.best.value))
            problems = procedure.send(progress)
    except StopIteration as stop:
        return asked, stop.value


@pytest.mark.parametrize("seed", range(4))
def test_rounds_go_down_the_explored_confidence(seed):
    """Two classes, then two, four, eight: none that is below the second best so far, which is also what suffices to leave."""
    model, x = network(seed, classes=14, gain=4), inputs(seed, 1, 4)
    x, searched = regions(model, x)
    (exploration, explored), *quantified = rounds(searched, x, torch.tensor([0.7], dtype=torch.float64))[0]
    assert len(exploration) == 14
    assert exploration.stop_below is None
    confidence = (-explored).sort(descending=True).values
    confidence = confidence[confidence > -torch.inf]
    assert len(quantified) >= 2
    known, taken = [], 0
    for number, (problems, values) in enumerate(quantified):
        start = log_odds(model(problems.ball.center), problems.objective.given[0]).detach()
        bar = sorted(known)[-2] if known else -torch.inf
        due = confidence[taken : (2, 4, 8, 16)[number]]
        torch.testing.assert_close(start.sort(descending=True).values, due[due >= bar], rtol=0, atol=1e-9)
        if number == 0:
            assert problems.stop_below is None
        else:
            torch.testing.assert_close(problems.stop_below, torch.full_like(values, bar))
        known += values.tolist()
        taken = (2, 4, 8, 16)[number]
    rest = confidence[taken:]
    assert (rest < sorted(known)[-2]).all()


def test_few_rows_are_searched_at_once():
    x, searched = regions(network(1, classes=14, gain=4), inputs(1, 1, 4))
    radius = torch.tensor([0.7], dtype=torch.float64)
    in_turn = rounds(searched, x, radius)
    for spare, requests in ((0, len(in_turn[0])), (1, len(in_turn[0])), (14, 2)):
        asked, block = rounds(replace(searched, execution=replace(searched.execution, spare=spare)), x, radius)
        assert len(asked) == requests
        assert torch.equal(conclude(block).exact, conclude(in_turn[1]).exact)


def test_rounding_does_not_choose_the_calibrated_radius():
    """At x itself its own confidence is met exactly: there rounding would choose between two slopes."""
    model, x = network(1, classes=6, gain=4), inputs(1, 9, 4)
    x, execution = prepare(model, x, drq.L2(), (0.0, 1.0), None)
    logits, found = execution.logits(x).detach(), []
    for factor in (1 - 2e-15, 1, 1 + 2e-15):  # as another size of batch, or a compiled model, may change logits
        found.append(execution.solve(drq.Calibrated(steps=30).problems(execution, x, logits * factor)).best.merit)
    torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=0)
    torch.testing.assert_close(found[2], found[1], rtol=1e-3, atol=0)


class Coarse(nn.Module):
    """Logits around 64, where bfloat16 knows every other half only: rounding, not x, orders classes that are near each other."""

    def __init__(self, classes: int = 4, offset: float = 64.0, scale: float = 20.0) -> None:
        super().__init__()
        self.head = nn.Linear(6, classes)
        with torch.no_grad():
            self.head.weight.copy_((inputs(0, classes, 6).float() - 0.5) * scale)
            self.head.bias.copy_(offset - self.head.weight.sum(1) / 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x)


def skipped(_: Regions, block: Block):
    return block
    yield


SHORT = {"explore": drq.Gradient(5), "quantify": drq.Gradient(6)}


@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("prune", ["none", "exact", "race"])
def test_rounding_does_not_decide_between_near_ties(monkeypatch, prune, compile):
    model, x = Coarse().eval(), 0.45 + 0.1 * inputs(2, 60, 6).float()
    exact = drq.DRQ(model, "linf", 0.2, prune=prune, **SHORT).decide(x)
    half = drq.DRQ(model, "linf", 0.2, prune=prune, precision="bfloat16", compile=compile, **SHORT)
    decision = half.decide(x)
    assert torch.equal(decision.label, exact.label)
    with monkeypatch.context() as patch:
        patch.setattr(Regions, "settle", skipped)
        rounded = half.decide(x)
    assert (rounded.label != exact.label).any()  # otherwise this test shows nothing
    assert (decision.passes >= rounded.passes).all()
    assert (decision.passes > rounded.passes).any()
    assert torch.equal(decision.base_label, model(x).argmax(1))
    assert (model.bfloat16()(x.bfloat16()).argmax(1) != decision.base_label).any()


def test_rounding_does_not_hide_classes():
    """Near the boundary itself: which class a point is assigned to is then up to rounding too."""
    model, x = Coarse(scale=2.0).eval(), inputs(9, 300, 6).float()
    exact = drq.DRQ(model, "linf", 0.1, **SHORT).decide(x)
    half = drq.DRQ(model, "linf", 0.1, precision="bfloat16", **SHORT).decide(x)
    assert half.reached.gather(1, half.base_label[:, None]).all()
    assert torch.equal(half.label, exact.label)


def test_only_near_ties_are_searched_again(monkeypatch):
    """Logits around 1: every sample but those within 8 roundings of another class costs what it cost before."""
    model, x = Coarse(offset=1.0, scale=2.0).eval(), inputs(3, 80, 6).float()
    half = drq.DRQ(model, "linf", 0.2, precision="bfloat16", **SHORT)
    decision, points = half.decide(x), half.variant(keep_points=True).decide(x)
    with monkeypatch.context() as patch:
        patch.setattr(Regions, "settle", skipped)
        before = half.decide(x)
    best, second = torch.where(before.exact, before.log_odds, -torch.inf).topk(2).values.unbind(1)
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(x).float()
    near = best - second <= 8 * 2**-7 * logits.abs().amax(1)
    assert 5 < near.sum() < 75
    again = decision.passes - before.passes
    assert torch.equal(again > 0, near)
    ties = (before.exact & (before.log_odds >= (best - 8 * 2**-7 * logits.abs().amax(1))[:, None])).sum(1)
    assert torch.equal(again[near], ties[near] * (6 + 7))
    assert torch.equal(decision.log_odds[~near], before.log_odds[~near])
    exact = drq.DRQ(model, "linf", 0.2, prune="none", **SHORT).decide(x)
    settled = decision.exact & decision.reached & near[:, None] & (before.log_odds >= second[:, None])
    torch.testing.assert_close(decision.log_odds[settled], exact.log_odds[settled], rtol=0, atol=1e-5)
    assert torch.equal(points.log_odds, decision.log_odds)
    assert torch.equal(points.explored.isnan().all(2), ~points.reached)


def test_how_near_is_near_depends_on_the_logits():
    x = inputs(0, 3, 6).float()
    logits = torch.tensor([[1.0, -3.0], [30.0, 20.0], [0.5, 0.0]])
    for dtype, near in ((torch.bfloat16, 8 * 2**-7), (torch.float16, 20 * 2**-10), (None, 0)):
        _, execution = prepare(Coarse().eval(), x, drq.L2(), (0.0, 1.0), None, None, dtype)
        assert execution.near(logits).tolist() == [near * 3, near * 30, near * 0.5]
        assert torch.equal(execution.near(10 * logits), 10 * execution.near(logits))


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.parametrize("make", [Coarse, lambda: network(4, 6, classes=6, gain=4).float()], ids=["coarse", "network"])
def test_scores_have_the_label_as_their_argmax(precision, make):
    model, x = make().eval(), inputs(4, 40, 6).float()
    robust = drq.DRQ(model, "linf", 0.25, precision=precision, **SHORT)
    decision = robust.decide(x)
    assert torch.equal(robust(x).argmax(1), decision.label)
    leaf = x.clone().requires_grad_()
    scores = robust(leaf)
    assert torch.equal(scores.argmax(1), decision.label)
    (gradient,) = torch.autograd.grad(scores.amax(1).sum(), leaf)
    assert (gradient.isfinite() & (gradient != 0)).any(1).all()


class Sizes(TorchDispatchMode):
    """The most rows of features, of this shape, that any operation makes."""

    def __init__(self, features: tuple[int, ...]) -> None:
        super().__init__()
        self.features, self.most = features, 0

    def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
        made = function(*arguments, **keywords or {})
        for each in made if isinstance(made, tuple | list) else (made,):
            if isinstance(each, Tensor) and tuple(each.shape[1:]) == self.features:
                self.most = max(self.most, len(each))
        return made


@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_memory_is_bounded_by_the_chunk(monkeypatch, compile, precision):
    """Whatever the number of classes: no batch and no bundle of points is larger, and points are let go of."""
    batches, blocks, inner = [], [], nn.Sequential(nn.Flatten(), Coarse(12).eval())

    def model(x: Tensor) -> Tensor:
        batches.append(len(x))
        return inner(x)

    monkeypatch.setattr("drq.drq.conclude", lambda block, keep: blocks.append(block) or conclude(block, keep))
    robust = drq.DRQ(model, "linf", 0.2, compile=compile, chunk=12, precision=precision, **SHORT)
    x = inputs(5, 9, 2, 3).float()
    with Sizes((2, 3)) as sizes:
        decision = robust.decide(x)
    assert max(batches) <= 12
    assert sizes.most <= 3 * 12  # all classes of all samples would be 108
    for block in blocks:
        assert block.candidates.point.numel() == block.quantified.point.numel() == 0
    assert decision.reached.sum() > 20
    blocks.clear()
    kept = robust.variant(keep_points=True).decide(x)
    assert all(block.candidates.point.numel() for block in blocks)
    assert torch.equal(kept.log_odds, decision.log_odds)


def test_procedures_are_carried_out_in_turn():
    def count(most: int):
        total = 0
        for number in range(most):
            total += yield number
        return total

    assert list(one_by_one(lambda number: 10 * number, map(count, [3, 0, 5]))) == [30, 0, 100]
