"""Turn what a model says at views into answers: rules that could stand in DRQ's place, each behind a gate as DRQ's is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from drq.views.fitting import Fit, Leads
from drq.views.gate import Gate

Combine = Callable[[Tensor], Tensor]  # (N, V, C) log-odds at views, the input first, to (N, C) scores
TEMPERATURES = (0.5, 1.0, 2.0)


def best(odds: Tensor) -> Tensor:
    """Every class by its best view: DRQ's rule."""
    return odds.amax(1)


def best_two(odds: Tensor) -> Tensor:
    """Every class by the mean of its two best views: quantified, since another view has to agree."""
    return odds.topk(min(2, odds.shape[1]), 1).values.mean(1)


def soft(odds: Tensor, temperature: float) -> Tensor:
    """A soft maximum over views: at 1 it is the mean of the odds themselves."""
    return temperature * torch.logsumexp(odds / temperature, 1)


def mean_of_probabilities(odds: Tensor) -> Tensor:
    """What test-time augmentation does, as log-odds."""
    return odds.double().sigmoid().mean(1).clamp(1e-12, 1 - 1e-12).logit().float()


def mean_of_log_odds(odds: Tensor) -> Tensor:
    """A product of experts."""
    return odds.clamp(-12, 12).mean(1)


def votes(odds: Tensor) -> Tensor:
    """How many views answer with a class, ties decided by the mean of probabilities."""
    counts = torch.nn.functional.one_hot(odds.argmax(2), odds.shape[2]).sum(1)
    return counts + mean_of_probabilities(odds).sigmoid() / 2


def most_certain(odds: Tensor) -> Tensor:
    """The view of the lowest entropy alone."""
    shares = odds.sigmoid() / odds.sigmoid().sum(2, keepdim=True)
    at = torch.special.entr(shares).sum(2).argmin(1)
    return odds[torch.arange(len(odds)), at]


RULES: Mapping[str, Combine] = {
    "class maximum": best,
    "two best views": best_two,
    **{f"soft maximum, {each:g}": partial(soft, temperature=each) for each in TEMPERATURES},
    "mean of probabilities": mean_of_probabilities,
    "mean of log-odds": mean_of_log_odds,
    "votes": votes,
    "lowest entropy": most_certain,
}


def own_answers(odds: Tensor) -> tuple[Tensor, Tensor]:
    """Return the model's answers at the input (N,), and their log-odds there."""
    base = odds[:, 0].argmax(1)
    return base, odds[:, 0].gather(1, base[:, None])[:, 0]


def learnt(odds: Tensor, combine: Combine, leads: Leads, changes: float, term_of: tuple[int, ...]) -> Gate:
    """Return a gate learnt from what the model says at views of clean images.

    Args:
        odds: (N, V, C).
        combine: the rule.
        leads: how leads of views are compared, see :meth:`drq.DRQ.gated`.
        changes: the share of answers that may change.
        term_of: of every view but the input, the number of its term.
    """
    fit, (base, own) = Fit(changes, None, None), own_answers(odds)
    gate = Gate(0.0, *fit.compared(leads, odds, own, base, term_of))
    scores = combine(gate.standardised(odds, own))
    return replace(gate, threshold=fit.threshold(scores.amax(1) - own, base, scores.argmax(1)))


def answers(odds: Tensor, combine: Combine, gate: Gate) -> Tensor:
    """Return the answers (N,) of a rule behind a gate."""
    base, own = own_answers(odds)
    scores = combine(gate.standardised(odds, own))
    return torch.where(scores.amax(1) - own > gate.threshold, scores.argmax(1), base)
