"""Specs as tables, and parts of them."""

import torch
from torch import nn
from torch.utils.data import TensorDataset

VALID = {"models": ["digits"], "data": ["digits"], "limit": 2, "defences": {"standard": {}}}


def spec(**changes) -> dict:
    return VALID | changes


def threat(**settings) -> dict:
    """A spec with one threat of these settings."""
    return spec(threats={"mine": settings})


def defence(**settings) -> dict:
    return spec(defences={"mine": {"defence": "drq"} | settings})


def group(**changes) -> dict:
    return spec(models=[], data=[], groups=[{"models": ["digits"], "data": ["digits"]} | changes])


def network(classes: int = 3) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(4, classes)).eval()


def items(*labels: int, scale: float = 1.0) -> TensorDataset:
    return TensorDataset(scale * torch.rand(len(labels), 1, 2, 2), torch.tensor(labels))


PGD = {"threat": "PGD", "norm": "linf", "radius": 0.1, "steps": 2}
