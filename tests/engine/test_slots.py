"""Searches on slots: the same answers as the readable loop, and slots that are never wasted, mixed up or left behind."""

import math
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from testbed.classifiers import inputs, network
from torch import Tensor

import drq
from drq.engine import slots
from drq.engine.drive import Engine
from drq.engine.slots import SlotGroup
from drq.norms import Ball, Space
from drq.objectives import away_from, toward
from drq.search.loop import Problems, Progress, solve

STEPS = {"explore": drq.Gradient(4), "quantify": drq.Gradient(5)}
CHUNKS = [1, 2, 7, 16, 64]


@pytest.fixture(autouse=True)
def uncompiled(monkeypatch):
    """The engine as it is, around a model that is not compiled, which would take half a minute."""
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)


def agree(first: drq.Decision, second: drq.Decision, passes: bool = True) -> None:
    for name in ("label", "base_label", "exact", "reached", "found", "classes", "runner_up", *(["passes"] if passes else [])):
        assert torch.equal(getattr(first, name), getattr(second, name)), name
    for name in ("log_odds", "explored_log_odds", "radius", "margin", "explored", "quantified"):
        expected = getattr(second, name)
        if expected is not None:
            torch.testing.assert_close(getattr(first, name), expected, rtol=0, atol=1e-9, equal_nan=True, msg=name)


def compare(model, x: Tensor, *settings, chunks=(13,), **others) -> drq.Decision:
    readable = drq.DRQ(model, *settings, **STEPS | others).decide(x)
    for chunk in chunks:
        agree(drq.DRQ(model, *settings, compile=True, chunk=chunk, **STEPS | others).decide(x), readable)
    return readable


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
@pytest.mark.parametrize("radius", [0.4, drq.Calibrated(0.5, steps=15)], ids=["fixed", "calibrated"])
@pytest.mark.parametrize("prune", ["none", "exact", "race"])
def test_the_engine_decides_as_the_readable_loop(norm, radius, prune):
    decision = compare(network(1, classes=6, gain=4), inputs(1, 7, 4), norm, radius, prune=prune)
    assert decision.reached.sum() > 12
    assert decision.exact.all() == (prune == "none")


@pytest.mark.parametrize("chunk", CHUNKS)
def test_any_number_of_slots_gives_the_same_decision(chunk):
    x = inputs(2, 4, 3)
    for prune in ("exact", "race"):
        compare(network(2, 3, classes=6, gain=4), x, "l2", drq.Calibrated(0.5, steps=4), prune=prune, chunks=[chunk])


METHODS = {
    "several lanes": {"explore": drq.AutoStep(9), "quantify": drq.Gradient(5)},
    "auto step": {"explore": drq.AutoStep(9), "quantify": drq.AutoStep(11)},
    "raw": {"explore": drq.Gradient(5, direction="raw"), "quantify": drq.Gradient(5, step=1.0)},
    "unrolled": {"explore": drq.Gradient(4, unroll=True)},
    "random": {"explore": drq.Random(5), "quantify": drq.Random(6)},
    "random, then gradient": {"explore": drq.Random(5)},
    "gradient, then noise": {"quantify": drq.Gradient(3, smooth=drq.Noise(2))},
    "one step": {"explore": drq.Gradient(1), "quantify": drq.Gradient(1), "prune": "race"},
    "likeliest classes": {"classes": 3},
    "frozen features": {"frozen": torch.tensor([True, False, False, True])},
    "bounds by feature": {"bounds": (torch.tensor([0.0, -1.0, 0.0, 0.0]), torch.tensor([1.0, 1.0, 2.0, 1.0]))},
    "no bounds": {"bounds": None},
    "points": {"keep_points": True},
    "base label unexplored": {"explore_base": False},
    "alpha 0": {"alpha": 0.0},
}


@pytest.mark.parametrize("settings", METHODS.values(), ids=METHODS.keys())
def test_every_setting_decides_the_same(settings):
    decision = compare(network(3, classes=5, gain=4), inputs(3, 6, 4), "l2", 0.4, chunks=(7,), **settings)
    assert decision.reached.sum() > 8
    assert (decision.explored is not None) == ("keep_points" in settings)


def test_samples_without_a_radius_empty_batches_and_single_samples():
    model = network(4, gain=4)
    found = compare(model, inputs(4, 12, 4), "l2", drq.Calibrated(0.9, steps=6)).found
    assert found.any()
    assert not found.all()
    compare(lambda x: model(x), inputs(4, 1, 4), "l2", drq.Calibrated(0.4, steps=6))  # any callable
    assert len(compare(model, inputs(4, 0, 4), "l2", 0.3)) == 0
    assert drq.DRQ(model, "l2", drq.Calibrated(), compile=True)(inputs(4, 0, 4)).shape == (0, 4)
    compare(lambda x: torch.stack([0 * x[:, 0], 0 * x[:, 0] - 1], 1), inputs(4, 3, 4), "l2")  # no slope, no radius


