"""Take what was fitted to a model from its card: views for pictures of its size, and the gate for these views."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from drq.errors import require
from drq.views.gate import Gate
from drq.views.tones import Detail
from drq.views.view import Combined, Views

CARD = "card"  # in the place of a gate: that of the model's card, and none where it has none
# What Restoration.like measures: 0.25 was chosen on CIFAR-10, the others are photographs of 299 pixels, resized.
DETAIL = {32: 0.25, 64: 0.18, 128: 0.15, 224: 0.12}  # by the side of pictures


def fitted(
    model: object, views: Views | None, gate: Gate | Mapping[str, Any] | str | None, other: bool
) -> tuple[Views | None, Gate | Mapping[str, Any] | None]:
    """Views and gate for a model; where that of its card is asked for, views are for pictures of the size that the card names.

    ``other`` tells that evidence is not that of views alone, so that the gates of cards say nothing about it.
    """
    if not isinstance(gate, str):
        return views, gate
    require(gate == CARD, "gate", f"be a drq.views.Gate, {CARD!r} or None", repr(gate)[:80], "robust.gated(x) learns one")
    find = getattr(getattr(model, "card", None), "fitted", None)
    if views is None or find is None:
        return views, None
    views, found = find(views, model)
    return views, None if other else found


def for_side(views: Views, side: int) -> Views:
    """The same views with fine detail as pictures of about so many pixels a side have it, where it was left at its default.

    >>> str(for_side(Detail() + Detail(0.3), 240))
    'Detail(0.12) + Detail(0.3)'
    """
    if isinstance(views, Combined):
        return type(views)(*(for_side(each, side) for each in views.parts))
    nearest = min(DETAIL, key=lambda each: abs(math.log(each / side)))
    return Detail(DETAIL[nearest]) if views == Detail() else views
