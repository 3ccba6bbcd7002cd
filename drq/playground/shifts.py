"""What can be done to an image on the second tab, and how strongly: one number for each."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from drq.drq import DRQ
from drq.errors import nearest, require
from drq.models.classifier import Card
from drq.playground.jobs import Watch
from drq.registry import CORRUPTIONS
from drq.threats.attacks import APGD, PGD, SquareAttack
from drq.threats.corruptions import Corruption
from drq.threats.noise import GaussianNoise
from drq.threats.pursuit import aimed_at
from drq.threats.spatial import warp
from drq.threats.stronger import Envelope

NONE = "nothing"
RADII = "strength, in radii of its training (8/255 where there was none)"  # so that one slider suits every model
MOST_STEPS = 500
Attack = Callable[[DRQ, Card, Tensor, Tensor, float, int, Watch], Tensor]


@dataclass(frozen=True)
class Shift:
    """A way to change an image.

    Args:
        change: the image (1, C, H, W) and its strength to the changed image; None for an attack.
        attack: the defence around the model, the image, its label, strength and steps to the changed image.
        low, high, start, step: of the strength.
        unit: what the strength counts.
    """

    change: Callable[[Tensor, float], Tensor] | None = None
    attack: Attack | None = None
    low: float = 0.0
    high: float = 1.0
    start: float = 0.5
    step: float = 0.1
    unit: str = "strength"


def _corrupted(kind: str) -> Shift:
    def change(x: Tensor, severity: float) -> Tensor:
        return Corruption(kind, round(severity))(None, x, None)

    return Shift(change, low=1, high=5, start=3, step=1, unit="severity")


def _rotated(x: Tensor, degrees: float) -> Tensor:
    return warp(x, torch.tensor([degrees]), torch.zeros(1, 2)).clamp(0, 1)


def _moved(x: Tensor, share: float) -> Tensor:
    return warp(x, torch.zeros(1), torch.tensor([[share * x.shape[3], 0.0]])).clamp(0, 1)


def _noisy(x: Tensor, deviation: float) -> Tensor:
    return GaussianNoise(deviation)(None, x, None)


def _radius(card: Card, x: Tensor, strength: float, norm: str) -> float:
    """The strength as a radius in this norm. Where the training was in the other one, balls have about the same volume."""
    trained, radius = (card.norm, card.radius) if card.norm and card.radius else ("linf", 8 / 255)
    wider = math.sqrt(2 * x[0].numel() / (math.pi * math.e))  # of an l2 ball, its radius over that of the cube
    return strength * radius * {("linf", "l2"): wider, ("l2", "linf"): 1 / wider}.get((trained, norm), 1.0)


def _attack(attack: Attack) -> Shift:
    return Shift(None, attack, high=4, start=1, step=0.25, unit=RADII)


def _descent(kind: type[PGD] | type[APGD], norm: str) -> Shift:
    """An attack on the model alone that follows its gradient."""

    def attack(robust: DRQ, card: Card, x: Tensor, y: Tensor, strength: float, steps: int, watch: Watch) -> Tensor:
        threat = kind(norm, _radius(card, x, strength, norm), steps=steps)
        watch.begin(f"{kind.__name__} attacks the model", threat.passes + 1)
        return threat(robust.model, x, y)

    return _attack(attack)


def _square(robust: DRQ, card: Card, x: Tensor, y: Tensor, strength: float, steps: int, watch: Watch) -> Tensor:
    threat = SquareAttack("linf", _radius(card, x, strength, "linf"), queries=steps)
    watch.begin("Square attacks the model", threat.passes + 1)
    return threat(robust.model, x, y)


def _envelope(robust: DRQ, card: Card, x: Tensor, y: Tensor, strength: float, steps: int, watch: Watch) -> Tensor:
    threat = Envelope("linf", _radius(card, x, strength, "linf"), steps=steps)
    watch.begin("An attack that knows DRQ", threat.cost(aimed_at(robust), x) + 2 * robust.most_passes(len(card.classes or "")))
    return threat(robust, x, y)


UNCHANGED = {NONE: Shift(lambda x, _: x)}
OTHERS = {
    "white noise": Shift(_noisy, high=0.5, start=0.1, step=0.01, unit="standard deviation"),
    "rotation": Shift(_rotated, low=-90, high=90, start=20, step=1, unit="degrees to the left"),
    "translation": Shift(_moved, low=-0.5, high=0.5, start=0.125, step=0.03125, unit="to the right, as a share of the width"),
    "attack: PGD, linf": _descent(PGD, "linf"),
    "attack: PGD, l2": _descent(PGD, "l2"),
    "attack: Auto-PGD, linf": _descent(APGD, "linf"),
    "attack: Square, from scores alone": _attack(_square),
    "attack on DRQ itself: Envelope": _attack(_envelope),
}


def choices() -> dict[str, Shift]:
    """All that can be done to an image, by what it is called."""
    return UNCHANGED | {kind.replace("_", " "): _corrupted(kind) for kind in CORRUPTIONS} | OTHERS


def shift(name: str) -> Shift:
    """The shift of this name."""
    known = choices()
    require(name in known, "shift", "be one of the list", repr(name), nearest(str(name), known, "choose one"))
    return known[name]


def shifted(name: str, robust: DRQ, card: Card, x: Tensor, y: Tensor, strength: float, steps: int, watch: Watch) -> Tensor:
    """The image (1, C, H, W), changed."""
    how = shift(name)
    within = math.isfinite(strength) and how.low <= strength <= how.high
    require(within, "strength", f"lie between {how.low:g} and {how.high:g}", strength, "move the slider")
    require(1 <= steps <= MOST_STEPS, "steps", f"lie between 1 and {MOST_STEPS}", steps, "move the slider")
    if how.attack is not None:
        return how.attack(robust, card, x, y, strength, steps, watch)
    assert how.change is not None
    return how.change(x, strength)