@pytest.mark.parametrize("prune", ["exact", "race"])
def test_the_schedule_changes_the_work_and_nothing_else(monkeypatch, prune):
    """Rounds or all candidates at once, last looks apart or not: what is known (``exact``) must not tell."""
    model, x = network(5, classes=12, gain=4), inputs(5, 9, 4)
    readable = drq.DRQ(model, "l2", 0.6, prune=prune, **STEPS).decide(x)
    ready, passes = Engine.prepare, []
    for spare in (0, 16, 10_000):
        with monkeypatch.context() as patch:
            patch.setattr(Engine, "prepare", lambda *given, spare=spare: replace(ready(*given), spare=spare))
            for chunk in (40, 256):
                decision = drq.DRQ(model, "l2", 0.6, prune=prune, compile=True, chunk=chunk, **STEPS).decide(x)
                agree(decision, readable, passes=False)
                passes.append(decision.passes.sum())
    assert not readable.exact.all()
    assert passes[0] == readable.passes.sum() < passes[-1]
    with monkeypatch.context() as patch:  # what may leave waits for others that do
        patch.setattr(slots, "FEW", 1)
        late = drq.DRQ(model, "l2", 0.6, prune=prune, compile=True, chunk=64, **STEPS).decide(x)
    agree(late, readable, passes=False)
    assert (late.passes >= readable.passes).all()


def given(seed: int, count: int, model=None, **settings) -> Problems:
    """Problems of quantification, some of which may leave early; the first feature, which is frozen, tells them apart."""
    random = torch.Generator().manual_seed(seed)
    center = torch.rand(count, 4, generator=random, dtype=torch.float64)
    label = torch.randint(0, 4, (count,), generator=random)
    ball = Ball(center, 0.1 + 0.3 * center[:, 1], "l2", (0.0, 1.0), torch.tensor([True, False, False, False]))
    direction = toward if seed % 3 == 0 else away_from
    return Problems.new(drq.Gradient(6), direction(model or network(0), label), ball, **settings)


def asking(problems: Problems, split: int | None = None):
    """A procedure that wants problems solved, at once or in two parts."""
    if split is None:
        return (yield problems)
    progress = yield problems.limited_to(problems.observations[:split])
    return (yield problems.continued_from(progress).limited_to(problems.observations[split:]))


def drive(procedures, chunk: int, spare: int = 0) -> list[Progress]:
    with torch.no_grad():  # as decisions do
        setting = SimpleNamespace(chunk=chunk, spare=spare, solve=solve, space=Space(None, None, None), meter=None)
        return list(Engine().drive(setting, procedures))


def same(first: Progress, second: Progress) -> None:
    for mine, other in zip(first.best.tensors(), second.best.tensors(), strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-9)


def mixed(model=None) -> list[tuple[Problems, int | None]]:
    """Problems that come in all ways: any number, in parts, and with values that are low enough, or never."""
    parts = []
    for seed in range(15):
        size = (5, 0, 9, 1, 3)[seed % 5]
        stop_below = [None, torch.linspace(-4, 2, size, dtype=torch.float64), torch.full((size,), -torch.inf).double()][seed % 3]
        parts.append(
            (given(seed, size, model, stop_below=stop_below), (None, 2, 6, None)[seed % 4] if stop_below is None else None)
        )
    return parts


@pytest.mark.parametrize(("chunk", "spare"), [(1, 0), (2, 4), (7, 0), (16, 4), (64, 0)])
def test_solutions_come_back_whole_and_in_order(chunk, spare):
    parts = mixed()
    solved = drive((asking(*part) for part in parts), chunk, spare)
    left_early = 0
    for (problems, _), progress in zip(parts, solved, strict=True):
        same(progress, solve(problems))
        left_early += (progress.best.passes < 7).sum()
    assert left_early > 4


@pytest.mark.parametrize("chunk", [3, 40])
def test_every_problem_gets_its_observations_in_a_slot_of_its_own(monkeypatch, chunk):
    """No more rows than slots; a slot holds what it says; the looks of a problem are those that were due, each once."""
    seen, batches, observe, calls = Counter(), [], SlotGroup._observe, Counter()
    inner = network(0)

    def model(x: Tensor) -> Tensor:
        batches.append(len(x))
        return inner(x)

    def watched(group: SlotGroup, batch: int) -> None:
        taken = [tuple(slot) for slot in group.slots[: group.live, :2].tolist()]
        assert group.live <= chunk
        assert batch >= group.live == len(set(taken))
        assert not group.slots[group.live :].any()
        for place, (number, row) in enumerate(taken):
            job = group.jobs[number]
            assert torch.equal(group.contents.center[place], job.problems.ball.center[row])
            assert group.contents.count[place] == job.problems.observations.start + seen[number, row]
            seen[number, row] += 1
        calls[group.last] += 1
        observe(group, batch)

    monkeypatch.setattr(SlotGroup, "_observe", watched)
    parts = mixed(model)
    solved = drive((asking(*part) for part in parts), chunk)
    assert max(batches) <= chunk
    assert sum(seen.values()) == sum(int(progress.best.passes.sum()) for progress in solved)
    for (problems, _), progress in zip(parts, solved, strict=True):
        never = (
            torch.ones(len(problems), dtype=torch.bool)
            if problems.stop_below is None
            else progress.best.value >= problems.stop_below
        )
        assert (progress.best.passes[never] == 7).all()


