"""A decision as scores: (N, C) log-robustness, finite, differentiable, with the label as its argmax."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from drq.decision import Block, Decision, conclude
from drq.method.execution import Execution
from drq.objectives import log_odds
from drq.rows import per_row
from drq.search.loop import recompute

REACHED_FLOOR, UNREACHED = -9e3, -1e4  # log-robustness is finite, and a class that was reached is above all that were not


def log_robustness(
    execution: Execution, block: Block, samples: int, gated: Callable[[Decision], Decision] | None = None
) -> tuple[Tensor, Tensor]:
    """(N, C) scores of a block from a batch of so many ``samples``, and (N,) passes, those for the scores included.

    ``gated`` tells where the answer of the model alone stands, and with it its own scores.
    """
    with torch.no_grad():
        decision = conclude(block)
    alone_at = ~decision.found if gated is None else ~decision.found | gated(decision).kept
    candidates, passes = block.candidates, block.passes + alone_at
    crowded = samples * block.classes.shape[1] > execution.chunk
    if torch.is_grad_enabled():
        odds = _attached_log_odds(execution, block, crowded)
        passes = passes + candidates.sample.bincount(minlength=len(passes))
    else:
        odds = block.log_odds
    # The explored confidence of a class that was pruned may exceed that of the winner: the runner-up bounds it too.
    table = candidates.table(odds, torch.full_like(block.logits, -torch.inf))
    runner_up = table.gather(1, decision.runner_up.clamp(min=0)[:, None])[candidates.sample, 0]
    odds = torch.where(block.complete, odds, torch.minimum(odds, runner_up))
    scores = candidates.table(log_confidence(odds), torch.full_like(block.logits, UNREACHED))
    lost = alone_at.nonzero()[:, 0]
    if not len(lost):
        return scores, passes
    alone = execution.exact(block.x[lost]).log_softmax(1).clamp(min=REACHED_FLOOR)
    return scores.index_put((lost,), alone), passes


def scores_of(odds: Tensor, log_sigmoid: Callable[[Tensor], Tensor] = logsigmoid) -> Tensor:
    """Scores of log-odds (N, C) that are minus infinity for classes that were not reached."""
    return torch.where(odds.detach() > -torch.inf, log_confidence(odds, log_sigmoid), UNREACHED)


def log_confidence(odds: Tensor, log_sigmoid: Callable[[Tensor], Tensor] = logsigmoid) -> Tensor:
    """Log f, bounded below; where it would round to 0 it still grows, by less than can be seen, so that its argmax is right."""
    limit = 80.0
    beyond = -math.exp(-limit) * limit / odds.clamp(min=limit)
    return torch.where(odds > limit, beyond, log_sigmoid(odds).clamp(min=REACHED_FLOOR))


def _attached_log_odds(execution: Execution, block: Block, crowded: bool) -> Tensor:
    """Log-odds at the last known point of every candidate, with its graph; recomputed when the batch does not fit at once."""
    last = torch.where(per_row(block.complete, block.x), block.quantified.point, block.candidates.point)
    labels = block.candidates.label

    def evaluate(point: Tensor, label: Tensor) -> Tensor:
        return log_odds(execution.exact(point), label)

    if not crowded:
        return evaluate(last, labels)
    return torch.cat([recompute(evaluate, last[rows], labels[rows]) for rows in execution.pieces(len(last))])
