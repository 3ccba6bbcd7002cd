"""What no threat can work with gets one clear line."""

from collections.abc import Callable

import pytest
import torch
from testbed.classifiers import network
from testbed.every_threat import ATTACKS, IMAGE, THREATS, batch, classifier, each, each_attack, victim
from torch import Tensor, nn

import drq
from drq import threats


@each
def test_nan_and_empty_batches_get_one_clear_line(name: str) -> None:
    (x, y), model = batch(), victim(name)
    spoiled = x.clone()
    spoiled[1, 0, 0, 0] = torch.nan
    with pytest.raises(drq.InputError, match=r"^x must be finite, got NaN or infinity: "):
        THREATS[name](model, spoiled, y)
    with pytest.raises(drq.InputError, match=r"^x must have at least one sample, got shape "):
        THREATS[name](model, x[:0], y[:0])
    with pytest.raises(drq.InputError, match=r"^x must lie within bounds=\(0\.0, 1\.0\), got "):
        THREATS[name](model, x + 1, y)
    with pytest.raises(drq.InputError, match=r"^index must be a tensor of 5 whole numbers of at least 0, got "):
        THREATS[name](model, x, y, index=torch.arange(4))


@each_attack
def test_attacks_need_a_model_and_labels_that_fit(name: str) -> None:
    (x, y), model = batch(), victim(name)
    for labels, message in (
        (None, r"^y must be a tensor of labels, got None: "),
        (y[:-1], r"^y must be a tensor of 5 whole numbers of at least 0, got "),
        (y.double(), r"^y must be a tensor of 5 whole numbers of at least 0, got torch.float64"),
        (y + 4, r"^y must lie below 4, the model's classes, got "),
    ):
        with pytest.raises(drq.InputError, match=message):
            ATTACKS[name](model, x, labels)
    with pytest.raises(drq.InputError, match=r"^model must be "):
        ATTACKS[name](None, x, y)
    training = victim(name)
    (training.model if isinstance(training, drq.DRQ) else training).train()
    try:
        with pytest.raises(drq.InputError, match=r"^model must be in evaluation mode, got "):
            ATTACKS[name](training, x, y)
    finally:
        training.eval()


