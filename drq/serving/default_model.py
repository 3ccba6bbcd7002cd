"""Choose what answers about pictures where no model is named: a model of ImageNet where its package is installed."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from drq.models.imagenet import LITE0
from drq.presets import has_ball, named

PHOTOGRAPHS, SMALL = "imagenet-lite0", "cifar10-small"
CLASSES = 10  # of 1000 that are searched, as in the paper
PHOTOGRAPHS_TOLD = (
    "{model} answers, with preset {preset} and the {classes} likeliest classes; it was trained without attacks, and the paper's "
    "DRQ is not expected to change answers of such a model (--model names another)"
)
VIEWS_TOLD = "{model} answers, {how} (--model names another)"
SMALL_TOLD = (
    "{model} answers, which knows ten classes: pip install 'decision-region-quantification[imagenet]' brings a model of 1000 "
    "(--model names another)"
)


class Choice(NamedTuple):
    """What answers about pictures."""

    model: str
    preset: str
    classes: int | None
    note: str  # what the user should know of it in one line; empty where the user chose the model


def choose_model(
    model: str | None, preset: str | None, classes: int | None, given: Mapping[str, Any] = MappingProxyType({})
) -> Choice:
    """Return what was asked for, with defaults where nothing was; ``given`` are other arguments of DRQ."""
    if model is not None:
        return Choice(model, preset or "paper", classes, "")
    if LITE0.place() is None:
        return Choice(SMALL, preset or "paper", classes, SMALL_TOLD.format(model=SMALL))
    if not has_ball(named(preset or "fast").changed(given)):  # a pass answers for all classes
        how = f"with preset {preset}" if preset else "with the views that are given"
        return Choice(PHOTOGRAPHS, preset or "paper", classes, VIEWS_TOLD.format(model=PHOTOGRAPHS, how=how))
    preset = preset or "fast"
    searched = named(preset).settings.get("classes", CLASSES) if classes is None else classes
    note = PHOTOGRAPHS_TOLD.format(model=PHOTOGRAPHS, preset=preset, classes=searched)
    return Choice(PHOTOGRAPHS, preset, searched, note)
