"""Compute the scores of DRQ over views by tensor operations alone, for torch.export, ONNX and whatever else traces modules."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from drq.method.adapters import Wrapper
from drq.method.scores import scores_of
from drq.norms import Ball, Bounds, Linf
from drq.objectives import Model
from drq.views.contest import outcome, table
from drq.views.gate import Gate
from drq.views.view import Views, neighbourhoods

TERMS = range(17, 0, -2)  # powers after which float32 cannot tell the rest


class ViewScores(Wrapper):
    """DRQ over views: (N, ...) -> (N, C) log-robustness, that of ``robust(x)``.

    All views go through the model together, in the precision of x. Nothing is checked: inputs are finite and inside their bounds.
    """

    def __init__(
        self,
        model: nn.Module | Model,
        views: Views,
        gate: Gate | None,
        alpha: float,
        classes: int | None,
        front: Callable[[Tensor], Tensor] | None,
        bounds: Bounds | None,
    ) -> None:
        super().__init__(model)
        self.views, self.gate, self.classes, self.front, self.bounds = views, gate, classes, front, bounds
        self.near = neighbourhoods(views, alpha) if alpha else None

    def forward(self, x: Tensor) -> Tensor:
        """Log-robustness of every class; the argmax is the label."""
        x = x if self.front is None else self.front(x)
        x = Ball(x, 0.0, Linf(), self.bounds).clip(x)
        seen = torch.cat([each.inside(x, self.bounds) for each in self.views])
        logits = self.model(seen).unflatten(0, (len(self.views), -1)).transpose(0, 1)
        classes = None if self.classes is None else logits[:, 0].topk(self.classes).indices
        found = outcome(table(logits, classes), logits[:, 0], self.near, self.gate)
        return scores_of(found.log_odds, log_sigmoid)


def log_sigmoid(odds: Tensor) -> Tensor:
    """The logarithm of the sigmoid by sums and products: as Log(Sigmoid(x)), which ONNX knows, confident classes would tie.

    With t = exp(-|x|) it is min(x, 0) - log(1 + t), and log(1 + t) = 2 artanh(s) = 2 (s + s^3 / 3 + ...), where s = t / (2 + t)
    is 1/3 at most.
    """
    small = (-odds.abs()).exp()
    share = small / (2 + small)
    square, series = share * share, torch.zeros_like(share)
    for power in TERMS:
        series = series * square + 1 / power
    return odds.clamp(max=0) - 2 * share * series
