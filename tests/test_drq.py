"""The method against closed forms, and the laws it must keep."""

import pytest
import torch
from classifiers import inputs, linear, network
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


def test_exact_pruning_on_many_random_problems():
    problems, saved, dropped = 0, 0, 0
    for seed in range(40):
        classes = 3 + seed % 5
        model, x = network(seed, features=3, classes=classes, gain=1.5 + seed % 4), inputs(seed, 55, 3)
        settings = {
            "norm": NORMS[seed % 3],
            "radius": 0.1 + 0.1 * (seed % 4),
            "explore": drq.Gradient(6),
            "quantify": drq.Gradient(8),
        }
        full, fast = (drq.DRQ(model, **settings, prune=prune).decide(x) for prune in ("none", "exact"))
        assert torch.equal(full.label, fast.label)
        assert torch.equal(full.runner_up, fast.runner_up)
        torch.testing.assert_close(full.margin, fast.margin, rtol=0, atol=1e-9)
        winner = full.label[:, None]
        torch.testing.assert_close(full.robustness.gather(1, winner), fast.robustness.gather(1, winner), rtol=0, atol=1e-9)
        torch.testing.assert_close(full.robustness[fast.exact], fast.robustness[fast.exact], rtol=0, atol=1e-9)
        bound = fast.robustness[~fast.exact]
        torch.testing.assert_close(bound, full.explored_confidence[~fast.exact])  # a dropped class reports this bound
        assert (bound >= full.robustness[~fast.exact] - 1e-9).all()
        assert (fast.passes <= full.passes).all()
        robust = drq.DRQ(model, **settings, prune="exact")
        assert torch.equal(robust(x).argmax(1), full.label)
        problems += len(x)
        saved += (full.passes - fast.passes).sum().item()
        dropped += (~fast.exact).sum().item()
    assert problems >= 2000
    assert saved > 0
    assert dropped > 200


def test_pruned_scores_never_overtake_the_winner():
    """A class may be explored with more confidence than the winner keeps, and dropped later: it must not win by its bound."""
    overtaking = 0
    for seed in range(20):
        model, x = network(seed, features=3, classes=6, gain=4), inputs(seed, 40, 3)
        robust = drq.DRQ(model, "l2", 0.4)
        decision = robust.decide(x)
        best = decision.robustness.gather(1, decision.label[:, None])
        overtaking += ((decision.robustness > best) & ~decision.exact).sum().item()
        assert torch.equal(robust(x).argmax(1), decision.label)
    assert overtaking > 0  # otherwise this test shows nothing


def test_ties_go_to_the_base_label_then_to_the_lower_index():
    def symmetric(x: Tensor) -> Tensor:  # classes 1 and 2 mirror each other around 0, class 0 is never reached
        return torch.stack([x[:, 0] * 0 - 9, x[:, 0], -x[:, 0]], 1)

    for value, label in ((0.0, 1), (1e-300, 1), (-1e-300, 2)):
        decision = drq.DRQ(symmetric, "linf", 0.5, bounds=None).decide(torch.tensor([[value]], dtype=torch.float64))
        assert decision.base_label.tolist() == [label]
        assert decision.label.tolist() == [label]
        assert decision.margin.item() == 0


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


def test_no_calibrated_radius_leaves_the_base_classifier():
    bias = torch.tensor([2.0, 1.0, 0.0])
    x = torch.rand(4, 2, generator=torch.Generator().manual_seed(0))
    robust = drq.DRQ(lambda x: bias + 0.01 * x[:, :1] * torch.tensor([1.0, 0.0, 0.0]), "l2", drq.Calibrated(0.9, steps=10))
    decision = robust.decide(x)
    share = (bias + 0.01 * x[:, :1] * torch.tensor([1.0, 0.0, 0.0])).softmax(1)
    assert not decision.found.any()
    assert decision.radius.isinf().all()
    assert decision.label.tolist() == decision.base_label.tolist() == [0] * 4
    assert decision.margin.tolist() == [0] * 4
    torch.testing.assert_close(decision.robustness, share)
    torch.testing.assert_close(robust(x), share.log())
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(robust(leaf)[:, 0].sum(), leaf)
    assert (gradient[:, 0] > 0).all()


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


def test_log_robustness_is_finite_for_hopeless_classes():
    robust = drq.DRQ(lambda x: torch.cat([x * 0, x * 1e5], 1), "linf", 0.5, alpha=1.0, bounds=None)
    output = robust(torch.tensor([[0.3]]))
    assert output.isfinite().all()
    assert output[0, 0] == -9e3
    assert robust.decide(torch.tensor([[0.3]])).reached.all()


def test_argmax_of_the_scores_is_the_label_of_a_very_confident_model():
    robust = drq.DRQ(lambda z: torch.cat([2000 * (z - 0.5), 2200 * (0.5 - z)], 1), "linf", 0.4, bounds=None)
    x = torch.tensor([[0.45]])
    assert robust.decide(x).label.tolist() == robust(x).argmax(1).tolist() == [1]


