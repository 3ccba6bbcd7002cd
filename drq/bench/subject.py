"""Whom contestants decide for: a model, and images that are clean, corrupted and attacked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from drq.bench.numbers import EXPLORED, Training
from drq.bench.timing import tf32
from drq.data.loading import load as load_data
from drq.errors import InputError, MissingError
from drq.models.classifier import Card
from drq.models.loading import load as load_model
from drq.models.trained import place
from drq.threats.attacks import PGD
from drq.threats.corruptions import KINDS, Corruption

SEVERITY = 3
ATTACK_STEPS = 20
PLAIN: dict[str, Any] = {
    "norm": "l2",
    "radius": 1.0,
}  # searched where a model was not trained adversarially; calibration is left out
THREATS = ("clean", "corrupted", "attacked")


@dataclass(frozen=True)
class Subject:
    """A model and its first test images."""

    name: str
    data: str
    model: nn.Module
    x: Tensor  # (N, C, H, W) in [0, 1]
    y: Tensor  # (N,)
    norm: str
    radius: float  # of exploration: twice that of the attack

    @cached_property
    def classes(self) -> int:
        """Number of logits."""
        with torch.no_grad():
            return int(self.model(self.x[:1]).shape[1])

    def under(self, threat: str, count: int) -> Tensor:
        """The first images as they are, with the 15 corruptions in turn, or attacked by PGD within the radius of training."""
        x, y = self.x[:count], self.y[:count]
        if threat == "clean":
            return x
        if threat == "attacked":
            with tf32(False):
                return PGD(self.norm, self.radius / 2, ATTACK_STEPS)(self.model, x, y)
        shifted, kinds = x.clone(), torch.arange(count, device=x.device) % len(KINDS)
        for number, kind in enumerate(KINDS[:count]):
            rows = (kinds == number).nonzero()[:, 0]
            shifted[rows] = Corruption(kind, SEVERITY)(None, x[rows], None, index=rows)
        return shifted

    def as_json(self) -> dict[str, Any]:
        """Made of what JSON knows."""
        size = sum(each.numel() for each in self.model.parameters())
        region = {"norm": self.norm, "radius": self.radius, "shape": list(self.x.shape[1:])}
        return {"model": self.name, "data": self.data, "classes": self.classes, "parameters": size} | region


def load(name: str | None, images: int, device: str, say: Callable[[str], None]) -> Subject:
    """The model of that name with its data; without a name what suits the machine, and digits where CIFAR-10 is missing."""
    if name is not None:
        return _loaded(name, images, device)
    usual = "cifar10-linf" if device == "cuda" and place("cifar10-linf").is_file() else "cifar10-small"
    try:
        return _loaded(usual, images, device)
    except MissingError as error:
        say(f"measuring on digits, since CIFAR-10 is not on this machine: {error}")
    try:
        return _loaded("digits", images, device)
    except InputError as error:
        say(f"measuring on drawn numbers, since there are no digits either: {error}")
    made = Training(1, device=device).made(images)
    return Subject("numbers", "numbers", made.model, made.x, made.y, "linf", EXPLORED)


def _loaded(name: str, images: int, device: str) -> Subject:
    model = load_model(name).eval().requires_grad_(False)
    data = name if name == "digits" else "cifar10"
    held = load_data(data)
    x, y = held.batch([index % len(held) for index in range(images)])  # over again where there are fewer
    card = getattr(model, "card", Card(name))
    region = card.explored or PLAIN
    return Subject(name, data, model.to(device), x.to(device), y.to(device), region["norm"], region["radius"])
