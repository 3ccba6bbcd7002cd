"""Photographs to corrupt, and how, for the tests of corruptions."""

from functools import cache

import numpy as np
import torch
from sklearn.datasets import load_sample_images

from drq.threats.corruptions import Corruption
from drq.threats.corruptions.draws import Draws


@cache
def sample_images() -> list[np.ndarray]:
    return load_sample_images().images


def crops(side: int, count: int, first: int = 0) -> torch.Tensor:
    """Random pieces of two photographs in turn, (2 * count, 3, side, side) in 255ths."""
    pieces = []
    for number in range(first, first + count):
        random = np.random.default_rng(number)
        for image in sample_images():
            top, left = (random.integers(0, length - side) for length in image.shape[:2])
            pieces.append(image[top : top + side, left : left + side])
    return torch.tensor(np.stack(pieces)).permute(0, 3, 1, 2) / 255


def corrupted(x: torch.Tensor, kind: str, severity: int = 5, **settings) -> torch.Tensor:
    index = settings.pop("index", None)
    return Corruption(kind, severity, **settings)(None, x, None, index=index)


def draws_of(*index: int, kind: int = 0) -> Draws:
    return Draws(0, torch.tensor(index), kind, torch.empty(0, dtype=torch.float64))
