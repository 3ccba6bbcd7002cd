"""What the model alone and DRQ say about an image, before and after it was changed, and what that cost."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from drq.decision import Decision
from drq.drq import DRQ
from drq.errors import require
from drq.planes.plane import Plane
from drq.playground.image_sources import Picture, card, class_names, classifier
from drq.playground.jobs import Watch, Watched
from drq.playground.shifts import shifted

MOST_PIXELS = 24  # along a side of a slice: minutes for a network


@dataclass(frozen=True, eq=False)
class Answers:
    """About one image."""

    picture: Picture  # as it was
    image: Tensor  # (C, H, W) as it became
    confidence: Tensor  # (C,) of the model alone, in the changed image
    before: int  # answer of the model alone to the image as it was
    decision: Decision | None  # of DRQ; None where it was not asked
    slice: Plane | None  # the regions around what it found; None where nobody asked, and where nothing was found
    seconds: float  # that DRQ took for its answer
    names: tuple[str, ...]  # of the classes

    @property
    def standard(self) -> int:
        """The class that the model alone answers."""
        return int(self.confidence.argmax())


def preview(picture: Picture, name: str, strength: float) -> Answers:
    """What a shift that is no attack does to a picture, and what the model alone says: at once."""
    return _answered(picture, name, strength, 1, Watch(), None)


def answered(picture: Picture, name: str, strength: float, steps: int, watch: Watch, pixels: int = 0) -> Answers:
    """Change the picture, ask the model and DRQ; ``watch`` may end it at any pass.

    ``pixels`` are the points along each side of a slice, all of which DRQ is asked about as well; 0 for no slice.
    """
    fits = pixels == 0 or 2 <= pixels <= MOST_PIXELS
    require(fits, "slice", f"be 0, or lie between 2 and {MOST_PIXELS}", pixels, "move the slider")
    return _answered(picture, name, strength, steps, watch, pixels)


def _answered(picture: Picture, name: str, strength: float, steps: int, watch: Watch, pixels: int | None) -> Answers:
    """All answers; those of the model alone where ``pixels`` is None."""
    model = classifier(picture.model)
    robust = DRQ(Watched(model, watch), keep_points=True, **card(picture.model).explored)
    x = picture.image[None]
    with torch.no_grad():
        before = int(model(x).argmax())
    y = torch.tensor([before if picture.label is None else picture.label])  # an unknown truth is what the model says
    changed = shifted(name, robust, card(picture.model), x, y, strength, steps, watch)
    with torch.no_grad():
        confidence = model(changed).softmax(1)[0]
    decision, plane, began, names = None, None, time.monotonic(), class_names(picture.model)
    if pixels is not None:
        watch.begin("DRQ looks around the image", robust.most_passes(len(confidence)))
        decision = robust.decide(changed)
    seconds = time.monotonic() - began
    if pixels and decision is not None and bool(decision.found):
        watch.begin(f"DRQ looks around {pixels} x {pixels} images near it", pixels**2 * int(decision.passes))
        plane = robust.slice(decision, pixels)
    return Answers(picture, changed[0], confidence, before, decision, plane, seconds, names)
