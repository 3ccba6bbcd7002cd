"""Define a model that is defended by a peer: what all of them have in common."""

from __future__ import annotations

import math
import warnings
from numbers import Real
from typing import NamedTuple

import torch
from torch import Tensor, nn

from drq.defences.defence import Peer
from drq.errors import require
from drq.method.adapters import Wrapper
from drq.method.execution import check_mode
from drq.models.classifier import WrongRange
from drq.objectives import Model


class Label(NamedTuple):
    """The decision of a defence for N samples."""

    label: Tensor  # (N,)


class Vote(NamedTuple):
    """The decision of randomised smoothing for N samples."""

    label: Tensor  # (N,) the class with most votes, also where it abstains
    abstains: Tensor  # (N,) bool: the two classes with most votes cannot be told apart
    scores: Tensor  # (N, C) log of the share of votes


class Defended(Wrapper):
    """A model that is defended by a :class:`Peer`. Its answer is the highest of its scores."""

    model: nn.Module

    def __init__(self, model: nn.Module, peer: Peer) -> None:
        super().__init__(model)
        self.peer = peer
        check_mode(model)

    def decide(self, x: Tensor) -> Label | Vote:
        """Return the label of every sample."""
        with torch.no_grad():
            return Label(self(x).argmax(1))


def without_range_warning(model: Model) -> Model:
    """Return the model without its warning that inputs leave [0, 1]: some defences move them there on purpose."""

    def logits(x: Tensor) -> Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", WrongRange)
            return model(x)

    return logits


def is_number(value: object) -> bool:
    """Return whether a value is a number, and not a bool."""
    return isinstance(value, Real) and not isinstance(value, bool)


def check_amount(name: str, amount: float, remedy: str) -> None:
    """Require a finite number of at least 0."""
    valid = is_number(amount) and 0 <= amount < math.inf
    require(valid, name, "be a finite number of at least 0", repr(amount), remedy)
