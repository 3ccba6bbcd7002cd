"""A small model of small images, and specs that evaluate it."""

import math

import numpy as np
import polars as pl
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import drq
from drq import Spec, threats

COUNT = 24
PGD = threats.PGD("linf", 0.15, 4)
FEW = {"explore": drq.Gradient(4), "quantify": drq.Gradient(3)}
CALIBRATED = {"norm": "l2", "radius": drq.Calibrated(0.97, 20), "alpha": 0.4, **FEW}
FIXED = {"norm": "linf", "radius": 0.2, **FEW}
DEFENCES = {"standard": {}, "calibrated": CALIBRATED, "fixed": FIXED}
KEY = ["model", "data", "suite", "threat", "victim", "defence", "index"]


def network(seed: int = 0, classes: int = 4) -> nn.Sequential:
    """A small classifier of images of 1 x 4 x 4 with curved regions, in which every class has its share."""
    draws = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 24), nn.Tanh(), nn.Linear(24, classes)).eval()
    for parameter in model.parameters():
        parameter.data = 4 * torch.randn(parameter.shape, generator=draws) / parameter.shape[-1] ** 0.5
    with torch.no_grad():
        model[-1].bias -= model(torch.rand((1000, 1, 4, 4), generator=draws)).mean(0)
    return model


def images(model: nn.Module, count: int = COUNT, seed: int = 1) -> TensorDataset:
    """Random images; every third label is another than the model's."""
    x = torch.rand((count, 1, 4, 4), generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        logits = model(x)
    wrong = torch.arange(count) % 3 == 0
    return TensorDataset(x, torch.where(wrong, (logits.argmax(1) + 1) % logits.shape[1], logits.argmax(1)))


MODEL = network()
DATA = images(MODEL)
X, Y = DATA.tensors
INDEX = torch.arange(COUNT)


def ours(**changes: object) -> Spec:
    """A spec of the small model on its images, in one shard."""
    return Spec(**{"models": {"mine": MODEL}, "data": {"mine": DATA}, "defences": {"standard": {}}, "shard": COUNT} | changes)


def rows(records: pl.DataFrame, threat: str, defence: str) -> dict[str, list]:
    return records.filter(threat=threat, defence=defence).to_dict(as_series=False)


def close(found: list, expected: Tensor | np.ndarray, tolerance: float = 1e-6) -> None:
    """Numbers, and nothing exactly where NaN is expected."""
    values = torch.as_tensor(expected).tolist()
    assert [each is None for each in found] == [math.isnan(each) for each in values]
    assert [each for each in found if each is not None] == pytest.approx(
        [each for each in values if not math.isnan(each)], abs=tolerance
    )
