"""One loop, every method: what is visited, what is remembered, what it costs."""

import pytest
import torch
from testbed.classifiers import inputs, linear, network
from testbed.refusals import refused
from torch import Tensor

import drq
from drq.objectives import Objective, Score, away_from, toward
from drq.search.loop import search, slope

METHODS = {
    "gradient": drq.Gradient(6),
    "raw": drq.Gradient(6, direction="raw"),
    "noise": drq.Gradient(4, smooth=drq.Noise(3)),
    "inner": drq.Gradient(3, smooth=drq.InnerAttack(2, steps=2)),
    "random": drq.Random(7),
    "minimum": drq.MinimumNorm(9),
}
every_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS.keys())
every_norm = pytest.mark.parametrize("norm", ["l1", "l2", "linf"])


class Recorder:
    """A model that remembers every batch it was asked about."""

    def __init__(self, model):
        self.model, self.seen = model, []

    def __call__(self, x: Tensor) -> Tensor:
        self.seen.append(x.detach().clone())
        return self.model(x)


def problem(model, norm: str = "linf", rows: int = 5, radius: float = 0.3):
    x = inputs(0, rows, 4)
    return toward(model, torch.arange(rows) % 4), drq.Ball(x, radius, norm, bounds=(0.0, 1.0))


@every_norm
@every_method
def test_conformance(method, norm):
    """Every method: start visited, box and ball kept, best admitted point returned, passes counted."""
    recorder = Recorder(network(0))
    objective, ball = problem(recorder, norm)
    found = search(method, objective, ball)
    seen = list(recorder.seen)
    counted = sum(map(len, seen)) / len(ball.center)
    assert torch.equal(seen[0], ball.center)
    assert found.passes.tolist() == [method.passes] * 5
    assert counted == method.passes
    assert ((torch.stack(seen) >= 0) & (torch.stack(seen) <= 1)).all()
    if not isinstance(method, drq.MinimumNorm):
        assert ball.contains(found.point).all()
        visited = seen if not getattr(method, "smooth", None) else [found.point, ball.center]
        scores = [objective(point) for point in visited]
        best = torch.stack([torch.where(s.admitted, s.value, torch.inf) for s in scores]).amin(0)
        torch.testing.assert_close(found.value, best)
        assert torch.equal(found.admitted, best < torch.inf)
    admitted = found.admitted
    torch.testing.assert_close(objective(found.point).value[admitted], found.value[admitted])
    assert objective(found.point).admitted[admitted].all()


@every_method
def test_rows_do_not_see_each_other(method):
    objective, ball = problem(network(0), "l2", rows=8)
    together = search(method, objective, ball)
    for row in range(8):
        only = torch.tensor([row])
        alone = search(method, objective[only], ball[only])
        torch.testing.assert_close(alone.point, together.point[only], rtol=0, atol=1e-9)
        torch.testing.assert_close(alone.value, together.value[only], rtol=0, atol=1e-9)


@every_norm
def test_step_length_and_direction(norm):
    recorder = Recorder(network(3))
    x = inputs(3, 4, 4)
    label = torch.arange(4)
    ball = drq.Ball(x, 0.2, norm)
    search(drq.Gradient(10, step=2.5), away_from(recorder, label), ball)
    step = recorder.seen[1] - recorder.seen[0]
    torch.testing.assert_close(ball.norm.length(step), torch.full((4,), 2.5 * 0.2 / 10, dtype=torch.float64))
    _, gradient = slope(away_from(network(3), label), x)
    torch.testing.assert_close(step, -ball.norm.steepest(gradient) * 2.5 * 0.2 / 10)


def test_point_after_the_last_step_is_scored():
    model = linear(torch.tensor([1.0, 0.0], dtype=torch.float64))
    ball = drq.Ball(torch.zeros(1, 2, dtype=torch.float64), 1.0, "linf")
    found = search(drq.Gradient(1, step=1.0), toward(model, torch.tensor([1])), ball)
    assert found.point.tolist() == [[1.0, 0.0]]
    assert found.value.tolist() == [-1.0]


def test_best_point_is_kept_even_when_the_search_moves_on_past_it():
    def measure(logits: Tensor) -> Score:
        value = (logits[:, 0] - 0.5).abs()  # V-shaped: steps of 0.4 jump from 0.4 to 0.8 and back
        return Score(value, torch.ones_like(value, dtype=torch.bool), torch.zeros_like(value))

    ball = drq.Ball(torch.zeros(1, 1), 1.0, "linf")
    found = search(drq.Gradient(2, step=0.8), Objective(lambda x: x, measure, ()), ball)
    torch.testing.assert_close(found.point, torch.tensor([[0.4]]))


