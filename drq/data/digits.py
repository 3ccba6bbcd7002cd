"""The digits that come with scikit-learn."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from drq.data.dataset import Data, InMemory, check_view
from drq.data.known import BOTH, KnownData
from drq.data.places import DataRequest
from drq.errors import InputError
from drq.seeds import generator

TEST_IMAGES = 500  # of 1797; the others train


class Images(NamedTuple):
    """Digits in [0, 1] and what they show."""

    x: Tensor  # (N, 1, 8, 8)
    y: Tensor  # (N,)


def split() -> tuple[Images, Images]:
    """The training and the test images that come with scikit-learn, always split the same way."""
    try:
        from sklearn.datasets import load_digits as bundled
    except ModuleNotFoundError as error:
        remedy = "run pip install 'decision-region-quantification[demo]'"
        raise InputError(f"the digits need scikit-learn, which is not installed: {remedy}") from error
    bundle = bundled()
    x, y = torch.tensor(bundle.images, dtype=torch.float32)[:, None] / 16, torch.tensor(bundle.target, dtype=torch.long)
    order = torch.randperm(len(x), generator=generator())
    train, test = order[:-TEST_IMAGES], order[-TEST_IMAGES:]
    return Images(x[train], y[train]), Images(x[test], y[test])


def load_digits(request: DataRequest) -> Data:
    """The digits as a data set."""
    images = split()[("train", "test").index(request.split)]
    check_view(request.view, tuple(images.x.shape[1:]))
    return Data(request.name, InMemory(images.x, images.y), tuple("0123456789"))


DIGITS = KnownData("1797 digits of 8 x 8, with scikit-learn", load_digits, BOTH, source="scikit-learn", library="sklearn")
