"""Define the changes of an image that the image tab offers, each with one number for its strength."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from drq.drq import DRQ
from drq.errors import nearest, require
from drq.models.classifier import Card
from drq.playground.jobs import Job
from drq.registry import CORRUPTIONS
from drq.threats.attacks import APGD, PGD, SquareAttack
from drq.threats.corruptions import Corruption
from drq.threats.noise import GaussianNoise
from drq.threats.pursuit import as_target
from drq.threats.spatial import warp
from drq.threats.stronger import Envelope

NONE = "nothing"
RADII = "strength, in radii of the model's training (8/255 without)"  # so that one slider suits every model
MOST_STEPS = 500
Attack = Callable[[DRQ, Card, Tensor, Tensor, float, int, Job], Tensor]


@dataclass(frozen=True)
class Shift:
    """A way to change an image.

    Args:
        change: returns the changed image, given an image (1, C, H, W) and the strength; None for an attack.
        attack: returns the changed image, given DRQ, the model's card, image, label, strength, steps and job; else None.
        low, high, start, step: the range of the strength, its first value and its step.
        unit: what the strength measures.
    """

    change: Callable[[Tensor, float], Tensor] | None = None
    attack: Attack | None = None
    low: float = 0.0
    high: float = 1.0
    start: float = 0.5
    step: float = 0.1
    unit: str = "strength"


def _corruption(kind: str) -> Shift:
    def change(x: Tensor, severity: float) -> Tensor:
        return Corruption(kind, round(severity))(None, x, None)

    return Shift(change, low=1, high=5, start=3, step=1, unit="severity")


def _rotate(x: Tensor, degrees: float) -> Tensor:
    return warp(x, torch.tensor([degrees]), torch.zeros(1, 2)).clamp(0, 1)


def _translate(x: Tensor, share: float) -> Tensor:
    return warp(x, torch.zeros(1), torch.tensor([[share * x.shape[3], 0.0]])).clamp(0, 1)


def _add_noise(x: Tensor, deviation: float) -> Tensor:
    return GaussianNoise(deviation)(None, x, None)


def _radius(card: Card, x: Tensor, strength: float, norm: str) -> float:
    """Convert the strength to a radius. Where training used the other norm, both balls have about the same volume."""
    trained, radius = (card.norm, card.radius) if card.norm and card.radius else ("linf", 8 / 255)
    wider = math.sqrt(2 * x[0].numel() / (math.pi * math.e))  # radius of an l2 ball over that of the cube of equal volume
    return strength * radius * {("linf", "l2"): wider, ("l2", "linf"): 1 / wider}.get((trained, norm), 1.0)


def _attack(attack: Attack) -> Shift:
    return Shift(None, attack, high=4, start=1, step=0.25, unit=RADII)


def _descent(kind: type[PGD] | type[APGD], norm: str) -> Shift:
    """Return an attack that follows the gradient of the model alone."""

    def attack(robust: DRQ, card: Card, x: Tensor, y: Tensor, strength: float, steps: int, job: Job) -> Tensor:
        threat = kind(norm, _radius(card, x, strength, norm), steps=steps)
        job.begin(f"{kind.__name__} attacks the model", threat.passes + 1)
        return threat(robust.model, x, y)

    return _attack(attack)


def _square(robust: DRQ, card: Card, x: Tensor, y: Tensor, strength: float, steps: int, job: Job) -> Tensor:
    threat = SquareAttack("linf", _radius(card, x, strength, "linf"), queries=steps)
    job.begin("Square attacks the model", threat.passes + 1)
    return threat(robust.model, x, y)


def _envelope(robust: DRQ, card: Card, x: Tensor, y: Tensor, strength: float, steps: int, job: Job) -> Tensor:
    threat = Envelope("linf", _radius(card, x, strength, "linf"), steps=steps)
    job.begin("An attack that knows DRQ", threat.cost(as_target(robust), x) + 2 * robust.most_passes(len(card.classes or "")))
    return threat(robust, x, y)


UNCHANGED = {NONE: Shift(lambda x, _: x)}
OTHERS = {
    "white noise": Shift(_add_noise, high=0.5, start=0.1, step=0.01, unit="standard deviation"),
    "rotation": Shift(_rotate, low=-90, high=90, start=20, step=1, unit="degrees to the left"),
    "translation": Shift(_translate, low=-0.5, high=0.5, start=0.125, step=0.03125, unit="to the right, as a share of the width"),
    "attack: PGD, linf": _descent(PGD, "linf"),
    "attack: PGD, l2": _descent(PGD, "l2"),
    "attack: Auto-PGD, linf": _descent(APGD, "linf"),
    "attack: Square, from scores alone": _attack(_square),
    "attack on DRQ itself: Envelope": _attack(_envelope),
}


def all_shifts() -> dict[str, Shift]:
    """Return all shifts by name."""
    return UNCHANGED | {kind.replace("_", " "): _corruption(kind) for kind in CORRUPTIONS} | OTHERS


def find_shift(name: str) -> Shift:
    """Return the named shift."""
    shifts = all_shifts()
    require(name in shifts, "shift", "be one of the list", repr(name), nearest(str(name), shifts, "choose one"))
    return shifts[name]


def apply_shift(name: str, robust: DRQ, card: Card, x: Tensor, y: Tensor, strength: float, steps: int, job: Job) -> Tensor:
    """Return the image (1, C, H, W), changed by the named shift."""
    shift = find_shift(name)
    within = math.isfinite(strength) and shift.low <= strength <= shift.high
    require(within, "strength", f"lie between {shift.low:g} and {shift.high:g}", strength, "move the slider")
    require(1 <= steps <= MOST_STEPS, "steps", f"lie between 1 and {MOST_STEPS}", steps, "move the slider")
    if shift.attack is not None:
        return shift.attack(robust, card, x, y, strength, steps, job)
    assert shift.change is not None
    return shift.change(x, strength)
