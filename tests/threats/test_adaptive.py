"""The paper's attacks on the pipeline itself."""

from dataclasses import replace

import pytest
import torch
from testbed.classifiers import inputs, linear, network
from testbed.digits import Digits

import drq
from drq import threats
from drq.threats.adaptive import Clipped

SHORT = drq.Gradient(steps=5)


def test_end_to_end_gradients_are_those_of_finite_differences() -> None:
    """The whole pipeline, unrolled: what the attack follows is the slope of what DRQ answers."""
    model, x = network(3, features=3), inputs(3, 4, 3)
    robust = drq.DRQ(model, "l2", 0.3, explore=SHORT, quantify=SHORT, bounds=None)
    y = robust.decide(x).label
    through = threats.EndToEnd("l2", 0.1, clip=None)._version(robust, torch.full((4,), 0.3, dtype=torch.float64), unroll=True)
    x = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(drq.margin(through, y)(x).value.sum(), x)
    step = 1e-5
    for feature in range(3):
        shift = torch.zeros_like(x)
        shift[:, feature] = step
        ahead, behind = (drq.margin(through, y)(x.detach() + sign * shift).value for sign in (1, -1))
        torch.testing.assert_close(gradient[:, feature], (ahead - behind) / (2 * step), rtol=1e-3, atol=1e-4)


def test_end_to_end_lowers_drq_and_reports_the_health_of_its_gradients(digits: Digits) -> None:
    x, y = digits.x[:16], digits.y[:16]
    robust = drq.DRQ(digits.model, "linf", 0.3, explore=SHORT, quantify=SHORT)
    shifted = threats.EndToEnd("linf", 0.15, 6).run(robust, x, y)
    before, after = ((robust.decide(each).label == y).double().mean() for each in (x, shifted.x))
    print(f"accuracy {before:.2f} -> {after:.2f}, ratio {shifted.ratio.median():.2f}")
    assert after <= before - 0.2
    assert (shifted.ratio > 0).all()
    assert not shifted.zero.any()
    assert not shifted.infinite.any()
    assert (shifted.passes > 6 * 10 * 12).all()


def test_the_ratio_is_1_where_inner_steps_pass_gradients_on_unchanged() -> None:
    """Around a linear model every inner step moves by a constant."""
    robust = drq.DRQ(linear(torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)), "l2", 0.9, bounds=None)
    x = inputs(1, 6, 3)
    y = robust.decide(x).label
    shifted = threats.EndToEnd("l2", 0.01, 2, bounds=None).run(robust, x, y)
    torch.testing.assert_close(shifted.ratio, torch.ones_like(shifted.ratio), rtol=0, atol=1e-9)


