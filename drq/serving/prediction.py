"""The answer about one picture, and what it rests on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import starmap
from typing import Any, NamedTuple

import torch

from drq.decision import Decision
from drq.drq import DRQ
from drq.serving.picture import Picture


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
    source: Picture | None = field(default=None, repr=False, compare=False)  # what was asked about, to be read once more

    def abstains(self, below: float) -> bool:
        """Whether the margin is too small to answer."""
        return self.margin < below

    def as_json(self, abstain_below: float = 0.0) -> dict[str, Any]:
        """Made of what JSON knows; the answer is None where the margin is below ``abstain_below``."""
        abstained = self.abstains(abstain_below)
        return {
            **{name: value for name, value in vars(self).items() if name not in ("decision", "source")},
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


def predicted(
    robust: DRQ, model: str, names: Sequence[str], picture: Picture, decision: Decision, confidence: list[float], seconds: float
) -> Prediction:
    """What a decision about a single input says.

    Args:
        robust: that decided.
        model: its name.
        names: of the classes.
        picture: that the input was made of.
        decision: on it.
        confidence: of the model itself in each class.
        seconds: that it took.
    """
    standard = confidence.index(max(confidence))  # of the model itself, without a front
    views = robust.views
    columns = zip(names, confidence, _robustness(decision), decision.exact[0].tolist(), strict=True)
    return Prediction(
        picture=picture.name,
        model=model,
        answer=names[int(decision.label)],
        standard=names[standard],
        changed=int(decision.label) != standard,
        robustness=float(decision.robustness[0, decision.label]),
        margin=float(decision.margin),
        radius=float(decision.radius) if decision.found else None,
        norm=type(robust.norm).__name__.lower() if robust.ball_searched else None,
        passes=int(decision.passes),
        seconds=round(seconds, 3),
        classes=tuple(sorted(starmap(Class, columns), key=_rank)),
        views=0 if views is None else len(views),
        view=None if views is None else views.names[int(decision.view)],
        kept=bool(decision.kept),
        gate_margin=float(decision.gate_margin) if decision.gate_margin.isfinite() else None,
        forward_passes=int(decision.forward_passes),
        decision=decision,
        source=picture,
    )


def _rank(each: Class) -> tuple[float, bool, float]:
    """The highest robustness first, what was not searched last; among equals the model's own order."""
    return (1.0 if each.robustness is None else -each.robustness, not each.exact, -each.confidence)


def _robustness(decision: Decision) -> list[float | None]:
    """Of every class; None where it was not searched. What was pruned lies below the second, whatever its own bound is."""
    second = int(decision.runner_up)
    bound = decision.robustness[0, second] if second >= 0 else decision.robustness.max()
    values = torch.where(decision.exact[0], decision.robustness[0], decision.robustness[0].clamp(max=bound)).tolist()
    searched = {int(decision.label), int(decision.base_label), *decision.classes[0].tolist()}
    return [value if number in searched else None for number, value in enumerate(values)]