def test_zero_gradient_moves_nothing_and_is_counted():
    def flat(x: Tensor) -> Tensor:
        return torch.stack([x.sum(1) * 0, x.sum(1) * 0 - 1], 1)

    x = inputs(0, 3, 4)
    found = search(drq.Gradient(5), away_from(flat, torch.tensor([0, 0, 1])), drq.Ball(x, 0.5, "l2"))
    assert torch.equal(found.point, x)
    assert found.stalled.tolist() == [5, 5, 5]
    found = search(drq.Gradient(5), away_from(network(0), torch.tensor([0, 0, 1])), drq.Ball(x, 0.5, "l2"))
    assert found.stalled.tolist() == [0, 0, 0]


@every_norm
def test_enough_lets_rows_leave_without_touching_the_others(norm):
    model, x = network(5), inputs(5, 40, 4)
    objective, ball = away_from(model, torch.arange(40) % 4), drq.Ball(x, 0.3, norm, (0.0, 1.0))
    full = search(drq.Gradient(12), objective, ball)
    stop_below = torch.where(torch.arange(40) % 2 == 0, full.value + 0.3, -torch.inf)
    early = search(drq.Gradient(12), objective, ball, stop_below=stop_below)
    staying = stop_below.isinf()
    torch.testing.assert_close(early.value[staying], full.value[staying], rtol=0, atol=1e-9)
    assert (early.value[~staying] < stop_below[~staying]).all()
    assert (early.passes[~staying] < full.passes[~staying]).any()
    assert torch.equal(early.passes[staying], full.passes[staying])


@every_norm
def test_gradient_search_beats_random_search_on_a_linear_model_and_is_optimal(norm):
    weight = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)
    x = inputs(1, 6, 4)
    ball = drq.Ball(x, 0.1, norm)
    objective = toward(linear(weight), torch.ones(6, dtype=torch.long))
    best = -(x @ weight) - 0.1 * ball.norm.dual_length(weight[None])
    torch.testing.assert_close(search(drq.Gradient(20), objective, ball).value, best)
    assert (search(drq.Random(20), objective, ball).value > best).all()


def test_smoothed_gradient_is_the_weighted_average_of_cross_entropy_gradients():
    model, x = network(6), inputs(6, 3, 4)
    label, ball = torch.tensor([0, 1, 2]), drq.Ball(x, 0.2, "linf")
    noise = drq.Noise(4, scale=0.5, seed=3)
    gradient = noise.gradient(toward(model, label), ball, x, count=2)
    neighbours = [noise.neighbour(toward(model, label), ball, x, 2 * 4 + k) for k in range(4)]
    assert all(drq.Ball(x, 0.1, "linf").contains(near).all() for near in neighbours)
    points = [near.clone().requires_grad_() for near in neighbours]
    losses = [torch.nn.functional.cross_entropy(model(p), label, reduction="none") for p in points]
    total = torch.stack([torch.autograd.grad(loss.sum(), p)[0] for loss, p in zip(losses, points, strict=True)]).sum(0)
    cosine = torch.nn.functional.cosine_similarity(gradient, total)
    torch.testing.assert_close(cosine, torch.ones(3, dtype=torch.float64))


def test_smoothed_gradient_survives_saturation():
    model, x = network(6), inputs(6, 3, 4).float()
    sharp = lambda z: 200 * model.float()(z)  # noqa: E731
    label = sharp(x).argmax(1)
    gradient = drq.Noise(4).gradient(toward(sharp, label), drq.Ball(x, 0.01, "linf"), x, count=0)
    assert (gradient.abs().flatten(1).amax(1) > 0).all()


def test_inner_attack_looks_at_worse_points_than_its_centre():
    model, x = network(7), inputs(7, 20, 4)
    objective, ball = toward(model, torch.arange(20) % 4), drq.Ball(x, 0.2, "l2")
    near = drq.InnerAttack(4, steps=7).neighbour(objective, ball, x, 0)
    assert ball.contains(near).all()
    assert (objective(near).value > objective(x).value).double().mean() > 0.9


def test_different_seeds_draw_different_points():
    objective, ball = problem(network(0))
    first, again, other = (search(drq.Random(5, seed=s), objective, ball).point for s in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: drq.Gradient(0), "steps must be a whole number of at least 1, got 0"),
        (lambda: drq.Gradient(2.5), "steps must be a whole number"),
        (lambda: drq.Gradient(step=0), "step must be above 0, got 0"),
        (lambda: drq.Gradient(direction="up"), "direction must be 'steepest' or 'raw', got 'up'"),
        (lambda: drq.Gradient(checkpoint=True), "checkpoint must go with unroll=True"),
        (lambda: drq.Random(0), "samples must be a whole number of at least 1, got 0"),
        (lambda: drq.Noise(0), "samples must be at least 1, got 0"),
        (lambda: drq.Noise(scale=-1), "scale must be at least 0, got -1"),
        (lambda: drq.InnerAttack(steps=0), "steps must be a whole number of at least 1, got 0"),
        (lambda: drq.MinimumNorm(0), "steps must be a whole number of at least 1, got 0"),
    ],
)
def test_settings_out_of_range(make, message):
    with pytest.raises(drq.InputError) as caught:
        make()
    assert message in str(caught.value)