def test_flat_models_are_reported_as_zero_gradients() -> None:
    class Flat(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.stack([0 * x.sum(1), 0 * x.sum(1) + 2], 1)

    robust, x = drq.DRQ(Flat().eval(), "l2", 0.1, explore=SHORT, quantify=SHORT), inputs(0, 3, 2)
    shifted = threats.EndToEnd("l2", 0.1, 2).run(robust, x, torch.ones(3, dtype=torch.long))
    assert shifted.zero.all()
    assert torch.equal(shifted.x, x)


def test_clipping_bounds_what_an_inner_step_passes_back() -> None:
    model, x = network(2, gain=8.0), inputs(2, 5, 4)
    y = model(x).argmax(1)
    lengths = {}
    for clip in (None, 0.01):
        method = Clipped(6, direction="raw", unroll=True, clip=clip)
        x = x.detach().requires_grad_()
        found = drq.search.loop.search(method, drq.away_from(model, y), drq.Ball(x, 0.3, "l2"))
        (gradient,) = torch.autograd.grad((100 * found.point).sum(), x)
        lengths[clip] = drq.L2().length(gradient)
        same = drq.search.loop.search(replace(method, clip=None), drq.away_from(model, y), drq.Ball(x, 0.3, "l2"))
        assert torch.equal(found.point, same.point)
    assert (lengths[0.01] < lengths[None]).all()
    assert (lengths[0.01] <= 0.011 * 100).all()


def test_calibration_is_skipped(digits: Digits) -> None:
    x, y = digits.x[:6], digits.y[:6]
    robust = drq.DRQ(digits.model, "l2", drq.Calibrated(steps=10), explore=SHORT, quantify=SHORT)
    shifted = threats.EndToEnd("l2", 0.5, 2).run(robust, x, y)
    assert drq.Ball(x, 0.5, "l2", (0, 1)).contains(shifted.x).all()


def test_the_base_class_must_be_explored(digits: Digits) -> None:
    """Without it an attacker who never changes the label of the model changes that of DRQ: the paper's warning."""
    x, y = digits.x[:40], digits.y[:40]
    keep = digits.model(x).argmax(1) == y
    x, y = x[keep], y[keep]
    attack = threats.Manipulation("linf", 0.1, 30, inner=(5,))
    kept = {}
    for explore_base in (True, False):
        robust = drq.DRQ(digits.model, "linf", 0.3, explore=SHORT, quantify=SHORT, explore_base=explore_base)
        points = attack(robust, x, y)
        assert (digits.model(points).argmax(1) == y).all()  # the model itself notices nothing
        before, after = ((robust.decide(each).label == y).double().mean().item() for each in (x, points))
        kept[explore_base] = after
        print(f"explore_base={explore_base}: {before:.2f} -> {after:.2f}")
        assert after <= before - 0.2
    assert kept[False] <= kept[True] - 0.2


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_without_exploring_the_base_label_is_quantified_at_x(norm: str) -> None:
    """On a linear model: log-odds at x minus alpha * radius * |w|_*, with no gain from exploration."""
    weight = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    model, x = linear(weight), inputs(5, 8, 3)
    decision = drq.DRQ(model, norm, 0.3, explore_base=False, bounds=None, prune="none").decide(x)
    gain = 0.3 * drq.Ball(x, 0.3, norm).norm.dual_length(weight[None])
    base = decision.log_odds.gather(1, decision.base_label[:, None])[:, 0]
    torch.testing.assert_close(base, (x @ weight).abs() - 0.5 * gain, rtol=0, atol=1e-9)


def test_end_to_end_differentiates_what_it_says() -> None:
    model, x = network(3, features=3), inputs(3, 4, 3)
    robust = drq.DRQ(model, "l2", drq.Calibrated(steps=5), explore=drq.Gradient(6), quantify=drq.Gradient(4))
    attack, y = threats.EndToEnd("l2", 0.1, 2, inner=3, clip=7.0), model(x).argmax(1)
    radius = torch.full((4,), 0.3, dtype=torch.float64)
    through = attack._version(robust, radius, unroll=True)
    assert through.radius is radius
    for method in (through.explore, through.quantify):
        assert (method.steps, method.unroll, method.direction, method.clip) == (3, True, "raw", 7.0)
    assert replace(attack, inner=None)._version(robust, radius, unroll=True).quantify.steps == 4
    shifted = attack.run(robust, x, y)
    decision = robust.decide(x)
    lengths = []
    for unroll in (True, False):
        version = attack._version(robust, torch.where(decision.found, decision.radius, 0), unroll)
        point = shifted.x.clone().requires_grad_()
        lengths.append(drq.L2().length(torch.autograd.grad(drq.margin(version, y)(point).value.sum(), point)[0]))
    torch.testing.assert_close(shifted.ratio, lengths[0] / lengths[1], rtol=1e-6, atol=0)
    assert ((shifted.ratio - 1).abs() > 1e-3).any()


def test_end_to_end_keeps_the_steps_of_the_searches_and_refuses_others() -> None:
    model, x = network(3, features=3), inputs(3, 4, 3)
    y, attack = model(x).argmax(1), threats.EndToEnd("l2", 0.1, 2)
    robust = drq.DRQ(model, "l2", 0.3, explore=drq.Gradient(4, step=1.0, smooth=drq.Noise(2)), quantify=SHORT)
    explore = attack._version(robust, torch.full((4,), 0.3, dtype=torch.float64), unroll=True).explore
    assert (explore.steps, explore.step, explore.smooth) == (4, 1.0, drq.Noise(2))
    with pytest.raises(drq.InputError, match=r"^explore must be a drq\.Gradient, got Random"):
        attack(robust.variant(explore=drq.Random(5)), x, y)