def test_margin_of_two_saturated_classes_does_not_cancel():
    def model(z: Tensor) -> Tensor:  # explored at x = 0.5 + 0.4 and 0.5 - 0.4, not pushed down: log-odds 25 and 20
        return torch.cat([0 * z, torch.where(z > 0.5, 25 * (z - 0.5) / 0.4, 20 * (z - 0.5) / 0.4)], 1)

    decision = drq.DRQ(model, "linf", 0.4, alpha=0.0).decide(torch.tensor([[0.5]]))
    torch.testing.assert_close(decision.log_odds, torch.tensor([[20.0, 25.0]]), rtol=1e-4, atol=0)
    assert decision.margin.item() == pytest.approx(2.06115e-9 - 1.3888e-11, rel=1e-2)


def test_zero_slopes_of_all_three_steps_are_counted():
    def flat(x: Tensor) -> Tensor:
        return torch.stack([0 * x[:, 0], 0 * x[:, 0] - 1], 1)

    settings = {"explore": drq.Gradient(3), "quantify": drq.Gradient(5), "prune": "none"}
    x = torch.rand(2, 2, generator=torch.Generator().manual_seed(0))
    assert drq.DRQ(flat, "l2", 0.1, **settings).decide(x).stalled.tolist() == [2 * 3 + 5] * 2
    assert drq.DRQ(flat, "l2", drq.Calibrated(0.5, steps=7), **settings).decide(x).stalled.tolist() == [7] * 2


def test_points_of_the_likeliest_classes_stand_in_their_order():
    model, x = network(5, classes=6), inputs(5, 30, 4)
    decision = drq.DRQ(model, "l2", 0.5, classes=3, keep_points=True).decide(x)
    known = ~decision.explored.isnan().any(2)
    assert known.sum() > 40
    assert torch.equal(model(decision.explored[known]).argmax(1), decision.classes[known])
    exact = decision.exact.gather(1, decision.classes)
    assert decision.quantified[known & ~exact].isnan().all()
    assert not decision.quantified[known & exact].isnan().any()


def test_base_label_is_among_the_likeliest_even_when_tied():
    decision = drq.DRQ(lambda x: x[:, :1] * 0 + torch.zeros(10), "l2", 0.1, classes=1).decide(torch.rand(3, 2))
    assert decision.classes.tolist() == [[0]] * 3
    assert decision.reached[:, 0].all()


def test_sample_without_a_radius_reaches_its_base_label_only_and_stays_finite():
    robust = drq.DRQ(lambda x: torch.cat([x * 0 + 1e5, x * 0, x * 0], 1), "l2", drq.Calibrated(steps=3))
    decision = robust.decide(torch.rand(2, 1))
    assert decision.reached.tolist() == [[True, False, False]] * 2
    assert robust(torch.rand(2, 1)).min() == -9e3


def test_found_and_not_found_samples_share_a_batch():
    def model(x: Tensor) -> Tensor:  # class 1 is the other side of 0.5, out of reach where the second feature is 1
        return torch.stack([0 * x[:, 0], (x[:, 0] - 0.5) * (1 - x[:, 1]) - 1e-3 * x[:, 1]], 1)

    x = torch.tensor([[0.3, 0.0], [0.3, 1.0], [0.4, 0.0]], dtype=torch.float64)
    robust = drq.DRQ(model, "l2", drq.Calibrated(0.5), frozen=torch.tensor([False, True]))
    decision = robust.decide(x)
    assert decision.found.tolist() == [True, False, True]
    assert decision.margin[1] == 0
    torch.testing.assert_close(robust(x)[1], model(x)[1].log_softmax(0))
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(robust(leaf).amax(1).sum(), leaf)
    assert gradient.isfinite().all()


def test_confidence_near_one_is_not_rounded_to_it():
    weight, x = torch.tensor([40.0, 30.0]), torch.tensor([[0.6, 0.4]])
    _, found = drq.calibrate(linear(weight.double(), -20.0).float(), x, "l2", 0.99999999, bounds=None)
    assert found.all()


def test_three_way_ties_survive_pruning():
    """Copies of a class tie exactly: the bar is met, not fallen below, and nothing of the tie may be dropped."""
    inner = network(3, classes=3)
    copies = lambda x: inner(x)[:, [0, 1, 0, 2, 0]]  # noqa: E731
    for row in inputs(4, 25, 4):
        full, fast = (drq.DRQ(copies, "l2", 0.4, prune=p, chunk=1).decide(row[None]) for p in ("none", "exact"))
        assert torch.equal(full.label, fast.label)
        assert torch.equal(full.runner_up, fast.runner_up)
        assert torch.equal(full.margin, fast.margin)
        tied = full.reached & (full.log_odds >= full.log_odds.gather(1, full.runner_up.clamp(min=0)[:, None]))
        assert fast.exact[tied].all()
