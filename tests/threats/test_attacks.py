"""Attacks on a static model: closed forms, what sets each apart, and why a list of likely classes is not safe."""

from dataclasses import replace

import pytest
import torch
from testbed.classifiers import inputs, linear, network
from testbed.digits import Digits
from torch import Tensor

import drq
from drq import threats
from drq.threats import attacks

NORMS = {"linf": 0.1, "l2": 0.3, "l1": 0.6}


def right(model: torch.nn.Module, x: Tensor, y: Tensor) -> float:
    return (model(x).argmax(1) == y).double().mean().item()


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("attack", [threats.PGD, threats.APGD])
def test_linear_models_are_attacked_to_the_optimum(norm: str, attack: type[threats.PGD | threats.APGD]) -> None:
    """Without a box the worst log-odds are w.x - radius |w|_*, in every norm."""
    weight = torch.randn(12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    model, x, y = linear(weight), inputs(1, 20, 12), torch.ones(20, dtype=torch.long)
    threat = attack(norm, NORMS[norm], bounds=None)
    odds = drq.log_odds(model(threat(model, x, y)), y)
    dual = threat.ball(x).norm.dual_length(weight[None])
    torch.testing.assert_close(odds, x @ weight - NORMS[norm] * dual, rtol=0, atol=1e-9)


def test_in_a_box_linf_attacks_reach_the_worst_corner() -> None:
    weight = torch.randn(12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    model, x, y = linear(weight), inputs(1, 20, 12), torch.ones(20, dtype=torch.long)
    corner = (x - 0.4 * weight.sign()).clamp(0, 1)
    for attack in (threats.PGD("linf", 0.4), threats.APGD("linf", 0.4)):
        torch.testing.assert_close(attack(model, x, y), corner, rtol=0, atol=1e-12)


def test_attacks_do_not_stop_at_the_first_success() -> None:
    """Examples of high confidence: going on lowers the true class further, long after the label has changed."""
    weight = torch.ones(4, dtype=torch.float64)
    model, x = linear(weight, bias=-2.0), torch.full((1, 4), 0.51, dtype=torch.float64)
    y = torch.ones(1, dtype=torch.long)
    for attack in (threats.PGD("linf", 0.4), threats.APGD("linf", 0.4), threats.SquareAttack("linf", 0.4, 50)):
        assert drq.log_odds(model(attack(model, x, y)), y).item() == pytest.approx(4 * 0.11 - 2)


def test_a_target_is_an_objective(digits: Digits) -> None:
    x, y = digits.x[:30], digits.y[:30]
    target = (y + 1) % 10
    attacked = threats.PGD("linf", 0.4, 50, aim=drq.favour)(digits.model, x, target)
    untargeted = threats.PGD("linf", 0.4, 50)(digits.model, x, y)
    assert right(digits.model, attacked, target) >= 0.8
    assert right(digits.model, untargeted, target) <= 0.5


def test_restarts_keep_the_best_and_all_samples_share_their_draws() -> None:
    model, x = network(5, gain=6.0), inputs(5, 40, 4)
    y = model(x).argmax(1)
    one, five = (threats.PGD("linf", 0.3, 5, restarts=count) for count in (1, 5))
    odds = [drq.log_odds(model(each(model, x, y)), y) for each in (one, five)]
    assert (odds[1] <= odds[0] + 1e-12).all()
    assert (odds[1] < odds[0] - 1e-3).any()
    assert (five.run(model, x, y).passes == 5 * one.run(model, x, y).passes).all()
    other = threats.PGD("linf", 0.3, 5, restarts=5, seed=1)(model, x, y)
    assert not torch.equal(other, five(model, x, y))


def test_random_noise_is_the_worst_of_its_draws() -> None:
    model, x = network(2), inputs(2, 10, 4)
    y = model(x).argmax(1)
    odds = [drq.log_odds(model(threats.RandomNoise("l2", 0.3, draws)(model, x, y)), y) for draws in (1, 10, 100)]
    assert (odds[2] <= odds[1]).all()
    assert (odds[1] <= odds[0]).all()
    assert threats.RandomNoise("linf", 0.1).draws == 1000  # the paper's


def test_the_papers_adaptive_attacks_have_its_numbers() -> None:
    noise, attack = threats.PGDNoise("linf", 8 / 255), threats.PGDAttack("linf", 8 / 255)
    assert noise.method == drq.Gradient(100, smooth=drq.Noise(10))
    assert attack.method == drq.Gradient(100, smooth=drq.InnerAttack(4, steps=7))
    assert noise.passes == 100 * 11 + 1
    assert attack.passes == 100 * (1 + 4 * 9) + 1


def test_targeted_apgd_is_at_least_as_strong_as_its_best_single_target() -> None:
    model, x = network(7, features=6, classes=6), inputs(7, 30, 6)
    y = model(x).argmax(1)
    lead = drq.margin(model, y)
    every = lead(threats.APGDTargeted("linf", 0.15, 20)(model, x, y)).value
    single = [lead(threats.APGDTargeted("linf", 0.15, 20, targets=1, first=rank)(model, x, y)).value for rank in range(5)]
    torch.testing.assert_close(every, torch.stack(single).amin(0), rtol=0, atol=1e-9)


def test_last_place_is_why_a_list_of_likely_classes_is_not_safe(digits: Digits) -> None:
    """The true class is pushed out of the two likeliest, where DRQ on two classes can no longer answer with it."""
    x, y = digits.x[:40], digits.y[:40]
    attacked = threats.LastPlace("linf", 0.3)(digits.model, x, y)
    rank = (digits.model(attacked) > digits.model(attacked).gather(1, y[:, None])).sum(1)
    away = threats.APGD("linf", 0.3)(digits.model, x, y)
    rank_away = (digits.model(away) > digits.model(away).gather(1, y[:, None])).sum(1)
    assert rank.double().mean() > rank_away.double().mean() + 1
    options = {"explore": drq.Gradient(5), "quantify": drq.Gradient(5)}
    everything, two = (drq.DRQ(digits.model, "linf", 0.3, classes=classes, **options).decide(attacked) for classes in (None, 2))
    hidden = rank >= 2
    assert hidden.double().mean() > 0.5
    assert (two.label[hidden] != y[hidden]).all()
    assert (everything.reached.gather(1, y[:, None])[:, 0] & hidden).any()  # all classes: the true one is still found


def test_targeted_apgd_goes_for_the_likeliest_classes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    aimed, real = [], attacks.dlr_toward
    monkeypatch.setattr(attacks, "dlr_toward", lambda model, y, target: aimed.append(target) or real(model, y, target))
    model, x = network(7, features=6, classes=6), inputs(7, 30, 6)
    y = model(x).argmax(1)
    threats.APGDTargeted("linf", 0.1, 2, targets=2, first=1)(model, x, y)
    order = model(x).argsort(dim=1, descending=True)  # the true class is the first
    assert torch.equal(torch.stack(aimed, 1), order[:, 2:4])


@pytest.mark.parametrize("attack", [threats.RandomNoise("linf", 0.2, 5), threats.SquareAttack("linf", 0.2, 5)])
def test_restarts_of_what_draws_have_other_draws(attack: threats.SearchAttack) -> None:
    model, x = network(2), inputs(2, 30, 4)
    y = model(x).argmax(1)
    once, again = (attack.aim(model, y)(replace(attack, restarts=count)(model, x, y)).value for count in (1, 6))
    assert (again <= once + 1e-12).all()
    assert (again < once - 1e-6).double().mean() > 0.5


def test_labels_made_in_inference_mode_are_no_obstacle() -> None:
    model, x = network(2), inputs(2, 5, 4)
    with torch.inference_mode():
        y = model(x).argmax(1)
    assert threats.PGD("linf", 0.1, 3)(model, x, y).shape == x.shape
    assert threats.APGDTargeted("linf", 0.1, 3)(model, x, y.int()).shape == x.shape
