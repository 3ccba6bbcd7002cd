"""A race of classes: what it drops, that it says so, and that whoever finishes is measured as without it."""

from dataclasses import replace

import pytest
import torch
from testbed.classifiers import inputs, network
from torch import Tensor

import drq
from drq.method.race import ALWAYS, BEHIND, OFTEN, _in_the_race, heats, race
from drq.norms import Ball
from drq.objectives import log_odds, toward
from drq.search.loop import Problems, solve

SETTINGS = {"explore": drq.Gradient(12), "quantify": drq.Gradient(6)}


@pytest.fixture(autouse=True)
def uncompiled(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)


def decide(model, x: Tensor, prune: str, radius: object = 0.3, **settings) -> drq.Decision:
    return drq.DRQ(model, "l2", radius, prune=prune, **SETTINGS | settings).decide(x)


def dropped(decision: drq.Decision) -> Tensor:
    return ~decision.exact & ~decision.reached


@pytest.mark.parametrize("steps", range(1, 70))
def test_heats_make_up_all_looks_and_end_in_the_first_half(steps):
    """After 2, 4, 8, ... looks, each of which is followed by as many steps again; the last goes to the end."""
    found = heats(steps)
    assert [look for heat in found for look in heat] == list(range(steps + 1))
    ends = [heat.stop for heat in found[:-1]]
    assert ends == [2**k for k in range(1, 20) if 2**k <= steps / 2]


def test_finished_classes_are_explored_as_without_a_race():
    """And are quantified so where they are known; whoever was dropped is not reached, has no robustness, and is not exact."""
    lost = finished = 0
    for seed in range(12):
        model, x = network(seed, classes=3 + seed, gain=2 + seed % 3), inputs(seed, 20, 4)
        raced, full = decide(model, x, "race"), decide(model, x, "none")
        out = dropped(raced)
        assert (raced.robustness[out] == 0).all()
        assert (raced.log_odds[out] == -torch.inf).all()
        assert ((~out).sum(1) >= ALWAYS).all()
        assert torch.equal(raced.reached[~out], full.reached[~out])
        torch.testing.assert_close(raced.explored_log_odds[~out], full.explored_log_odds[~out], rtol=0, atol=1e-9)
        known = raced.exact & raced.reached
        torch.testing.assert_close(raced.log_odds[known], full.log_odds[known], rtol=0, atol=1e-9)
        bounded = ~raced.exact & ~out
        assert (raced.log_odds[bounded] >= full.log_odds[bounded] - 1e-9).all()
        both = full.label == raced.label
        assert both.double().mean() > 0.9
        unharmed = ~(out & full.reached).any(1)  # where nothing that could be reached was lost, nothing changes
        assert both[unharmed].all()
        assert torch.equal(raced.runner_up[unharmed], full.runner_up[unharmed])
        torch.testing.assert_close(raced.margin[unharmed], full.margin[unharmed], rtol=0, atol=1e-9)
        lost, finished = lost + out.sum(), finished + (~out).sum()
    assert lost > 300
    assert finished > 500


def test_two_classes_never_race():
    model, x = network(3, classes=2, gain=6), inputs(3, 60, 4)
    raced, exact = decide(model, x, "race", 0.1), decide(model, x, "exact", 0.1)
    assert log_odds(model(x)).abs().amax() > 3  # one of them starts far behind
    for name in ("label", "log_odds", "exact", "reached", "passes", "margin"):
        assert torch.equal(getattr(raced, name), getattr(exact, name))


def exploration(seed: int, classes: int, samples: int = 6) -> tuple[Problems, Tensor, Tensor, Tensor]:
    model, x = network(seed, classes=classes, gain=3), inputs(seed, samples, 4)
    sample, label = (each.flatten() for each in torch.meshgrid(torch.arange(samples), torch.arange(classes), indexing="ij"))
    problems = Problems.new(drq.Gradient(12), toward(model, label), Ball(x[sample], 0.3, "l2", (0.0, 1.0)))
    return problems, sample, label, log_odds(model(x)).detach()


def test_heats_are_run_by_those_still_in_the_race():
    """Passes are the looks of the heats that a class ran; fewer classes in each; found values those of whole searches."""
    problems, sample, label, start = exploration(1, 9)
    observations, spared = [], []
    whole, running = solve(problems).best, race(problems, sample, label, start, spared.append)
    heat = next(running)
    try:
        while True:
            observations.append((heat.observations, len(heat)))
            heat = running.send(solve(heat))
    except StopIteration as stop:
        found, finished = stop.value
    assert [each for each, _ in observations] == heats(12)
    sizes = [size for _, size in observations]
    assert sizes[0] == len(problems)
    assert sizes == sorted(sizes, reverse=True)
    assert 12 <= sizes[-1] == finished.sum() < sizes[0]
    ran = [sum(heat.stop - heat.start for heat in heats(12)[:count]) for count in range(1, len(observations) + 1)]
    assert set(found.passes.tolist()) <= set(ran)
    assert (found.passes <= whole.passes).all()
    assert found.passes.sum() == sum((heat.stop - heat.start) * size for heat, size in observations)
    assert found.passes.sum() + sum(spared) == whole.passes.sum()
    assert torch.equal(found.passes == 13, finished)
    for name in ("value", "point", "lowest", "stalled"):
        torch.testing.assert_close(getattr(found, name)[finished], getattr(whole, name)[finished], rtol=0, atol=1e-9)
    for row in range(6):  # the class that is ahead at the end of a heat is never dropped, nor the one behind it
        assert finished[sample == row].sum() >= ALWAYS


