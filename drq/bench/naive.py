"""Implement DRQ as a plain Python loop: the baseline for speed, and an independent check of DRQ's labels.

Batches of 128, a Python loop over classes, ``loss.backward()`` with the gradients of all parameters. It is the same method: 20
steps toward a class, the most confident point of that class kept, 20 steps away from it, the lowest confidence kept, and the
class that stays highest. It shares no code with :class:`drq.DRQ`, its norms or its searches.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from drq.errors import require

STEP = 2.5  # length of a step, as a multiple of radius / steps


class Answer(NamedTuple):
    """The labels, log-odds and number of passes that an implementation returns for a batch."""

    label: Tensor  # (N,)
    log_odds: Tensor  # (N, C) log-odds of every class's robustness; -inf where the class was not reached
    passes: Tensor  # (N,) evaluations of the model; in the naive loop 1 + 2 C (steps + 1)


@contextmanager
def parameters_require_grad(model: nn.Module) -> Iterator[None]:
    """Let all parameters require gradients inside the context, as in a freshly loaded model, and restore them afterwards."""
    before = [(each, each.requires_grad, each.grad) for each in model.parameters()]
    for each, _, _ in before:
        each.grad = None
        each.requires_grad_(each.is_floating_point())
    try:
        yield
    finally:
        for each, required, gradient in before:
            each.requires_grad_(required)
            each.grad = gradient


@dataclass(frozen=True)
class Naive:
    """DRQ as a plain loop, with the arguments of :class:`drq.DRQ`.

    Args:
        model: a classifier in evaluation mode, (N, ...) -> (N, C) logits.
        norm: "linf" or "l2".
        radius: the radius of exploration.
        alpha: the radius of quantification, as a share of ``radius``.
        steps: the steps of each search.
        batch: how many images are processed at once.
        bounds: the lowest and the highest value of the input.

    >>> model = nn.Linear(2, 3).eval()
    >>> Naive(model, "linf", 0.1).decide(torch.rand(5, 2)).passes
    tensor([127, 127, 127, 127, 127])
    """

    model: nn.Module
    norm: str
    radius: float
    alpha: float = 0.5
    steps: int = 20
    batch: int = 128
    bounds: tuple[float, float] = (0.0, 1.0)

    def __post_init__(self) -> None:
        require(self.norm in ("linf", "l2"), "norm", "be 'linf' or 'l2'", repr(self.norm), "the naive loop knows no other")
        require(not self.model.training, "model", "be in evaluation mode", "training mode", "call model.eval() first")

    def decide(self, x: Tensor) -> Answer:
        """Return the label of every image, the log-odds behind it and the passes it took."""
        with torch.enable_grad(), parameters_require_grad(self.model):
            parts = [self._decide(images) for images in torch.split(x, self.batch)]
        return Answer(*(torch.cat(each) for each in zip(*parts, strict=True)))

    def _decide(self, x: Tensor) -> Answer:
        with torch.no_grad():
            base = self.model(x)
        passes = 1
        columns = []
        for label in range(base.shape[1]):
            point, reached, count = self._search(x, label, self.radius, toward=True)
            passes += count
            _, odds, count = self._search(point, label, self.alpha * self.radius, toward=False)
            passes += count
            columns.append(torch.where(reached > -torch.inf, odds, -torch.inf))
        odds = torch.stack(columns, dim=1)
        best, label = odds.max(1).values, base.argmax(1)
        tied = odds.gather(1, label[:, None])[:, 0] == best  # on ties the label of the model alone stays
        return Answer(torch.where(tied, label, odds.argmax(1)), odds, torch.full_like(label, passes))

    def _search(self, start: Tensor, label: int, radius: float, toward: bool) -> tuple[Tensor, Tensor, int]:
        """Return the best point, its log-odds and the passes.

        Best is the highest where the model predicts ``label``, or without ``toward`` the lowest anywhere.
        """
        point, best_point = start.clone(), start.clone()
        best = torch.full_like(start.flatten(1)[:, 0], -torch.inf if toward else torch.inf)
        for step in range(self.steps + 1):
            last = step == self.steps  # the last point is scored but not moved
            with torch.set_grad_enabled(not last):
                point = point.detach().requires_grad_(not last)
                logits = self.model(point)
                odds = _log_odds(logits, label)
            better = (odds > best) & (logits.argmax(1) == label) if toward else odds < best
            best_point = torch.where(better.reshape(-1, *[1] * (start.dim() - 1)), point.detach(), best_point)
            best = torch.where(better, odds.detach(), best)
            if not last:
                self.model.zero_grad()
                loss = -odds.sum() if toward else odds.sum()
                loss.backward()  # type: ignore[no-untyped-call]
                assert point.grad is not None
                point = self._step(point.detach(), point.grad, start, radius)
        return best_point, best, self.steps + 1

    def _step(self, point: Tensor, gradient: Tensor, center: Tensor, radius: float) -> Tensor:
        """Take one step downhill, then project onto the ball, then clamp to the bounds."""
        length = STEP * radius / self.steps
        if self.norm == "linf":
            moved = point - length * gradient.sign()
            moved = torch.minimum(torch.maximum(moved, center - radius), center + radius)
        else:
            moved = point - length * gradient / _lengths(gradient).clamp(min=1e-30)
            offset = moved - center
            moved = center + offset * (radius / _lengths(offset).clamp(min=1e-30)).clamp(max=1)
        return moved.clamp(*self.bounds)


def _log_odds(logits: Tensor, label: int) -> Tensor:
    others = torch.cat([logits[:, :label], logits[:, label + 1 :]], dim=1)
    return logits[:, label] - others.logsumexp(1)


def _lengths(vectors: Tensor) -> Tensor:
    return vectors.flatten(1).square().sum(1).sqrt().reshape(-1, *[1] * (vectors.dim() - 1))
