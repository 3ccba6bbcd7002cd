"""The method against closed forms, and the laws it must keep."""

import pytest
import torch
from testbed.classifiers import inputs, linear, network
from torch import Tensor, nn

import drq
from drq.objectives import log_odds

NORMS = [drq.L1(), drq.L2(), drq.Linf()]
every_norm = pytest.mark.parametrize("norm", NORMS, ids=repr)
SEARCHES = {
    "gradient": drq.Gradient(8),
    "raw": drq.Gradient(8, direction="raw"),
    "random": drq.Random(8),
    "noise": drq.Gradient(4, smooth=drq.Noise(3)),
    "inner": drq.Gradient(3, smooth=drq.InnerAttack(2, steps=2)),
}
every_search = pytest.mark.parametrize("how", SEARCHES.values(), ids=SEARCHES.keys())


def gaussian(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@every_norm
@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("prune", ["none", "exact"])
def test_closed_form_of_a_linear_classifier(norm, alpha, prune):
    """Exploration adds eps |w|_* to the log-odds of either class, quantification takes alpha eps |w|_* away again."""
    weight, x, radius = gaussian(0, 7), gaussian(1, 64, 7), 0.2
    robust = drq.DRQ(linear(weight, 0.1), norm, radius, alpha=alpha, bounds=None, prune=prune)
    decision = robust.decide(x)
    score = x @ weight + 0.1
    odds = torch.stack([-score, score], 1)
    gain = radius * norm.dual_length(weight[None])
    reached = odds + gain > 0
    assert 0.1 < reached.double().mean() < 0.99  # the example has classes of both kinds
    assert torch.equal(decision.reached, reached)
    expected = torch.where(reached, (odds + (1 - alpha) * gain).sigmoid(), 0)
    torch.testing.assert_close(decision.robustness, expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(decision.explored_log_odds[reached], (odds + gain)[reached], rtol=0, atol=1e-6)
    assert torch.equal(decision.label, (score > 0).long())
    first, second = expected.amax(1), expected.amin(1)
    torch.testing.assert_close(decision.margin, first - second, rtol=0, atol=1e-6)


@every_norm
def test_calibrated_radius_is_twice_the_distance_of_a_linear_boundary(norm):
    weight, x = gaussian(2, 5), gaussian(3, 20, 5)
    decision = drq.DRQ(linear(weight), norm, bounds=None).decide(x)
    exact = 2 * (x @ weight).abs() / norm.dual_length(weight[None])  # own confidence on the other side
    torch.testing.assert_close(decision.radius, exact, rtol=0.02, atol=0)
    assert decision.found.all()
    assert drq.DRQ(linear(weight), norm, 0.8, bounds=None).decide(x).radius.eq(0.8).all()  # not rounded to float32


@every_norm
@every_search
def test_laws_of_a_decision(norm, how):
    x, model = inputs(1, 40, 4), network(1)
    radius = 0.25
    robust = drq.DRQ(model, norm, radius, explore=how, quantify=how, prune="none", keep_points=True)
    decision = robust.decide(x)
    base = model(x).argmax(1)
    assert torch.equal(decision.base_label, base)
    assert decision.reached.gather(1, base[:, None]).all()  # the start is a visited point
    assert (decision.robustness <= decision.explored_confidence).all()
    assert (decision.robustness[~decision.reached] == 0).all()
    assert decision.exact.all()
    assert decision.reached.sum() > 50  # other classes than the base label were reached too
    assert decision.reached.gather(1, decision.label[:, None]).all()
    assert torch.equal(decision.classes, torch.arange(4).expand(40, 4))

    ordered = decision.robustness.sort(1, descending=True).values
    torch.testing.assert_close(decision.margin, ordered[:, 0] - ordered[:, 1])
    assert torch.equal(robust(x).argmax(1), decision.label)
    torch.testing.assert_close(robust(x)[decision.reached], decision.robustness.log()[decision.reached])
    assert (robust(x)[~decision.reached] == -1e4).all()

    for i in range(4):
        reached = decision.reached[:, i]
        explored, quantified = decision.explored[reached, i], decision.quantified[reached, i]
        assert (model(explored).argmax(1) == i).all()
        odds = log_odds(model(explored), torch.full((len(explored),), i))
        torch.testing.assert_close(odds, decision.explored_log_odds[reached, i])
        assert drq.Ball(x[reached], radius, norm, (0.0, 1.0)).contains(explored).all()
        assert drq.Ball(explored, radius / 2, norm, (0.0, 1.0)).contains(quantified).all()
        torch.testing.assert_close(model(quantified).softmax(1)[:, i], decision.robustness[reached, i])
        assert decision.explored[~reached, i].isnan().all()


def test_exploration_counts_only_points_of_the_class():
    """Towards class 2 confidence grows to 0.4 while class 0 stays ahead: class 2 is not reached, whatever its confidence."""

    def model(x: Tensor) -> Tensor:
        return torch.stack([1 + 0 * x[:, 0], 0 * x[:, 0], 0.9 * x[:, 0]], 1)

    decision = drq.DRQ(model, "linf", 0.5).decide(torch.tensor([[0.5]]))
    assert decision.reached.tolist() == [[True, False, False]]
    assert decision.robustness[0, 1:].tolist() == [0.0, 0.0]
    assert decision.margin.tolist() == decision.robustness[:, 0].tolist()
    assert decision.runner_up.tolist() == [-1]


@every_norm
@every_search
@pytest.mark.parametrize("radius", [0.2, drq.Calibrated(0.6, steps=15)], ids=["fixed", "calibrated"])
def test_result_is_independent_of_batch_order_and_chunk(norm, how, radius):
    x, model = inputs(2, 12, 4), network(2)

    def decide(samples: Tensor, chunk: int | None = None) -> drq.Decision:
        return drq.DRQ(model, norm, radius, explore=how, quantify=how, chunk=chunk).decide(samples)

    whole, order = decide(x), torch.randperm(12, generator=torch.Generator().manual_seed(0))
    pieces = [decide(x[i : i + 1]) for i in range(12)]
    for other, rows in ((decide(x[order]), order), (pieces[0].joined(pieces[1:]), slice(None)), (decide(x, 1), slice(None)),
                        (decide(x, 7), slice(None)), (decide(x, 1000), slice(None))):  # fmt: skip
        assert torch.equal(other.label, whole.label[rows])
        assert torch.equal(other.exact, whole.exact[rows])
        assert torch.equal(other.passes, whole.passes[rows])
        torch.testing.assert_close(other.robustness, whole.robustness[rows], rtol=0, atol=1e-9)
        torch.testing.assert_close(other.radius, whole.radius[rows], rtol=1e-9, atol=1e-9)


def test_radius_zero_is_the_base_classifier():
    model, x = network(4), inputs(4, 30, 4)
    decision = drq.DRQ(model, "linf", 0.0).decide(x)
    base = model(x).argmax(1)
    assert torch.equal(decision.label, base)
    assert torch.equal(decision.reached, nn.functional.one_hot(base, 4).bool())
    torch.testing.assert_close(decision.robustness.amax(1), model(x).softmax(1).amax(1))


def test_one_radius_for_each_sample():
    model, x = network(4), inputs(4, 6, 4)
    radius = torch.tensor([0.0, 0.05, 0.1, 0.2, 0.3, 0.4])
    together = drq.DRQ(model, "l2", radius).decide(x)
    for row in range(6):
        alone = drq.DRQ(model, "l2", radius[row].item()).decide(x[row : row + 1])
        torch.testing.assert_close(alone.robustness[0], together.robustness[row], rtol=0, atol=1e-6)
    torch.testing.assert_close(together.radius, radius.double())


def test_top_classes_only():
    model, x = network(5, classes=6), inputs(5, 30, 4)
    full, few = drq.DRQ(model, "l2", 0.3, prune="none").decide(x), drq.DRQ(model, "l2", 0.3, classes=2, prune="none").decide(x)
    top = model(x).topk(2).indices
    assert torch.equal(few.classes, top)
    assert few.reached.sum(1).max() <= 2
    torch.testing.assert_close(few.robustness.gather(1, top), full.robustness.gather(1, top))
    assert (few.passes < full.passes).all()


def test_passes_are_the_evaluations_of_the_model():
    counted = torch.zeros((), dtype=torch.long)
    inner = network(6)

    def model(x: Tensor) -> Tensor:
        counted.add_(len(x))
        return inner(x)

    x = inputs(6, 7, 4)
    for radius in (0.2, drq.Calibrated(steps=9)):
        for prune in ("none", "exact"):
            counted.zero_()
            decision = drq.DRQ(model, "l2", radius, prune=prune, explore=drq.Gradient(5, smooth=drq.Noise(2))).decide(x)
            assert decision.passes.sum() == counted - 1  # one more row examines the model, once a call
    steps = drq.DRQ(inner, "l2", 0.2, prune="none").decide(x)
    assert torch.equal(steps.passes, 1 + 4 * 21 + steps.reached.sum(1) * 21)


def test_frozen_features_and_bounds_per_feature():
    model, x = network(7), inputs(7, 10, 4)
    low, high = torch.tensor([0.0, -1.0, 0.0, 0.0]), torch.tensor([1.0, 2.0, 1.0, 1.0])
    frozen = torch.tensor([False, False, True, False])
    robust = drq.DRQ(model, "l2", 0.9, bounds=(low, high), frozen=frozen, prune="none", keep_points=True)
    decision = robust.decide(x)
    for points in (decision.explored, decision.quantified):
        moved = points[decision.reached] - x[:, None].expand_as(points)[decision.reached]
        assert (moved[:, 2] == 0).all()
        inside = points[decision.reached]
        assert ((inside >= low) & (inside <= high)).all()
    assert (decision.explored[decision.reached][:, 1] < 0).any()


def test_saturated_model_still_ranks_calibrates_and_has_gradients():
    inner = network(4, gain=4).float()
    sharp = lambda x: 150 * inner(x)  # noqa: E731
    x = inputs(4, 30, 4).float()
    assert (sharp(x).softmax(1).amax(1) == 1).double().mean() > 0.5
    saturated = drq.DRQ(sharp, "l2", 0.4)
    decision = saturated.decide(x)
    contested = decision.reached.sum(1) > 1
    assert contested.sum() >= 5
    odds = decision.log_odds[contested].sort(1, descending=True).values
    assert (odds[:, 0] > odds[:, 1]).all()  # ranked, though both robustnesses may be 0 or 1 in float32
    wide = network(4, gain=4)
    exact = drq.DRQ(lambda x: 150 * wide(x), "l2", 0.4).decide(x.double())
    assert (decision.label == exact.label).double().mean() > 0.9
    assert drq.DRQ(sharp, "l2").decide(x).found.double().mean() > 0.9
    leaf = x.clone().requires_grad_()
    odds = saturated(leaf)
    (gradient,) = torch.autograd.grad(odds[odds > -1e4].sum(), leaf)
    assert gradient.isfinite().all()
    assert decision.stalled.sum() == 0


def test_float32_agrees_with_float64():
    model, x = network(9), inputs(9, 60, 4)
    double = drq.DRQ(model, "l2", 0.2).decide(x)
    single = drq.DRQ(network(9).float(), "l2", 0.2).decide(x.float())
    assert single.robustness.dtype == torch.float32
    assert (single.label == double.label).all()
    torch.testing.assert_close(single.robustness[single.exact & double.exact].double(),
                               double.robustness[single.exact & double.exact], rtol=0, atol=1e-3)  # fmt: skip


def test_zero_slopes_of_all_three_steps_are_counted():
    def flat(x: Tensor) -> Tensor:
        return torch.stack([0 * x[:, 0], 0 * x[:, 0] - 1], 1)

    settings = {"explore": drq.Gradient(3), "quantify": drq.Gradient(5), "prune": "none"}
    x = torch.rand(2, 2, generator=torch.Generator().manual_seed(0))
    assert drq.DRQ(flat, "l2", 0.1, **settings).decide(x).stalled.tolist() == [2 * 3 + 5] * 2
    assert drq.DRQ(flat, "l2", drq.Calibrated(0.5, steps=7), **settings).decide(x).stalled.tolist() == [7] * 2


def test_confidence_near_one_is_not_rounded_to_it():
    weight, x = torch.tensor([40.0, 30.0]), torch.tensor([[0.6, 0.4]])
    _, found = drq.calibrate(linear(weight.double(), -20.0).float(), x, "l2", 0.99999999, bounds=None)
    assert found.all()
