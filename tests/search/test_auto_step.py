"""Auto-PGD's search against the published schedule, closed forms, and the reference implementation."""

from dataclasses import replace

import pytest
import torch
from testbed.classifiers import inputs, linear, network
from testbed.digits import Digits
from torch import Tensor

import drq
from drq import threats
from drq.search.auto_step import AutoStepState
from drq.search.loop import search, slope

NORMS = ["linf", "l2", "l1"]


def test_checkpoints_are_the_published_ones() -> None:
    """p_0 = 0, p_1 = 0.22, p_{j+1} = p_j + max(p_j - p_{j-1} - 0.03, 0.06), in shares of 100 steps."""
    p = [0.0, 0.22]
    while p[-1] < 1:
        p.append(p[-1] + max(p[-1] - p[-2] - 0.03, 0.06))
    expected = [round(100 * each) for each in p[1:] if each < 1]
    checkpoints = drq.AutoStep(100).checkpoints
    assert [*checkpoints] == expected
    assert [*checkpoints.values()] == [late - early for early, late in zip([0, *expected], expected, strict=False)]


@pytest.mark.parametrize("steps", [1, 2, 3, 7, 50])
def test_short_searches_work(steps: int) -> None:
    model, x = network(0), inputs(0, 6, 4)
    y = model(x).argmax(1)
    ball = drq.Ball(x, 0.2, "linf", (0, 1))
    found = search(drq.AutoStep(steps), drq.away_from(model, y), ball)
    assert (found.passes == steps + 1).all()
    assert ball.contains(found.point).all()
    assert (found.value < drq.log_odds(model(x), y)).all()


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("method", [drq.AutoStep(60), drq.Gradient(60)], ids=["AutoStep", "Gradient"])
def test_linear_models_are_lowered_by_radius_times_dual_length(norm: str, method: drq.Search) -> None:
    weight = torch.randn(9, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    model, x, radius = linear(weight), inputs(2, 8, 9), 0.3
    found = search(method, drq.away_from(model, torch.ones(8, dtype=torch.long)), drq.Ball(x, radius, norm))
    optimum = x @ weight - radius * drq.Ball(x, radius, norm).norm.dual_length(weight[None])
    torch.testing.assert_close(found.value, optimum, rtol=0, atol=1e-9)


def test_the_step_is_halved_at_the_best_point_where_it_stops_paying() -> None:
    """Around the minimum of a parabola a step of the diameter oscillates; every review has to halve it."""

    def parabola(logits: Tensor) -> drq.objectives.Score:
        return drq.objectives.every_point(((logits - 0.3) ** 2).sum(1))

    x = torch.zeros(1, 3, dtype=torch.float64)
    objective, ball, method = drq.Objective(lambda point: point, parabola, ()), drq.Ball(x, 1.0, "linf"), drq.AutoStep(100)
    state = method.begin(x, ball)
    lengths, nothing = [], search(drq.Random(1), objective, ball)
    for count in range(100):
        state = method.move(method.observe(objective, ball, state, count), ball, state, nothing, count)
        assert isinstance(state, AutoStepState)
        lengths.append(state.length.item())
    assert lengths[0] == 2.0
    assert lengths[21] == 2.0
    assert lengths[22] == 1.0  # the first review is after 22 steps
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[-1] < 0.05
    assert (state.best_point - 0.3).abs().max() < 0.05


def test_rows_are_independent_and_saturated_models_are_no_obstacle() -> None:
    model, x = network(3, gain=60.0), inputs(4, 12, 4)  # log-odds in the hundreds: a confidence of 1 in float32 has no slope
    y = model(x).argmax(1)
    ball = drq.Ball(x, 0.3, "l2", (0, 1))
    together = search(drq.AutoStep(40), drq.away_from(model, y), ball)
    alone = search(drq.AutoStep(40), drq.away_from(model, y[5:6]), ball[slice(5, 6)])
    torch.testing.assert_close(alone.point, together.point[5:6], rtol=0, atol=1e-12)
    assert (together.stalled == 0).all()
    assert (together.value < drq.log_odds(model(x), y)).all()


def test_shortened_never_lengthens() -> None:
    assert drq.AutoStep(100).shortened(7) == drq.AutoStep(7)
    assert drq.AutoStep(5).shortened(7) == drq.AutoStep(5)
    assert drq.Gradient(20, direction="raw").shortened(3) == drq.Gradient(3, direction="raw")
    assert drq.Random(20).shortened(3) == drq.Random(3)
    assert replace(drq.Square(50), seed=3).shortened(9) == drq.Square(9, seed=3)


@pytest.mark.filterwarnings("ignore:there are .* points with zero gradient")  # DLR is flat where the true class comes third
@pytest.mark.parametrize(("aim", "loss"), [(drq.away_from, "ce"), (drq.dlr, "dlr")])
@pytest.mark.parametrize(("norm", "radius"), [("linf", 0.12), ("l2", 0.7)])
def test_as_strong_as_the_reference_on_digits(aim: object, loss: str, norm: str, radius: float, digits: Digits) -> None:
    """pyautoattack's Auto-PGD on the same images, the better of two seeds; cifar10-linf is in results/attacks.json."""
    from pyautoattack.autopgd_base import APGDAttack

    x, y = digits.x[:150], digits.y[:150]
    ours = (digits.model(threats.APGD(norm, radius, aim=aim)(digits.model, x, y)).argmax(1) == y).double().mean().item()
    theirs = []
    with torch.random.fork_rng(), torch.no_grad():
        for seed in range(2):
            options = {"norm": {"linf": "Linf", "l2": "L2"}[norm], "eps": radius, "n_iter": 100, "n_restarts": 1}
            attack = APGDAttack(digits.model, loss=loss, seed=seed, device="cpu", **options)
            theirs.append((digits.model(attack.perturb(x, y)).argmax(1) == y).double().mean().item())
    print(f"{norm} {loss}: ours {ours:.3f}, reference {theirs}")
    assert 0.1 < ours < 0.9  # the radius tells them apart
    assert ours <= min(theirs) + 0.0134  # two images of 150


def by_the_book(objective: drq.Objective, x: Tensor, radius: float, steps: int) -> tuple[list[Tensor], set[str]]:
    """Algorithm 1 of Croce and Hein for one sample in linf without a box: the points that it looks at, and why it halved."""

    def project(point: Tensor) -> Tensor:
        return x + (point - x).clamp(-radius, radius)

    here, before, length, values, visited, reasons = x, x, 2 * radius, [], [], set()
    best_value, best, best_slope, halved, milestone = float("inf"), x, x, True, float("inf")
    for k in range(steps):
        score, gradient = slope(objective, here)
        values.append(score.value.item())
        visited.append(here)
        if values[-1] < best_value:
            best_value, best, best_slope = values[-1], here, gradient
        if window := drq.AutoStep(steps).checkpoints.get(k):
            gains = sum(values[i] < values[i - 1] for i in range(k - window + 1, k + 1))
            few, stuck = gains < 0.75 * window, not halved and milestone == best_value
            reasons.add("few gains" if few else "stuck" if stuck else "neither")
            halved, milestone = few or stuck, best_value
            if halved:
                length, here, gradient = length / 2, best, best_slope
        ahead = project(here - length * gradient.sign())
        if k:
            ahead = project(here + 0.75 * (ahead - here) + 0.25 * (here - before))
        here, before = ahead, here
    return [*visited, here], reasons


def test_every_point_is_that_of_the_published_algorithm() -> None:
    """Values from a script, mostly falling with a jump now and then, so that both reasons to halve the step occur alone."""
    reasons = set()
    for seed in range(30):
        draws = torch.Generator().manual_seed(seed)
        script = torch.where(torch.rand(60, generator=draws) < 0.85, -0.1, 1.0).double().cumsum(0)
        x, looked_at = inputs(seed, 1, 4), []

        def measure(point: Tensor, script: Tensor = script, looked_at: list[Tensor] = looked_at) -> drq.objectives.Score:
            wave = (5 * point).sin().sum(1)
            looked_at.append(point.detach().clone())
            return drq.objectives.every_point(script[len(looked_at) - 1] + wave - wave.detach())

        objective = drq.Objective(lambda point: point, measure, ())
        search(drq.AutoStep(60 - 1), objective, drq.Ball(x, 0.3, "linf"))
        ours = torch.stack(looked_at)
        looked_at.clear()
        expected, why = by_the_book(objective, x, 0.3, 60 - 1)
        reasons |= why
        torch.testing.assert_close(ours, torch.stack(expected), rtol=0, atol=1e-9)
    assert reasons == {"few gains", "stuck", "neither"}
