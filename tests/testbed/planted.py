"""A defence of one feature, and members of a chain that do as they are told."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

import drq
from drq.method.adapters import Wrapper
from drq.norms import Ball
from drq.threats import Pursuit, Standing, Target
from testbed.classifiers import linear

SHORT = drq.Gradient(steps=5)
SPACE = {"norm": "linf", "radius": 0.5}


class Label(NamedTuple):
    label: Tensor


class Cut(Wrapper):
    """Answers class 1 from 0.5 on in the first feature; the model in it from 0.2 on."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([0 * x[:, 0], 10 * (x[:, 0] - 0.5)], 1)

    def decide(self, x: Tensor) -> Label:
        return Label(self(x).argmax(1))


def cut() -> Cut:
    return Cut(linear(torch.tensor([1.0, 0.0], dtype=torch.float64), bias=-0.2))


@dataclass(frozen=True)
class Plant(Pursuit):
    """Moves every sample by so much in the first feature, and remembers where it was told to start."""

    by: float
    starts: list[Tensor]

    def pursue(self, target: Target, ball: Ball, y: Tensor, standing: Standing) -> Tensor:
        self.starts.append(standing.x)
        return ball.center + torch.tensor([self.by, 0.0], dtype=torch.float64)

    def cost(self, target: Target, x: Tensor) -> int:
        return 0


class StaticPlant(Plant):
    follows_static: ClassVar[bool] = True


X, Y = torch.tensor([[0.55, 0.5], [0.9, 0.5]], dtype=torch.float64), torch.ones(2, dtype=torch.long)