def table(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def test_who_stays_in_the_race():
    inf = torch.inf
    ahead = table([5.0, 4.9, -50.0, -60.0, -70.0, -80.0])
    gain = torch.ones_like(ahead)
    assert _in_the_race(ahead, gain).tolist() == [[True] * ALWAYS + [False] * (6 - ALWAYS)]  # far behind, but for the first
    near = BEHIND - 0.1
    level = table([0.0, -near, -near, -near, -near, -near, -near, -near, -near, -near])
    assert _in_the_race(level, torch.ones_like(level)).sum() == 5  # near, but no more than half
    few = table([-near, 0.0, -near, -near, -inf, -inf, -inf, -inf])
    assert _in_the_race(few, torch.ones_like(few)).tolist() == [[True] * OFTEN + [False] * 4]  # few stay all; out is out
    assert _in_the_race(few - 9, 0.9 * torch.ones_like(few)).sum() == ALWAYS  # how far is far depends on what a step gains
    assert _in_the_race(table([3.0, 1.0, 2.0, 0.0]), -torch.ones(1, 4).double()).tolist() == [[True, False, True, False]]
    assert _in_the_race(table([0.0] * 12), torch.zeros(1, 12).double()).tolist() == [[True] * 6 + [False] * 6]  # ties: lower
    skewed = table([9.0, 8.0, 7.0, 6.0, 5.0])  # the typical gain is the median, which one fast class does not move
    assert _in_the_race(skewed, table([100.0, 1.0, 0.4, 0.5, 0.3])).sum() == 2 + 1


def test_gains_are_counted_by_the_step():
    """The two looks of the first heat are one step, in which everybody gains 1 here: who is BEHIND by less stays."""
    problems, sample, label, _ = exploration(1, 5, samples=1)
    odds = torch.tensor([10.0, 9.9, 10.1 - BEHIND, 9.9 - BEHIND, 9.9 - BEHIND], dtype=torch.float64)
    running = race(problems, sample, label, odds[None] - 1, lambda _: None)
    progress = solve(next(running))
    heat = running.send(replace(progress, best=replace(progress.best, lowest=-odds)))
    assert heat.objective.given[0].tolist() == [0, 1, 2]


def test_fewer_passes_than_exact_pruning():
    model, x = network(2, classes=12, gain=3), inputs(2, 40, 4)
    raced, exact = decide(model, x, "race"), decide(model, x, "exact")
    assert raced.passes.sum() < 0.7 * exact.passes.sum()
    explored = 1 + 12 * 13
    assert (decide(model, x, "race", alpha=0.0, quantify=drq.Gradient(1)).passes <= explored + 2 * 12).all()


def test_radius_zero_is_the_base_classifier():
    model, x = network(4, classes=7), inputs(4, 30, 4)
    decision = decide(model, x, "race", 0.0)
    base = model(x).argmax(1)
    assert torch.equal(decision.label, base)
    assert torch.equal(decision.reached, torch.nn.functional.one_hot(base, 7).bool())
    torch.testing.assert_close(decision.robustness.amax(1), model(x).softmax(1).amax(1))


@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("radius", [0.3, drq.Calibrated(0.5, steps=4)], ids=["fixed", "calibrated"])
def test_a_race_is_run_by_each_sample_alone(compile, radius):
    model, x = network(6, classes=8, gain=3), inputs(6, 5, 4)
    whole = decide(model, x, "race", radius)
    assert dropped(whole).sum() > 8
    order = torch.randperm(5, generator=torch.Generator().manual_seed(1))
    alone = [decide(model, row[None], "race", radius, compile=compile) for row in x]
    others = [(decide(model, x, "race", radius, chunk=chunk, compile=compile), slice(None)) for chunk in (3, 11, 500)]
    others += [(alone[0].joined(alone[1:]), slice(None)), (decide(model, x[order], "race", radius, compile=compile), order)]
    for other, rows in others:
        for name in ("label", "exact", "reached", "passes"):
            assert torch.equal(getattr(other, name), getattr(whole, name)[rows]), name
        torch.testing.assert_close(other.log_odds, whole.log_odds[rows], rtol=0, atol=1e-9)


def test_a_slow_starter_is_lost_and_the_decision_says_so():
    """Class 2 rises late, and then above all: without a race it wins. With one it is gone, and known to be unknown."""

    def model(x: Tensor) -> Tensor:
        z = x[:, 0]
        return torch.stack([0 * z, 0.5 * z, z - 30 + 200 * torch.relu(z - 0.5)], 1)

    x = torch.zeros(1, 1, dtype=torch.float64)
    for prune in ("none", "exact"):
        slow = decide(model, x, prune, 1.0, bounds=None, alpha=0.3)
        assert slow.label.tolist() == [2]
        assert slow.exact[0, 2]
    for compile in (False, True):
        raced = decide(model, x, "race", 1.0, bounds=None, alpha=0.3, compile=compile)
        assert raced.exact.tolist() == [[True, True, False]]
        assert raced.reached.tolist() == [[True, True, False]]
        assert raced.robustness[0, 2] == 0
        assert raced.label.item() != 2
        assert raced.runner_up.item() != 2
