"""What the model alone and DRQ say about an image, before and after it was changed, and what that cost."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from drq.decision import Decision
from drq.drq import DRQ
from drq.playground.pictures import Picture, card, class_names, classifier
from drq.playground.shifts import shifted
from drq.playground.watching import Watch, Watched


@dataclass(frozen=True, eq=False)
class Answers:
    """About one image."""

    picture: Picture  # as it was
    image: Tensor  # (C, H, W) as it became
    confidence: Tensor  # (C,) of the model alone, in the changed image
    before: int  # answer of the model alone to the image as it was
    decision: Decision | None  # of DRQ; None where it was not asked
    seconds: float  # that DRQ took
    names: tuple[str, ...]  # of the classes

    @property
    def standard(self) -> int:
        """The class that the model alone answers."""
        return int(self.confidence.argmax())


def preview(picture: Picture, name: str, strength: float) -> Answers:
    """What a shift that is no attack does to a picture, and what the model alone says: at once."""
    return _answered(picture, name, strength, 1, Watch(), ask_drq=False)


def answered(picture: Picture, name: str, strength: float, steps: int, watch: Watch) -> Answers:
    """Change the picture, ask the model and DRQ; ``watch`` may end it at any pass."""
    return _answered(picture, name, strength, steps, watch, ask_drq=True)


def _answered(picture: Picture, name: str, strength: float, steps: int, watch: Watch, ask_drq: bool) -> Answers:
    model = classifier(picture.model)
    robust = DRQ(Watched(model, watch), keep_points=True, **card(picture.model).explored)
    x = picture.image[None]
    with torch.no_grad():
        before = int(model(x).argmax())
    y = torch.tensor([before if picture.label is None else picture.label])  # an unknown truth is what the model says
    changed = shifted(name, robust, card(picture.model), x, y, strength, steps, watch)
    with torch.no_grad():
        confidence = model(changed).softmax(1)[0]
    decision, began = None, time.monotonic()
    if ask_drq:
        watch.begin("DRQ looks around the image", robust.most_passes(len(confidence)))
        decision = robust.decide(changed)
    names = class_names(picture.model)
    return Answers(picture, changed[0], confidence, before, decision, time.monotonic() - began, names)