def test_raw_direction_is_the_gradient_scaled_to_length_one():
    recorder, x = Recorder(network(3)), inputs(3, 4, 4)
    label, ball = torch.arange(4), drq.Ball(x, 0.2, "linf")
    search(drq.Gradient(10, direction="raw"), away_from(recorder, label), ball)
    _, gradient = slope(away_from(network(3), label), x)
    expected = -gradient / gradient.abs().amax(1, keepdim=True) * 2.5 * 0.2 / 10
    torch.testing.assert_close(recorder.seen[1] - recorder.seen[0], expected)


@every_norm
@pytest.mark.parametrize("direction", ["steepest", "raw"])
def test_frozen_features_do_not_steal_the_step(norm, direction):
    """One step of full length reaches the optimum among free features, however steep a frozen one is."""
    weight = torch.tensor([100.0, 3.0, 0.0], dtype=torch.float64)
    ball = drq.Ball(inputs(1, 2, 3), 0.1, norm, None, torch.tensor([True, False, False]))
    objective = toward(linear(weight), torch.tensor([1, 1]))
    found = search(drq.Gradient(1, step=1.0, direction=direction), objective, ball)
    torch.testing.assert_close(found.point - ball.center, torch.tensor([[0.0, 0.1, 0.0]] * 2, dtype=torch.float64))


def test_a_feature_without_a_slope_does_not_stop_the_others():
    def model(x: Tensor) -> Tensor:  # the slope of the root is infinite at 0
        return torch.stack([x[:, 0].sqrt() + 4 * x[:, 1] - 2, 0 * x[:, 0]], 1)

    x = torch.tensor([[0.0, 0.6]], dtype=torch.float64)
    for norm in ("l1", "l2", "linf"):
        decision = drq.DRQ(model, norm, 0.4, frozen=torch.tensor([True, False])).decide(x)
        assert decision.reached.all()
        radius, _ = drq.calibrate(model, x, norm, 0.5, frozen=torch.tensor([True, False]))
        assert radius.item() == pytest.approx(0.1, rel=1e-3)


def test_neighbours_differ_by_seed_and_by_draw():
    objective, ball = problem(network(0))
    for make in (drq.Noise, drq.InnerAttack):
        points = [make(2, seed=s).neighbour(objective, ball, ball.center, draw) for s in (0, 1) for draw in (0, 1)]
        again = make(2, seed=0).neighbour(objective, ball, ball.center, 0)
        assert torch.equal(points[0], again)
        assert not torch.equal(points[0], points[1])
        assert not torch.equal(points[0], points[2])


def test_nearest_works_on_inputs_made_in_inference_mode():
    objective = drq.confident_elsewhere(network(0), torch.tensor([0, 1, 2]), 0.0)
    expected = drq.nearest(objective, inputs(0, 3, 4), "l2").merit
    with torch.inference_mode():
        assert torch.equal(drq.nearest(objective, inputs(0, 3, 4), "l2").merit, expected)


@pytest.mark.parametrize("at_once", [1, 3, 7, 8])
def test_a_look_in_pieces_is_the_look_at_all(at_once):
    """No pass of the model has more points than go together, and every row gets what it gets alone."""
    model, x, label = network(3), inputs(3, 7, 4), torch.arange(7) % 3
    sizes = []

    def counted(point: Tensor) -> Tensor:
        sizes.append(len(point))
        return model(point)

    whole, pieces = (
        away_from(model, label),
        Objective(counted, away_from(model, label).measure, away_from(model, label).given, at_once),
    )
    score, gradient = slope(pieces, x)
    expected, steepest = slope(whole, x)
    assert sizes == [min(at_once, 7 - first) for first in range(0, 7, at_once)]
    torch.testing.assert_close(gradient, steepest)
    for mine, other in zip(score, expected, strict=True):
        torch.testing.assert_close(mine, other)
    ball = drq.Ball(x, 0.3, "l2")
    found, other = search(drq.Gradient(4), pieces, ball), search(drq.Gradient(4), whole, ball)
    torch.testing.assert_close(found.point, other.point)
    torch.testing.assert_close(found.value, other.value)
    assert max(sizes) <= at_once


def test_a_search_of_0_1_is_told_what_it_overrides_now():
    def old() -> type:
        class Old(drq.Gradient):
            def look(self, objective, ball, state, count):
                return None

        return Old

    refused(old, words=["Old must override observe, got look", "0.2"])
