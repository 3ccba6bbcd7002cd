"""Every threat of ours, with few steps, and what it is tried on."""

from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import drq
from drq import threats
from drq.threats import BallThreat, Threat
from testbed.classifiers import inputs, network

few = drq.Gradient(steps=3)
IMAGE = (3, 8, 8)
N = 5
ON_A_MODEL = {
    "PGD": threats.PGD("linf", 0.1, 4),
    "PGD l2": threats.PGD("l2", 0.5, 4, restarts=2),
    "PGD l1": threats.PGD("l1", 2.0, 4),
    "PGD targeted": threats.PGD("linf", 0.1, 4, aim=drq.favour),
    "PGDNoise": threats.PGDNoise("linf", 0.1, 3),
    "PGDAttack": threats.PGDAttack("l2", 0.5, 3, smooth=drq.InnerAttack(2, steps=2)),
    "APGD": threats.APGD("linf", 0.1, 9),
    "APGD-DLR": threats.APGD("l2", 0.5, 9, aim=drq.dlr),
    "APGDTargeted": threats.APGDTargeted("linf", 0.1, 5, targets=2),
    "LastPlace": threats.LastPlace("linf", 0.1, 5),
    "RandomNoise": threats.RandomNoise("l1", 2.0, 9),
    "SquareAttack": threats.SquareAttack("linf", 0.1, 20),
    "SquareAttack l2": threats.SquareAttack("l2", 0.5, 20),
    "RaySAttack": threats.RaySAttack("linf", 0.1, 40),
}
ON_A_DEFENCE = {
    "EndToEnd": threats.EndToEnd("linf", 0.1, 2),
    "Manipulation": threats.Manipulation("linf", 0.1, 3, inner=(2,)),
    "Transfer": threats.Transfer("linf", 0.1, threats.APGD("linf", 0.1, 4)),
    "Envelope": threats.Envelope("l2", 0.5, 3, inner=(2,)),
    "Rivals": threats.Rivals("linf", 0.1, 2, rank=1, inner=(2,)),
    "Sampling": threats.Sampling("l2", 0.5, 4, inner=(2,)),
    "FewerSteps": threats.FewerSteps("linf", 0.1, 3, inner=2),
    "ScoreBased": threats.ScoreBased("linf", 0.1, 4),
    "DecisionBased": threats.DecisionBased("linf", 0.1, 6),
    "Chain": threats.Chain(
        "linf",
        0.1,
        (threats.Transfer("linf", 0.1, threats.PGD("linf", 0.1, 3)), threats.Envelope("linf", 0.1, 3, inner=(2,))),
    ),
}
ON_VIEWS = {
    "SingleViews": threats.SingleViews("linf", 0.1, 3, most=2),
    "AllViews": threats.AllViews("l2", 0.5, 3),
    "ViewSampling": threats.ViewSampling("linf", 0.1, 4),
    "ViewRivals": threats.ViewRivals("linf", 0.1, 2, rank=1),
}
MOVEMENTS = {
    "Rotation": threats.Rotation(20.0),
    "Rotation, worst of 3": threats.Rotation(20.0, worst_of=3),
    "Translation": threats.Translation(2.0),
    "RotationTranslation": threats.RotationTranslation(20.0, 2.0, padding="border"),
    "Translation, worst of 3": threats.Translation(2.0, worst_of=3, padding="reflection"),
}
NOISES = {"GaussianNoise": threats.GaussianNoise(0.2)}
CORRUPTIONS = {entry.name: eval(f"threats.{entry.name}") for entry in threats.list() if entry.family == "corruption"}
ATTACKS: dict[str, BallThreat] = ON_A_MODEL | ON_A_DEFENCE | ON_VIEWS
THREATS: dict[str, Threat] = ATTACKS | MOVEMENTS | NOISES | CORRUPTIONS
FREE_OF_LABELS = {name for name in THREATS if name not in ATTACKS and "worst" not in name}


@cache
def classifier(shape: tuple[int, ...]) -> nn.Module:
    size = int(np.prod(shape))
    return nn.Sequential(nn.Flatten(), network(1, size, 4)).eval().requires_grad_(False)


def victim(name: str, shape: tuple[int, ...] = IMAGE, dtype: torch.dtype = torch.float64) -> nn.Module:
    model = classifier(shape)
    model = model if dtype == torch.float64 else nn.Sequential(nn.Flatten(), network(1, int(np.prod(shape)), 4)).to(dtype).eval()
    if name in ON_VIEWS:
        return drq.DRQ(model, views=drq.views.as_views(rolled), gate=drq.views.Gate(0.1))
    return drq.DRQ(model, "linf", 0.2, explore=few, quantify=few) if name in ON_A_DEFENCE else model


def rolled(x: Tensor) -> Tensor:
    """A view of whatever features there are."""
    return x.roll(1, -1)


def batch(shape: tuple[int, ...] = IMAGE, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    x = inputs(3, N, *shape)
    return x.to(dtype), classifier(shape)(x).argmax(1)


each = pytest.mark.parametrize("name", THREATS)
each_attack = pytest.mark.parametrize("name", ATTACKS)
