"""Presets: settings of DRQ by name, each with its purpose and the experiment that measured it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from drq import registry
from drq.errors import nearest, require
from drq.method.calibration import Calibrated
from drq.search.gradient import Gradient
from drq.views.expression import parse
from drq.views.fitted import CARD

PAPER_REACH = 2.0  # the radius of exploration, as a multiple of that of the training
# Chosen by python -m tools.view_search.choose, reported by drq reproduce views.
SHIFT_VIEWS = parse("Detail() + Mirror() @ Detail() + Mirror() @ Denoise() @ Sharpen()")  # 4 with the picture itself
NATURE_VIEWS = SHIFT_VIEWS + parse("Rotation(80, 9)")  # 12
UPRIGHT_VIEWS = parse("Mirror() * Detail() + Rotation(90, 13)")  # 16


class Trained(Protocol):
    """The part of a model's card that tells of its training."""

    def region(self, norm: str | None, radius: object, reach: float) -> dict[str, Any]:
        """The norm and the radius that follow from it."""


@dataclass(frozen=True)
class Preset:
    """Arguments of :class:`drq.DRQ`.

    Args:
        summary: what it is for.
        experiment: ``drq reproduce`` repeats the measurement that it rests on.
        settings: the arguments that differ from the paper's.
        reach: the radius where none is given and the model was trained adversarially, as a multiple of that of its training.
        changes: the share of answers on inputs that are as they should be that a gate lets change, at most.
    """

    summary: str
    experiment: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    reach: float = PAPER_REACH
    changes: float = 0.05

    def changed(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The settings with those that are given in their place; in another norm their radius means nothing."""
        kept = dict(self.settings)
        if given.get("norm", kept.get("norm")) != kept.get("norm"):
            kept.pop("radius", None)
        return kept | dict(given)

    def around(self, card: Trained, given: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
        """All arguments for a model with this card; what is not given is the preset's, else that of its training."""
        settings = self.changed(given)
        if not has_ball(settings):
            return settings
        return settings | card.region(settings.get("norm"), settings.get("radius"), self.reach)


def has_ball(settings: Mapping[str, Any]) -> bool:
    """Whether DRQ with these arguments searches balls: views without a radius have none."""
    return settings.get("views") is None or "radius" in settings


_ONE_STEP = {"explore": Gradient(steps=1), "quantify": Gradient(steps=1)}
PAPER = Preset("the method as published, 20 steps of exploration and of quantification", "table1")
FAST = Preset("one step of each, a tenth of the passes where a radius is given; not for attacks", "improve", _ONE_STEP)
GUARDED = Preset(
    "attacks: explores only as far as the training reached, half as far as the paper",
    "improve-attacked",
    reach=1.0,
)
SHIFT = Preset(
    "pictures in bad weather or light, blurred or noisy: for each class the best of 4 views, which restore contrast and detail "
    "and take noise out, 4 forward passes; behind a gate where the model's card has one; not for attacks",
    "views",
    {"views": SHIFT_VIEWS, "gate": CARD},
)
INSTANT = Preset(
    "photographs and plainly trained models, on a CPU: five classes, one step of each search, and a radius calibrated in ten "
    "steps instead of a hundred, in some thirty passes; not for attacks",
    "imagenet-instant",
    _ONE_STEP | {"classes": 5, "norm": "l2", "radius": Calibrated(steps=10)},
)
NATURE = Preset(
    "pictures in bad weather or light, blurred, noisy or turned: for each class the best of 12 views, 12 forward passes; behind "
    "a gate where the model's card has one; not for attacks",
    "views",
    {"views": NATURE_VIEWS, "gate": CARD},
)
UPRIGHT = Preset(
    "pictures that may lie on their side: for each class the best of 16 views, 13 of them angles, 16 forward passes; behind a "
    "gate where the model's card has one; not for attacks",
    "views",
    {"views": UPRIGHT_VIEWS, "gate": CARD},
    changes=0.06,
)
PRESETS: Mapping[str, Preset] = registry.PRESETS


def preset(name: str, model: object = None) -> dict[str, Any]:
    """The arguments of :class:`drq.DRQ` that a preset stands for: ``drq.DRQ(model, "linf", 16 / 255, **drq.preset("fast"))``.

    Args:
        name: one of :data:`PRESETS`. ``instant`` has a norm and a radius: ``preset("instant") | {"radius": 0.01}`` has another.
        model: with a card that says how it was trained: then norm and radius are among the arguments of every preset.

    >>> preset("paper")
    {}
    >>> sorted(preset("instant"))
    ['classes', 'explore', 'norm', 'quantify', 'radius']
    """
    chosen, card = named(name), getattr(model, "card", None)
    if model is None:
        remedy = f"drq.preset({name!r}, model), or a DRQ with {chosen.reach:g} times the radius of its training"
        require(chosen.reach == PAPER_REACH, "model", f"be given for {name}, which follows its training", "none", remedy)
        return dict(chosen.settings)
    if {"norm", "radius"} <= chosen.settings.keys():
        return dict(chosen.settings)
    known = getattr(card, "norm", None) is not None
    require(known, "model", "have a card that says how it was trained", type(model).__name__, "leave it out, and give a radius")
    assert card is not None
    return chosen.around(card)


def named(name: str) -> Preset:
    """The preset of that name."""
    known = isinstance(name, str) and name in PRESETS
    require(known, "preset", "have a name that exists", repr(name), nearest(str(name), PRESETS, f"it is {', '.join(PRESETS)}"))
    return PRESETS[name]