IMPOSSIBLE: list[tuple[Callable[[], object], str]] = [
    (lambda: threats.PGD(classifier(IMAGE), 0.1), r"^norm must be one of linf, l2, l1 or a drq.Norm, got Sequential"),
    (lambda: threats.PGD("l3", 0.1), r"^norm must be one of linf, l2, l1 or a drq.Norm, got 'l3'"),
    (lambda: threats.PGD("linf", -0.1), r"^radius must be finite and at least 0, got -0.1"),
    (lambda: threats.PGD("linf", float("nan")), r"^radius must be finite and at least 0, got nan"),
    (lambda: threats.PGD("linf", 0.1, 0), r"^steps must be a whole number of at least 1, got 0"),
    (lambda: threats.PGD("linf", 0.1, step=0), r"^step must be above 0, got 0"),
    (lambda: threats.PGD("linf", 0.1, restarts=0), r"^restarts must be a whole number of at least 1, got 0"),
    (lambda: threats.PGD("linf", 0.1, bounds=(1, 0)), r"^bounds must have lowest <= highest"),
    (lambda: threats.PGD("linf", 0.1, chunk=0), r"^chunk must be None or at least 1, got 0"),
    (lambda: threats.APGD("linf", 0.1, 2.5), r"^steps must be a whole number of at least 1, got 2.5"),
    (lambda: threats.APGDTargeted("linf", 0.1, targets=0), r"^targets must be a whole number of at least 1, got 0"),
    (lambda: threats.RandomNoise("linf", 0.1, 0), r"^samples must be a whole number of at least 1, got 0"),
    (lambda: threats.SquareAttack("linf", 0.1, 0), r"^queries must be a whole number of at least 1, got 0"),
    (lambda: threats.RaySAttack("l2", 0.1), r"^norm must be linf for RayS, got L2\(\)"),
    (lambda: threats.DecisionBased("l2", 0.1), r"^norm must be linf for RayS, got L2\(\)"),
    (lambda: threats.EndToEnd("linf", 0.1, clip=0), r"^clip must be None or above 0, got 0"),
    (lambda: threats.Envelope("linf", 0.1, inner=(0,)), r"^inner must be a whole number of at least 1, got 0"),
    (lambda: threats.Envelope("linf", 0.1, rank=-1), r"^rank must be a whole number of at least 0, got -1"),
    (lambda: threats.Transfer("linf", 0.1, threats.PGD("l2", 0.1)), r"^attack must have the norm and the radius of the transfer"),
    (lambda: threats.PGD("linf", torch.tensor([0.1, 0.2])), r"^radius must be a number, got tensor"),
    (lambda: threats.PGD("linf", 0.1, aim="dlr"), r"^aim must be an objective such as drq.away_from, got 'dlr'"),
    (lambda: threats.APGDTargeted("linf", 0.1, first=-1), r"^first must be a whole number of at least 0, got -1"),
    (lambda: threats.APGDTargeted("linf", 0.1, first=1.5), r"^first must be a whole number of at least 0, got 1.5"),
    (lambda: threats.Envelope("linf", 0.1, rank=1.5), r"^rank must be a whole number of at least 0, got 1.5"),
    (lambda: threats.Envelope("linf", 0.1, restart=-1), r"^restart must be a whole number of at least 0, got -1"),
    (lambda: threats.Envelope("linf", 0.1, inner=7), r"^inner must be a tuple of numbers of steps, got 7"),
    (lambda: threats.Transfer("linf", 0.1, threats.PGD("linf", 0.2)), r"^attack must have the norm and the radius of the"),
    (lambda: threats.Transfer("linf", 0.1, None), r"^attack must be one on a static model, such as drq.threats.APGD, got None"),
    (
        lambda: threats.Chain("linf", 0.1, (threats.APGD("linf", 0.1),)),
        r"^members must be one or more attacks on a defence, as a tuple, got APGD",
    ),
    (
        lambda: threats.Chain("linf", 0.1, threats.Envelope("linf", 0.1)),
        r"^members must be one or more attacks on a defence, as a tuple, got Envelope",
    ),
    (lambda: threats.Chain("linf", 0.1, ()), r"^members must be one or more attacks on a defence, as a tuple, got none"),
    (lambda: threats.Chain("linf", 0.1, (threats.Envelope("linf", 0.2),)), r"^members must have the norm and the radius of the"),
    (lambda: drq.DRQ(classifier(IMAGE), explore=drq.RayS(50)), r"^explore must be a search within a ball, got RayS"),
    (lambda: threats.RedTeam("linf", 0.1, "slow"), r"^strength must be 'quick' or 'full', got 'slow'"),
]


@pytest.mark.parametrize(("make", "message"), IMPOSSIBLE, ids=[message[1:40] for _, message in IMPOSSIBLE])
def test_impossible_settings_get_one_clear_line(make: Callable[[], object], message: str) -> None:
    with pytest.raises(drq.InputError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_losses_that_need_more_classes_say_so() -> None:
    two, (x, y) = nn.Sequential(nn.Flatten(), network(0, 192, 2)).eval(), batch()
    y = y % 2
    with pytest.raises(drq.InputError, match=r"^model must have at least 3 classes for this loss, got 2"):
        threats.APGD("linf", 0.1, aim=drq.dlr)(two, x, y)
    with pytest.raises(drq.InputError, match=r"^model must have at least 4 classes for this loss, got 2"):
        threats.APGDTargeted("linf", 0.1)(two, x, y)


def test_only_drq_can_be_attacked_end_to_end() -> None:
    x, y = batch()
    for name in ("EndToEnd", "Manipulation"):
        with pytest.raises(drq.InputError, match=r"^model must be a drq.DRQ, got Sequential"):
            ATTACKS[name](classifier(IMAGE), x, y)


def test_an_attack_without_gradients_says_so(caplog: pytest.LogCaptureFixture) -> None:
    class Rounded(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return classifier(IMAGE)((x * 4).round() / 4)

    x, y = batch()
    threats.PGD("linf", 0.1, 3)(Rounded().eval(), x, y)
    assert "PGD found no gradient for 5 of 5 samples: they show nothing" in caplog.text
