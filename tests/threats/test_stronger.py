"""Attacks that follow the searches of DRQ: what they differentiate, and that nothing found is given up."""

import logging

import pytest
import torch
from testbed.classifiers import inputs, linear, network

import drq
from drq import threats
from drq.search.loop import slope
from drq.threats.drq_target import two_class_objective

SHORT = drq.Gradient(steps=5)


def test_the_envelope_attack_follows_the_gradient_at_the_quantified_points() -> None:
    """On a linear model the offsets of the inner searches are constant, so its gradient is exact."""
    weight = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    robust = drq.DRQ(linear(weight), "l2", 0.2, bounds=None)
    x = inputs(0, 5, 3)
    ones = torch.ones(5, dtype=torch.long)
    score, gradient = slope(
        two_class_objective(robust.classifier, [robust], ones, 0 * ones, torch.full((5,), 0.2, dtype=torch.float64)), x
    )
    # Both classes gain (1 - alpha) * radius * |w|, so their lead is 2 w.x as at x itself.
    torch.testing.assert_close(score.value, 2 * x @ weight, rtol=0, atol=1e-9)
    torch.testing.assert_close(gradient, (2 * weight).expand(5, 3), rtol=0, atol=1e-9)


def test_the_duel_is_the_difference_of_the_defences_own_scores() -> None:
    model, x = network(1), inputs(1, 30, 4)
    robust = drq.DRQ(model, "linf", 0.3, explore=SHORT, quantify=SHORT, prune="none")
    decision = robust.decide(x)
    first, second = decision.log_odds.topk(2, dim=1).indices.unbind(1)
    reached = decision.reached.gather(1, second[:, None])[:, 0]
    value = two_class_objective(robust.classifier, [robust], first, second, decision.radius)(x).value
    lead = (decision.log_odds.gather(1, first[:, None]) - decision.log_odds.gather(1, second[:, None]))[:, 0]
    assert reached.sum() >= 10
    torch.testing.assert_close(value[reached], lead[reached], rtol=0, atol=1e-9)


def test_an_unreached_rival_is_followed_until_it_is_reached() -> None:
    """The scores of DRQ are flat in a class that is not reached; this objective is not."""
    model = linear(torch.tensor([8.0, 8.0], dtype=torch.float64), bias=-8.0)
    robust = drq.DRQ(model, "linf", 0.1)
    x, y = torch.full((1, 2), 0.62, dtype=torch.float64), torch.ones(1, dtype=torch.long)
    assert robust.decide(x).reached.tolist() == [[False, True]]
    standing = threats.Envelope("linf", 0.2, 20).run(robust, x, y)
    assert standing.fooled.all()


def test_two_classes_are_enough(caplog: pytest.LogCaptureFixture) -> None:
    """Losses that need three or four are left out; the rest of the team works."""
    model, x = linear(torch.tensor([6.0, -6.0], dtype=torch.float64)), inputs(0, 12, 2)
    y, robust = model(x).argmax(1), drq.DRQ(model, "linf", 0.1, explore=SHORT, quantify=SHORT)
    members = [member for member in threats.RedTeam("linf", 0.1).members if isinstance(member, threats.Transfer)]
    with caplog.at_level(logging.WARNING, "drq"):
        standing = threats.Chain("linf", 0.1, (*members, threats.Envelope("linf", 0.1, 10))).run(robust, x, y)
    assert "Transfer(APGD dlr) is not run: it needs 3 classes, the model has 2" in caplog.text
    assert "Transfer(APGDTargeted) is not run: it needs 4 classes, the model has 2" in caplog.text
    within_reach = (x @ torch.tensor([6.0, -6.0], dtype=torch.float64)).abs() < 12 * 0.1  # what a linear model can be moved by
    assert torch.equal(standing.fooled, within_reach)


def test_points_that_fool_are_never_given_up() -> None:
    """A member that makes things worse changes nothing but the count of passes, and for a success nobody else gets the credit."""
    model, x = network(4), inputs(4, 20, 4)
    y = model(x).argmax(1)
    robust = drq.DRQ(model, "linf", 0.3, explore=SHORT, quantify=SHORT)
    space = {"norm": "linf", "radius": 0.3}
    attack = threats.Transfer(attack=threats.APGD(steps=20, **space), **space)
    harmless = threats.Transfer(attack=threats.PGD(steps=20, aim=drq.favour, **space), **space)
    alone, followed = (threats.Chain(members=members, **space).run(robust, x, y) for members in ((attack,), (attack, harmless)))
    assert alone.fooled.any()
    assert torch.equal(alone.x[alone.clearly_fooled], followed.x[alone.clearly_fooled])
    assert (followed.lead <= alone.lead)[alone.fooled].all()
    assert (followed.fooled >= alone.fooled).all()
    assert (followed.by[alone.fooled] <= 0).all()
