"""Compare the answers of the model alone and of DRQ for an image and a changed version of it."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from drq.decision import Decision
from drq.drq import DRQ
from drq.errors import require
from drq.planes.plane import Plane
from drq.playground.image_sources import Picture, class_names, defended, least_margin, model_card, model_of
from drq.playground.jobs import CountedModel, Job
from drq.playground.shifts import apply_shift
from drq.views.seen import Seen, seen

MOST_PIXELS = 24  # along a side of a slice; a network takes minutes for these


@dataclass(frozen=True, eq=False)
class Comparison:
    """The answers of the model and of DRQ for one image."""

    picture: Picture  # before the change
    image: Tensor  # (C, H, W) after the change
    confidence: Tensor  # (C,) the model's confidences for the changed image
    before: int  # the model's answer before the change
    decision: Decision | None  # DRQ's decision; None where DRQ was not run
    slice: Plane | None  # the regions around DRQ's points; None where not requested or where no radius was found
    seen: Seen | None  # what the model says about every view, where views are looked at and no ball is searched
    seconds: float  # how long DRQ's decision took
    names: tuple[str, ...]  # names of the classes
    least_margin: float  # below which DRQ gives no answer

    @property
    def abstains(self) -> bool:
        """Whether DRQ gives no answer, because its margin is too small."""
        return self.decision is not None and float(self.decision.margin) < self.least_margin

    @property
    def standard(self) -> int:
        """The class that the model alone predicts."""
        return int(self.confidence.argmax())


def preview(picture: Picture, name: str, strength: float) -> Comparison:
    """Apply a shift that is not an attack, and run the model alone, which is fast."""
    return _compare(picture, name, strength, 1, Job(), None)


def compare(picture: Picture, name: str, strength: float, steps: int, job: Job, pixels: int = 0) -> Comparison:
    """Apply a shift to the picture, then run the model and DRQ; ``job`` can stop this at any pass.

    ``pixels`` is the number of points along each side of a slice, on each of which DRQ decides as well; 0 for no slice.
    """
    fits = pixels == 0 or 2 <= pixels <= MOST_PIXELS
    require(fits, "slice", f"be 0, or lie between 2 and {MOST_PIXELS}", pixels, "move the slider")
    return _compare(picture, name, strength, steps, job, pixels)


def _compare(picture: Picture, name: str, strength: float, steps: int, job: Job, pixels: int | None) -> Comparison:
    """Run the model and, unless ``pixels`` is None, DRQ."""
    model = model_of(picture.model)
    robust = defended(picture.model, CountedModel(model, job))
    x = picture.image[None]
    with torch.no_grad():
        before = int(model(x).argmax())
    y = torch.tensor([before if picture.label is None else picture.label])  # without a true label, the model's answer
    changed = apply_shift(name, robust, model_card(picture.model), x, y, strength, steps, job)
    with torch.no_grad():
        confidence = model(changed).softmax(1)[0]
    decision, plane, views, began, names = None, None, None, time.monotonic(), class_names(picture.model)
    if pixels is not None:
        job.begin("DRQ searches around the image", robust.most_passes(len(confidence)))
        decision = robust.decide(changed)
    seconds = time.monotonic() - began
    if decision is not None and not robust.ball_searched:
        views = _seen(robust, changed, decision)
    elif pixels and decision is not None and bool(decision.found):
        job.begin(f"DRQ searches around {pixels} x {pixels} images near it", pixels**2 * int(decision.passes))
        plane = robust.slice(decision, pixels)
    least = least_margin(picture.model)
    return Comparison(picture, changed[0], confidence, before, decision, plane, views, seconds, names, least)


def _seen(robust: DRQ, x: Tensor, decision: Decision) -> Seen:
    """Return what the model says about every view of the image."""
    assert robust.views is not None
    return seen(robust.model, robust.views, robust.gate, robust.after_front(x), robust.bounds, decision.classes)