@pytest.mark.parametrize("size", [16, 30])
def test_free_slots_are_taken_at_once(size):
    """A batch takes as many calls of the model as its looks need slots, and one search to drain, whoever leaves when."""
    calls, inner = [], network(0)

    def model(x: Tensor) -> Tensor:
        calls.append(len(x))
        return inner(x)

    problems = [given(seed, size, model) for seed, size in enumerate([7, 1, 12, 30, 2, 5, 9] * 2)]
    problems = [replace(each, stop_below=torch.linspace(-4, 1, len(each), dtype=torch.float64)) for each in problems]
    solved = drive(map(asking, problems), size)
    observations = sum(int(progress.best.passes.sum()) for progress in solved)
    assert observations < 0.8 * 7 * sum(map(len, problems))  # many left early
    assert math.ceil(observations / size) <= len(calls) <= math.ceil(observations / size) + 7


@pytest.mark.parametrize(("spare", "scored"), [(0, 2), (20, 0)])
def test_last_observations_of_many_wait_for_each_other_and_need_no_gradient(spare, scored):
    updated, inner = [], network(0)

    def model(x: Tensor) -> Tensor:
        updated.append(x.requires_grad)
        return inner(x)

    same(drive([asking(problems := given(1, 20, model))], 16, spare)[0], solve(problems))
    updated = updated[: -problems.method.steps - 1]  # without those of the readable loop
    assert updated.count(False) == scored  # 20 last points on 16 slots
    assert updated.count(True) >= 2 * (7 - scored // 2)


class Later(Tensor):
    """Says that it is on a GPU, from where answers arrive a look later."""

    is_cuda = True


class Sent:
    def __init__(self, answer: Tensor, slots: slots.Places) -> None:
        self.slots, self.values = slots, answer.as_subclass(Tensor).clone().numpy()

    def arrived(self) -> slots.npt.NDArray[slots.np.bool_]:
        return self.values


@pytest.mark.parametrize("chunk", [3, 16])
def test_answers_that_arrive_late_are_about_those_who_asked(monkeypatch, chunk):
    """On a GPU problems leave a look later. Who takes their slot, or is moved to it, must not be sent away for them."""
    build = SlotGroup.__init__

    def build_later(group: SlotGroup, *arguments) -> None:
        build(group, *arguments)
        group.contents = replace(group.contents, stop_below=group.contents.stop_below.as_subclass(Later))

    monkeypatch.setattr(slots, "_FlagsInTransit", Sent)
    monkeypatch.setattr(SlotGroup, "__init__", build_later)
    parts, later = mixed(), 0
    for (problems, _), progress in zip(parts, drive((asking(*part) for part in parts), chunk), strict=True):
        expected, found = solve(problems).best, progress.best
        assert (found.passes >= expected.passes).all()
        later += (found.passes > expected.passes).sum()
        if problems.stop_below is not None:
            assert torch.equal(found.value < problems.stop_below, expected.value < problems.stop_below)
            assert (found.passes[found.value >= problems.stop_below] == 7).all()
        whole = expected.passes == 7
        torch.testing.assert_close(found.value[whole], expected.value[whole], rtol=0, atol=1e-9)
    assert later > 4
    model, x = network(5, classes=12, gain=4), inputs(5, 9, 4)
    readable = drq.DRQ(model, "l2", 0.6, **STEPS).decide(x)
    agree(drq.DRQ(model, "l2", 0.6, compile=True, chunk=chunk, **STEPS).decide(x), readable, passes=False)


def test_no_batch_is_run_without_problems(monkeypatch):
    observe = SlotGroup._observe

    def watched(group: SlotGroup, batch: int) -> None:
        assert group.live > 0
        observe(group, batch)

    monkeypatch.setattr(SlotGroup, "_observe", watched)
    drive((asking(*part) for part in mixed()), 40)


def test_zero_slopes_are_counted_alike():
    problems = given(1, 5, lambda x: torch.stack([0 * x[:, 0], *[0 * x[:, 0] - 1] * 3], 1))
    problems = replace(problems, stop_below=torch.full((5,), -100.0, dtype=torch.float64))
    same(drive([asking(problems)], 16)[0], solve(problems))


@pytest.mark.parametrize("radius", [0.3, drq.Calibrated(0.3, steps=4)])
def test_rows_that_wait_are_few_however_many_the_classes(monkeypatch, radius):
    """Memory is bounded by the number of slots, not by images or classes."""
    chunk, most, enqueue = 32, [0], Engine._enqueue

    def watched(engine: Engine, *given) -> None:
        enqueue(engine, *given)
        most[0] = max(most[0], sum(group.load for group in engine.groups.values()))

    monkeypatch.setattr(Engine, "_enqueue", watched)
    for classes, images in ((3, 40), (16, 120)):
        model = network(6, classes=classes)
        few = {"explore": drq.Gradient(2), "quantify": drq.Gradient(2)}
        drq.DRQ(model, "l2", radius, compile=True, chunk=chunk, **few).decide(inputs(6, images, 4))
        assert most[0] <= 8 * chunk
