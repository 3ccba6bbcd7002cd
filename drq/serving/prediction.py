"""The answer about one picture, and what it rests on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from drq.decision import Decision


class Class(NamedTuple):
    """One class of the model, at one picture."""

    name: str
    confidence: float  # of the model in it, at the picture itself
    robustness: float | None  # what remains of its confidence around its best point nearby, 0 without one; None: not searched
    exact: bool  # False where the search stopped because the class cannot come first or second: then it is below this value


@dataclass(frozen=True)
class Prediction:
    """The answer about one picture."""

    picture: str
    model: str
    answer: str  # DRQ's
    standard: str  # the model's own
    changed: bool  # whether the two differ; names may not tell
    robustness: float  # of the answer
    margin: float
    radius: float | None  # explored, 0 where there was no ball; None where none was found and the model's own answer stands
    norm: str | None  # None where there was no ball
    passes: int
    seconds: float
    classes: tuple[Class, ...]  # the highest robustness first
    views: int = 0  # that were looked at; 0 where balls alone were searched
    view: str | None = None  # at which the answer was found
    kept: bool = False  # whether a gate keeps the model's own answer
    gate_margin: float | None = None  # how far the evidence was above the threshold of the gate
    forward_passes: int = 0  # those of the passes that asked for no gradient
    decision: Decision | None = field(default=None, repr=False, compare=False)  # with its points, where they are kept

    def abstains(self, below: float) -> bool:
        """Whether the margin is too small to answer."""
        return self.margin < below

    def as_json(self, abstain_below: float = 0.0) -> dict[str, Any]:
        """Made of what JSON knows; the answer is None where the margin is below ``abstain_below``."""
        abstained = self.abstains(abstain_below)
        return {
            **{name: value for name, value in vars(self).items() if name != "decision"},
            "answer": None if abstained else self.answer,
            "abstained": abstained,
            "classes": [each._asdict() for each in self.classes],
        }


class Refusal(NamedTuple):
    """No answer about one picture, because something is wrong with it."""

    picture: str
    error: str

    def as_json(self, abstain_below: float = 0.0) -> dict[str, Any]:
        """Made of what JSON knows."""
        return self._asdict()
