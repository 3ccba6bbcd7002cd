"""A small network for images that remembers what it saw, and a linear model."""

import torch
from torch import Tensor, nn

from testbed.classifiers import inputs, linear

W = torch.tensor([1.5, -2.0, 0.5], dtype=torch.float64)
X = 0.2 + 0.6 * inputs(0, 20, 3)  # far from the box
LENGTH = W.abs().sum()
CLASSES = 5


class Network(nn.Module):
    """A small network for images, with parameters that could be trained; it remembers what it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(2, 6, 3), nn.BatchNorm2d(6), nn.Tanh(), nn.Flatten(), nn.Linear(6 * 48, CLASSES))
        generator = torch.Generator().manual_seed(0)
        for parameter in self.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator) * 0.6
        self.double().eval()
        self.seen: list[Tensor] = []
        self.recorded = False  # whether the last look can be differentiated

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(x.detach())
        self.recorded = torch.is_grad_enabled()
        return self.layers(x)


IMAGES = inputs(1, 9, 2, 8, 10)


def binary(bias: float = -0.1) -> tuple[nn.Module, Tensor]:
    """A linear model of two classes, and the log-odds of class 1."""
    model = linear(W, bias)
    return model, (X @ W + bias)
