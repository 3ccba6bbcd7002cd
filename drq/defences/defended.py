"""A model in the defence of a peer: what all of them have in common."""

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
from drq.models.classifier import WrongRange
from drq.objectives import Model


class Label(NamedTuple):
    """What a defence decides about N samples."""

    label: Tensor  # (N,)


class Vote(NamedTuple):
    """What randomised smoothing decides about N samples."""

    label: Tensor  # (N,) the class with most votes, also where it abstains
    abstains: Tensor  # (N,) bool: the two classes with most votes cannot be told apart
    scores: Tensor  # (N, C) log of the share of votes


class Defended(Wrapper):
    """A model in the defence of a :class:`Peer`. It answers by the highest of its scores."""

    model: nn.Module

    def __init__(self, model: nn.Module, peer: Peer) -> None:
        super().__init__(model)
        self.peer = peer
        training = any(each.training for each in self.modules())
        require(not training, "model", "be in evaluation mode", "a module in training mode", "call model.eval() first")

    def decide(self, x: Tensor) -> Label | Vote:
        """The label of every sample."""
        with torch.no_grad():
            return Label(self(x).argmax(1))


def out_of_range(model: Model) -> Model:
    """The model without its warning that inputs leave [0, 1]: some defences move them there on purpose."""

    def look(x: Tensor) -> Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", WrongRange)
            return model(x)

    return look


def is_number(value: object) -> bool:
    """Whether this is a number, which True is not."""
    return isinstance(value, Real) and not isinstance(value, bool)


def check_amount(name: str, amount: float, remedy: str) -> None:
    """A finite number of at least 0."""
    valid = is_number(amount) and 0 <= amount < math.inf
    require(valid, name, "be a finite number of at least 0", repr(amount), remedy)
