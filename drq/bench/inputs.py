"""Load the inputs of a benchmark: a model, and images that are clean, corrupted or attacked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from drq.bench.numbers import EXPLORATION_RADIUS, Training
from drq.bench.timing import tf32_convolutions
from drq.data.loading import load as load_data
from drq.errors import InputError, MissingError
from drq.models.classifier import Card
from drq.models.loading import load as load_model
from drq.models.trained import place
from drq.threats.attacks import PGD
from drq.threats.corruptions import KINDS, Corruption

SEVERITY = 3
ATTACK_STEPS = 20
# The ball that is searched around inputs of models without adversarial training; radii are not calibrated here.
DEFAULT_BALL: dict[str, Any] = {"norm": "l2", "radius": 1.0}
THREATS = ("clean", "corrupted", "attacked")


@dataclass(frozen=True)
class BenchInputs:
    """A model, its first test images, and the ball that DRQ explores around them."""

    name: str
    data: str
    model: nn.Module
    x: Tensor  # (N, C, H, W) in [0, 1]
    y: Tensor  # (N,)
    norm: str
    radius: float  # exploration radius: twice the radius of the attack

    @cached_property
    def classes(self) -> int:
        """The number of logits."""
        with torch.no_grad():
            return int(self.model(self.x[:1]).shape[1])

    def under(self, threat: str, count: int) -> Tensor:
        """Return the first images: clean, with the 15 corruptions in turn, or attacked by PGD within the training radius."""
        x, y = self.x[:count], self.y[:count]
        if threat == "clean":
            return x
        if threat == "attacked":
            with tf32_convolutions(False):
                return PGD(self.norm, self.radius / 2, ATTACK_STEPS)(self.model, x, y)
        corrupted, kinds = x.clone(), torch.arange(count, device=x.device) % len(KINDS)
        for number, kind in enumerate(KINDS[:count]):
            rows = (kinds == number).nonzero()[:, 0]
            corrupted[rows] = Corruption(kind, SEVERITY)(None, x[rows], None, index=rows)
        return corrupted

    def as_json(self) -> dict[str, Any]:
        """Return a description of the inputs as values that JSON can hold."""
        size = sum(each.numel() for each in self.model.parameters())
        region = {"norm": self.norm, "radius": self.radius, "shape": list(self.x.shape[1:])}
        return {"model": self.name, "data": self.data, "classes": self.classes, "parameters": size} | region


def load_inputs(name: str | None, images: int, device: str, notify: Callable[[str], None]) -> BenchInputs:
    """Load the named model and its data; without a name the default of the machine, and digits where CIFAR-10 is missing."""
    if name is not None:
        return _load_named(name, images, device)
    default = "cifar10-linf" if device == "cuda" and place("cifar10-linf").is_file() else "cifar10-small"
    try:
        return _load_named(default, images, device)
    except MissingError as error:
        notify(f"measuring on digits, since CIFAR-10 is not on this machine: {error}")
    try:
        return _load_named("digits", images, device)
    except InputError as error:
        notify(f"measuring on drawn numbers, since there are no digits either: {error}")
    network = Training(1, device=device).build(images)
    return BenchInputs("numbers", "numbers", network.model, network.x, network.y, "linf", EXPLORATION_RADIUS)


def _load_named(name: str, images: int, device: str) -> BenchInputs:
    model = load_model(name).eval().requires_grad_(False)
    data_name = name if name == "digits" else "cifar10"
    data = load_data(data_name)
    x, y = data.batch([index % len(data) for index in range(images)])  # repeated where there are fewer
    card = getattr(model, "card", Card(name))
    ball = card.explored or DEFAULT_BALL
    return BenchInputs(name, data_name, model.to(device), x.to(device), y.to(device), ball["norm"], ball["radius"])
