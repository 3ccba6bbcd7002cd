"""A small classifier of digits, trained in a second."""

from typing import NamedTuple

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from drq.system.threads import threads


class Digits(NamedTuple):
    """A small classifier in evaluation mode, and images that it was not trained on."""

    model: nn.Module
    x: Tensor  # (N, 1, 8, 8) in [0, 1]
    y: Tensor


def trained() -> Digits:
    data = load_digits()
    x, y = torch.tensor(data.images / 16, dtype=torch.float32)[:, None], torch.tensor(data.target)
    train = 1500
    with threads(1), torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(
            *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU()),
            *(nn.Flatten(), nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 10)),
        )
        optimiser = torch.optim.Adam(model.parameters(), lr=2e-3)
        for _ in range(8):
            for rows in torch.randperm(train).split(100):
                optimiser.zero_grad()
                nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
                optimiser.step()
    return Digits(model.eval().requires_grad_(False), x[train:], y[train:])
