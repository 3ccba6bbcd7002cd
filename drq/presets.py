"""Settings of DRQ that have a name, each with what it is for and the experiment whose records speak for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from drq.errors import nearest, require
from drq.gradient import Gradient
from drq.restoration import Restoration


@dataclass(frozen=True)
class Preset:
    """Arguments of :class:`drq.DRQ`.

    Args:
        summary: what it is for.
        experiment: ``drq reproduce`` repeats the measurement that it rests on.
        settings: the arguments that differ from the paper's.
        reach: the radius where none is given and the model was trained adversarially, as a multiple of that of its training.
    """

    summary: str
    experiment: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    reach: float = 2.0


_ONE_STEP = {"explore": Gradient(steps=1), "quantify": Gradient(steps=1)}
PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        "paper": Preset("the method as published, 20 steps of exploration and of quantification", "table1"),
        "fast": Preset("one step of each, a tenth of the cost; not for attacks on DRQ itself", "figure3", _ONE_STEP),
        "guarded": Preset("attacks: explored is no further than the training reached", "improve-attacked", reach=1.0),
        "shift": Preset(
            "pictures in bad weather or from bad lenses: contrast and detail are restored first; not for attacks",
            "improve",
            _ONE_STEP | {"front": Restoration()},
        ),
    }
)


def preset(name: str) -> dict[str, Any]:
    """The arguments of :class:`drq.DRQ` that a preset stands for: ``drq.DRQ(model, "linf", 16 / 255, **drq.preset("fast"))``.

    >>> preset("paper")
    {}
    >>> sorted(preset("shift"))
    ['explore', 'front', 'quantify']
    """
    return dict(named(name).settings)


def named(name: str) -> Preset:
    """The preset of that name."""
    known = isinstance(name, str) and name in PRESETS
    require(known, "preset", "have a name that exists", repr(name), nearest(str(name), PRESETS, f"it is {', '.join(PRESETS)}"))
    return PRESETS[name]
