"""What ``drq predict`` answers about a picture: the class, why, how far to trust it, and what that cost."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import starmap
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from drq import images
from drq.decision import Decision
from drq.drq import DRQ
from drq.errors import InputError, require
from drq.models.catalogue import load
from drq.models.classifier import Card


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
    margin: float
    radius: float | None  # explored; None where none was found and the model's own answer stands
    norm: str
    passes: int
    seconds: float
    classes: tuple[Class, ...]  # the highest robustness first

    def abstains(self, below: float) -> bool:
        """Whether the margin is too small to answer."""
        return self.margin < below

    def as_json(self, abstain: float = 0.0) -> dict[str, Any]:
        """Made of what JSON knows; the answer is None where the margin is below ``abstain``."""
        return {
            **vars(self),
            "answer": None if self.abstains(abstain) else self.answer,
            "classes": [each._asdict() for each in self.classes],
        }


class Predictor:
    """A model and DRQ around it, ready for pictures.

    Args:
        name: of the model, see :func:`drq.load_model`.
        norm, radius: of the region to explore; None takes what the training of the model suggests: twice its radius, else a
            radius calibrated for each picture.
        classes: see :class:`drq.DRQ`.
        device: where to run.
        options: of the loader.
    """

    def __init__(
        self,
        name: str,
        norm: str | None = None,
        radius: float | None = None,
        classes: int | None = None,
        device: str = "cpu",
        **options: Any,
    ) -> None:
        several = classes is None or classes >= 2
        require(several, "classes", "be at least 2", classes, "one class alone has no margin to trust it by")
        model = load(name, **options)
        card = getattr(model, "card", None)
        seen = isinstance(card, Card) and card.view is not None
        remedy = "use drq.DRQ in Python, where you make its inputs yourself"
        require(seen, "model", "say what pictures it takes", f"{name}, which does not", remedy)
        assert isinstance(card, Card)
        settings = dict(card.explored)
        if norm is not None and norm != settings.get("norm"):
            settings = {"norm": norm}  # the radius of another norm says nothing
        if radius is not None:
            settings["radius"] = radius
        self.card, self.model = card, _moved(model, device)
        self.robust = DRQ(self.model, classes=classes, **settings)
        self.device = device

    def __call__(self, path: str | Path) -> Prediction:
        """The answer about the picture in a file."""
        assert self.card.view is not None
        x = self.card.view(images.read(path))[None].to(self.device)
        began = time.monotonic()
        decision = self.robust.decide(x)
        seconds = time.monotonic() - began
        with torch.no_grad():
            confidence = self.model(x)[0].softmax(0).tolist()
        names = self.card.classes or [f"class {number}" for number in range(len(confidence))]
        rule = f"have a name for each of {len(confidence)} classes"
        require(len(names) == len(confidence), "model", rule, f"{len(names)} names", "correct its card")
        columns = zip(names, confidence, _robustness(decision), decision.exact[0].tolist(), strict=True)
        return Prediction(
            picture=str(path),
            model=self.card.name,
            answer=names[int(decision.label)],
            standard=names[int(decision.base_label)],
            changed=bool(decision.label != decision.base_label),
            margin=float(decision.margin),
            radius=float(decision.radius) if decision.found else None,
            norm=type(self.robust.norm).__name__.lower(),
            passes=int(decision.passes),
            seconds=round(seconds, 2),
            classes=tuple(sorted(starmap(Class, columns), key=_rank)),
        )

    def attempt(self, path: str | Path) -> Prediction | InputError:
        """The answer, or what is wrong with the picture."""
        try:
            return self(path)
        except InputError as error:
            return error


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


def _moved(model: nn.Module, device: str) -> nn.Module:
    try:
        require(torch.device(device).type != "meta", "device", "be one that computes", repr(device), "cpu always works")
        return model.to(device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).split("\n")[0]
        raise InputError(f"device must be one that this machine has, got {device!r} ({reason}): cpu always works") from error
