"""Who wins, by how much, and what is reported of the losers."""

import pytest
import torch
from testbed.classifiers import inputs, network
from torch import Tensor

import drq

NORMS = [drq.L1(), drq.L2(), drq.Linf()]


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
