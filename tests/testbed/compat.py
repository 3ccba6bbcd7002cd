"""What the tests of other libraries share: these libraries, and a model and pictures to try them on."""

import warnings
from collections.abc import Iterator
from functools import cache

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

import drq
from testbed.digits import Digits, trained

LIBRARIES = ("torchattacks", "art", "captum", "torchmetrics", "lightning", "onnx", "onnxscript", "onnxruntime")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    for library in (*LIBRARIES, "foolbox", "pyautoattack"):
        pytest.importorskip(library, reason=f"make test-compat installs {', '.join(LIBRARIES)}", exc_type=ImportError)

RADIUS = 0.25  # around digits it is wide enough that nearly every one reaches several classes
FEW = {"explore": drq.Gradient(steps=5), "quantify": drq.Gradient(steps=5)}
IMAGES = 16


@cache
def digits() -> Digits:
    return trained()


def batch(count: int = IMAGES) -> tuple[Tensor, Tensor]:
    return digits().x[:count], digits().y[:count]


def around_digits(**settings: object) -> drq.DRQ:
    """DRQ with a ball, whose scores can all be read."""
    return drq.DRQ(digits().model, "linf", RADIUS, **{"prune": "none", **FEW} | settings)


def accuracy(robust: drq.DRQ, x: Tensor, y: Tensor) -> float:
    return (robust.decide(x).label == y).double().mean().item()


@cache
def network() -> nn.Module:
    """A trained network of CIFAR-10."""
    return drq.load_model("cifar10-tiny")


def pictures(count: int, seed: int = 0) -> Tensor:
    """Smooth random pictures with fine detail, of which that network says many things."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.zeros(count, 3, 32, 32)
    for side, share in ((3, 1.0), (6, 0.6), (12, 0.4), (32, 0.15)):
        coarse = torch.rand(count, 3, side, side, generator=draw)
        x += share * interpolate(coarse, (32, 32), mode="bicubic", align_corners=False)
    x -= x.amin((1, 2, 3), keepdim=True)
    return (x / x.amax((1, 2, 3), keepdim=True)).clamp(0, 1)


def alone() -> Iterator[None]:
    """Clients draw from the global random state."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield
