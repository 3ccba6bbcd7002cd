"""Look at every view of one sample, for a card that shows what a decision rests on."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from drq.norms import Bounds
from drq.objectives import Model, log_odds
from drq.views.contest import table
from drq.views.gate import Gate
from drq.views.view import Views


@dataclass(frozen=True, eq=False)
class Seen:
    """What a model says about V views of one sample, the sample itself first."""

    names: tuple[str, ...]
    x: Tensor  # (V, ...) the views
    log_odds: Tensor  # (V, C)
    counted: Tensor  # (V, C) the same as classes are compared: standardised where the gate says so, -inf for those that are not
    gate: Gate | None


def seen(model: Model, views: Views, gate: Gate | None, x: Tensor, bounds: Bounds | None, classes: Tensor) -> Seen:
    """Look at a sample ``x`` (1, ...), one view after the other; ``classes`` (1, K) are those that take part."""
    with torch.no_grad():
        pictures = [each.inside(x, bounds) for each in views]
        logits = torch.cat([model(each) for each in pictures])
    odds = table(logits[None], classes)
    own = odds[:, 0, logits[0].argmax()]
    counted = odds if gate is None else gate.standardised(odds, own)
    return Seen(views.names, torch.cat(pictures), log_odds(logits), counted[0], gate)
