"""A DRQ with what a file says of it besides its settings: its model, the threshold below which it abstains, what was measured."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from drq.decision import Decision
from drq.drq import DRQ
from drq.errors import require
from drq.norms import check_features
from drq.system.progress import ProgressOption
from drq.version import __version__


@dataclass(frozen=True)
class Fitted:
    """What a threshold was fitted to, see :mod:`drq.serving.threshold`, and what it promises."""

    margin: float  # the threshold
    risk: float  # of answers about new pictures of the same kind at most this share is wrong,
    confidence: float  # with this probability over the choice of the pictures
    pictures: int  # labelled ones, to which it was fitted
    answered: float  # share of them that were
    wrong: float  # share of errors among these answers
    data: str  # the folder
    defence: str  # what tells the model and the settings at that time from others

    def __str__(self) -> str:
        return (
            f"of answers about new pictures such as those in {self.data} at most {self.risk:g} are wrong, with probability "
            f"{self.confidence:g} (of {self.pictures} pictures {self.answered:.1%} are answered, {self.wrong:.1%} of these wrong)"
        )


@dataclass(frozen=True)
class Threshold:
    """The margin below which a defence abstains, and what it was fitted to, unless a person chose it."""

    margin: float = 0.0  # 0 answers always
    fitted: Fitted | None = None

    def __post_init__(self) -> None:
        number = isinstance(self.margin, int | float) and not isinstance(self.margin, bool) and 0 <= self.margin <= 1
        require(number, "threshold", "lie between 0 and 1", repr(self.margin)[:80], "margins are differences of robustness")

    def __str__(self) -> str:
        return f"no answer below margin {self.margin:.4g}" if self.margin else "an answer at any margin"


@dataclass(frozen=True)
class About:
    """What a defence file says besides settings."""

    model: str  # by which it is loaded
    weights_sha256: str  # of all tensors that it holds, see drq.models.weights.checksum
    file_sha256: str | None = None  # of the file of its weights, where there is one
    inputs: tuple[int, ...] | None = None  # shape of an input, where it is known
    classes: tuple[str, ...] | None = None  # what each logit stands for, where it is known
    threshold: Threshold = Threshold()
    measured: Mapping[str, Any] = field(default_factory=dict)  # how it was measured: whatever its writer wanted to say
    version: str = __version__  # of drq, that wrote it


class StoredDefence(DRQ):
    """A DRQ from a file, with what the file says besides; made by :func:`drq.load_defence`.

    It is a :class:`drq.DRQ` in all respects. One with other settings, as from ``variant``, is a plain DRQ again: what was fitted
    and measured is about these settings.

    Args:
        model: the classifier.
        settings: all other arguments of :class:`drq.DRQ`.
        about: what the file says besides.
        table: the settings as the file has them.
    """

    model: nn.Module

    def __init__(self, model: nn.Module, settings: Mapping[str, Any], about: About, table: Mapping[str, Any]) -> None:
        super().__init__(model, **settings)
        self.about, self.table = about, dict(table)
        if about.inputs is not None:  # what is for other inputs is told at once
            x = torch.empty(1, *about.inputs, device="meta")
            check_features(x, self.bounds, self.frozen)
            if self.views is not None:
                self.views.check(x)

    @property
    def threshold(self) -> Threshold:
        """The margin below which it abstains."""
        return self.about.threshold

    def abstains(self, decision: Decision) -> Tensor:
        """(N,) bool: whether the margin of an answer is below the threshold."""
        return decision.margin.double() < self.threshold.margin

    @property
    def identity(self) -> str:
        """A checksum of the weights and of all settings."""
        known = json.dumps([self.about.weights_sha256, self.table], sort_keys=True)
        return hashlib.sha256(known.encode()).hexdigest()[:16]

    @property
    def promise(self) -> str:
        """What its threshold promises, in words; empty where it always answers."""
        fitted, margin = self.threshold.fitted, self.threshold.margin
        if not margin and fitted is None:
            return ""
        if fitted is None or fitted.margin != margin:
            return f"{self.threshold}, which was chosen by hand: nothing is promised"
        if fitted.defence != self.identity:
            return f"{self.threshold}, which was fitted to other settings: nothing is promised (drq threshold fits it anew)"
        return f"{self.threshold}: {fitted}"

    def decide(self, x: Tensor, progress: ProgressOption | None = None) -> Decision:
        """Decide as :meth:`drq.DRQ.decide` does, about inputs of the shape that the file names."""
        self._check_shape(x)
        return super().decide(x, progress)

    def scored(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return what a call does, for inputs of the shape that the file names."""
        self._check_shape(x)
        return super().scored(x)

    def _check_shape(self, x: object) -> None:
        inputs = self.about.inputs
        if inputs is None or not isinstance(x, Tensor):
            return
        rule = f"have the shape (N, {', '.join(map(str, inputs))})"
        require(x.shape[1:] == inputs, "x", rule, tuple(x.shape), "the defence was saved for these inputs")
