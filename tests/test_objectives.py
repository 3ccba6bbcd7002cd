"""Log-odds, and the three things a search is asked for."""

import pytest
import torch
from testbed.classifiers import inputs, network

from drq.objectives import away_from, confident_elsewhere, dlr, dlr_toward, elsewhere_at, log_odds, opposite, toward


def test_log_odds_are_the_logit_of_the_confidence():
    logits = torch.randn(50, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 4
    expected = logits.softmax(1).logit()
    torch.testing.assert_close(log_odds(logits), expected)
    label = torch.arange(50) % 6
    torch.testing.assert_close(log_odds(logits, label), expected.gather(1, label[:, None])[:, 0])


def test_log_odds_rank_and_have_gradients_where_float32_confidence_is_one():
    logits = torch.tensor([[60.0, 0.0, -3.0], [90.0, 0.0, -3.0]], requires_grad=True)
    label = torch.tensor([0, 0])
    assert (logits.softmax(1)[:, 0] == 1).all()
    for odds in (log_odds(logits, label), log_odds(logits)[:, 0]):
        assert odds[1] > odds[0] + 29
        (gradient,) = torch.autograd.grad(odds.sum(), logits)
        assert (gradient[:, 0] == 1).all()
        assert gradient.isfinite().all()


def test_steepest_direction_is_that_of_the_cross_entropy():
    model, x = network(0), inputs(0, 10, 4).requires_grad_()
    label = torch.arange(10) % 4
    for objective, sign in ((toward(model, label), 1), (away_from(model, label), -1)):
        (ours,) = torch.autograd.grad(objective(x).value.sum(), x)
        loss = torch.nn.functional.cross_entropy(model(x), label, reduction="none")
        (theirs,) = torch.autograd.grad(loss.sum(), x)
        weight = objective(x).log_weight.exp()[:, None]
        torch.testing.assert_close(weight * ours, sign * theirs)  # (1 - f) grad o = grad log f


def test_toward_admits_exactly_the_points_of_its_class():
    model, x = network(1), inputs(1, 200, 4)
    label = torch.arange(200) % 4
    assert torch.equal(toward(model, label)(x).admitted, model(x).argmax(1) == label)
    assert away_from(model, label)(x).admitted.all()


@pytest.mark.parametrize("confidence", [0.0, 0.5, 0.7, 0.95])
def test_confident_elsewhere_is_negative_exactly_on_its_set(confidence):
    model, x = network(2, gain=8), inputs(2, 3000, 4)
    label = torch.arange(3000) % 4
    share = model(x).softmax(1)
    wanted = (share.argmax(1) != label) & (share.amax(1) >= confidence)
    assert 0 < wanted.double().mean() < 1
    score = confident_elsewhere(model, label, confidence)(x)
    assert torch.equal(score.admitted, wanted)
    assert torch.equal(score.value <= 0, wanted)


def test_threshold_in_log_odds_does_not_saturate():
    logits = torch.tensor([[0.0, 40.0]])
    own = elsewhere_at(lambda _: logits, torch.tensor([0]), torch.tensor([39.0]))
    assert own(logits).admitted.all()
    assert not elsewhere_at(lambda _: logits, torch.tensor([0]), torch.tensor([41.0]))(logits).admitted.any()


def test_opposite_turns_the_value_around():
    model, x = network(3), inputs(3, 5, 4)
    label = torch.zeros(5, dtype=torch.long)
    torch.testing.assert_close(opposite(toward(model, label))(x).value, -toward(model, label)(x).value)


def test_indexing_selects_rows():
    model, x = network(3), inputs(3, 5, 4)
    objective = confident_elsewhere(model, torch.tensor([0, 1, 2, 3, 0]), 0.3)
    rows = torch.tensor([3, 1])
    torch.testing.assert_close(objective[rows](x[rows]).value, objective(x).value[rows])


def test_ratios_have_the_published_formulas() -> None:
    logits, y, target = torch.tensor([[3.0, 1.0, -1.0, 2.0, 0.0]]), torch.tensor([1]), torch.tensor([4])
    assert dlr(lambda z: z, y)(logits).value.item() == pytest.approx((1 - 3) / (3 - 1))
    assert dlr_toward(lambda z: z, y, target)(logits).value.item() == pytest.approx((1 - 0) / (3 - (1 + 0) / 2))


def test_two_classes_are_a_case_of_many():
    """A third class whose logit is -inf changes nothing, to the last bit: neither values nor gradients."""
    logits = torch.tensor([[3.0, -1.25], [0.1, 0.1], [-40.0, 7.5], [1e-3, -1e-3]])
    label = torch.tensor([0, 1, 1, 0])
    for measure in (
        lambda each: log_odds(each, label),
        lambda each: elsewhere_at(lambda z: z, label, torch.full((4,), 0.3))(each).value,
    ):
        results = []
        for more in (False, True):
            given = logits.clone().requires_grad_()
            value = measure(torch.cat([given, torch.full((4, 1), -torch.inf)], 1) if more else given)
            results.append((value, *torch.autograd.grad(value.sum(), given)))
        assert torch.equal(results[0][0], results[1][0])
        assert torch.equal(results[0][1], results[1][1])
    torch.testing.assert_close(log_odds(logits).sigmoid(), logits.softmax(1))
