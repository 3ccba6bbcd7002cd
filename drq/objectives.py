r"""Objectives of searches: one value a row, computed from logits. Always minimised; no ``targeted=`` flags.

Confidence is measured in log-odds, :math:`o_i = z_i - \log \sum_{j \ne i} e^{z_j}`, so that
:math:`f_i = \operatorname{sigmoid}(o_i)`. In float32 a confidence is exactly 1 from log-odds 17 on, where it no longer ranks
anything and has no gradient; log-odds still do. The gradient of :math:`\log f_i` is :math:`(1 - f_i) \nabla o_i`, so steepest
directions are those of the cross-entropy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from drq.errors import require
from drq.rows import Rows

Model = Callable[[Tensor], Tensor]
TINY = 1e-12  # keeps the ratio of equal logits finite


def log_odds(logits: Tensor, label: Tensor | None = None) -> Tensor:
    """Log-odds of the class ``label`` (N,) of every row, as (N,); of every class, as (N, C), when it is None.

    >>> log_odds(torch.tensor([[2.0, 0.0]]), torch.tensor([0]))
    tensor([2.])
    """
    if logits.shape[1] == 2:  # the same to the last bit, without the sums
        lead = logits[:, 0] - logits[:, 1]
        return torch.stack([lead, -lead], 1) if label is None else torch.where(label == 0, lead, -lead)
    if label is None:
        top = logits.argmax(1)
        log_share = logits.log_softmax(1)
        share = log_share.exp().scatter(1, top[:, None], 0)  # of the top class 1 - f cancels: it is done directly
        return (log_share - torch.log1p(-share)).scatter(1, top[:, None], log_odds(logits, top)[:, None])
    chosen = label[:, None]
    return logits.gather(1, chosen)[:, 0] - logits.scatter(1, chosen, -torch.inf).logsumexp(1)


class Score(NamedTuple):
    """How good a point is, one entry a row."""

    value: Tensor  # to be minimised
    admitted: Tensor  # bool: whether the point may be an answer
    log_weight: Tensor  # log of the factor that cross-entropy puts before the gradient of `value`


def every_point(value: Tensor) -> Score:
    """The score of an objective for which every point counts."""
    return Score(value, torch.ones_like(value, dtype=torch.bool), torch.zeros_like(value))


@dataclass(frozen=True)
class Objective(Rows):
    """A model and what is asked of it; calling it scores a batch of points. Indexing selects rows."""

    model: Model
    measure: Callable[..., Score]
    given: tuple[Tensor, ...]  # per row, passed to `measure` behind the logits: a class, a threshold
    at_once: int | None = None  # points that go through the model together; None for all

    def __call__(self, point: Tensor) -> Score:
        """The score of every point."""
        return self.measure(self.model(point), *self.given)

    def pieces(self, count: int) -> list[slice]:
        """Slices that make up ``count`` points, none with more of them than go through the model together."""
        size = self.at_once or max(count, 1)
        return [slice(first, min(first + size, count)) for first in range(0, max(count, 1), size)]


def toward(model: Model, label: Tensor) -> Objective:
    """Raise the confidence in ``label``; points count once the model assigns them to it (Eq. 2 and 4)."""
    return Objective(model, _directed, (label, torch.full_like(label, -1)))


def away_from(model: Model, label: Tensor) -> Objective:
    """Lower the confidence in ``label``; every point counts (Eq. 3 and 5)."""
    return Objective(model, _directed, (label, torch.ones_like(label)))


def favour(model: Model, label: Tensor) -> Objective:
    """Raise the confidence in ``label``; every point counts."""
    return opposite(away_from(model, label))


def margin(model: Model, label: Tensor) -> Objective:
    """Lower the lead of ``label`` over the best other class; every point counts."""
    return Objective(model, _margin, (label,))


def last_place(model: Model, label: Tensor) -> Objective:
    """Push ``label`` below every other class, out of any list of likely classes; every point counts."""
    return Objective(model, _last_place, (label,))


def dlr(model: Model, label: Tensor) -> Objective:
    r"""Lower the difference of logits ratio, :math:`(z_y - \max_{j \ne y} z_j) / (z_{\pi_1} - z_{\pi_3})`; every point counts.

    The ratio does not change when all logits are scaled. Reference: Croce and Hein, ICML 2020.
    """
    return Objective(model, _dlr, (label,))


def dlr_toward(model: Model, label: Tensor, target: Tensor) -> Objective:
    r"""As :func:`dlr` with one rival, :math:`(z_y - z_t) / (z_{\pi_1} - (z_{\pi_3} + z_{\pi_4}) / 2)`."""
    return Objective(model, _dlr_toward, (label, target))


def confident_elsewhere(model: Model, label: Tensor, confidence: float | Tensor) -> Objective:
    r"""Reach another class than ``label`` with at least this confidence (Eq. 1).

    The value :math:`\max(o_y, \operatorname{logit} c) - \max_{j \ne y} o_j` is at most 0 exactly on that set, ties aside.
    ``confidence=0`` asks for any other class, the plain Fast Minimum-Norm attack.
    """
    threshold = torch.as_tensor(confidence, dtype=torch.float64, device=label.device).logit().expand(len(label))
    return elsewhere_at(model, label, threshold)


def elsewhere_at(model: Model, label: Tensor, threshold: Tensor) -> Objective:
    """:func:`confident_elsewhere` with the confidence in log-odds (N,), which does not saturate."""
    return Objective(model, _elsewhere, (label, threshold))


def opposite(objective: Objective) -> Objective:
    """The same value to be maximised; every point counts."""

    def measure(logits: Tensor, *given: Tensor) -> Score:
        score = objective.measure(logits, *given)
        return Score(-score.value, torch.ones_like(score.admitted), score.log_weight)

    return replace(objective, measure=measure)


def _directed(logits: Tensor, label: Tensor, direction: Tensor) -> Score:
    """One measure for both ways, so that searches towards and away from classes can share a batch."""
    odds = log_odds(logits, label)
    return Score(direction * odds, (direction > 0) | (logits.argmax(1) == label), logsigmoid(-odds))


def _elsewhere(logits: Tensor, label: Tensor, threshold: Tensor) -> Score:
    rival = 1 - label if logits.shape[1] == 2 else logits.scatter(1, label[:, None], -torch.inf).argmax(1)
    value = torch.maximum(log_odds(logits, label), threshold.to(logits.dtype)) - log_odds(logits, rival)
    return Score(value, (value <= 0) & (logits.argmax(1) != label), torch.zeros_like(value))


def _of(logits: Tensor, label: Tensor) -> Tensor:
    return logits.gather(1, label[:, None])[:, 0]


def _lead(logits: Tensor, label: Tensor) -> Tensor:
    return _of(logits, label) - logits.scatter(1, label[:, None], -torch.inf).amax(1)


def _margin(logits: Tensor, label: Tensor) -> Score:
    return every_point(_lead(logits, label))


def _last_place(logits: Tensor, label: Tensor) -> Score:
    return every_point(_of(logits, label) - logits.scatter(1, label[:, None], torch.inf).amin(1))


def _dlr(logits: Tensor, label: Tensor) -> Score:
    top = _highest(logits, 3)
    return every_point(_lead(logits, label) / (top[:, 0] - top[:, 2] + TINY))


def _dlr_toward(logits: Tensor, label: Tensor, target: Tensor) -> Score:
    top = _highest(logits, 4)
    return every_point((_of(logits, label) - _of(logits, target)) / (top[:, 0] - (top[:, 2] + top[:, 3]) / 2 + TINY))


def _highest(logits: Tensor, count: int) -> Tensor:
    """The highest logits, highest first."""
    given = logits.shape[1]
    require(given >= count, "model", f"have at least {count} classes for this loss", given, "away_from works with any number")
    return logits.topk(count).values
