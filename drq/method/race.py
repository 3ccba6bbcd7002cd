"""The race of classes: those that fall behind early in exploration are dropped.

Not provable, unlike exact pruning: a class may be slow at first. docs/speed.md has how often the answer stays the same.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

import torch
from torch import Tensor

from drq.rows import in_order
from drq.search.loop import Problems, Progress, SearchResult

BEHIND = 4.0  # typical gains of one step; a class this far behind the first is dropped
ALWAYS, OFTEN = 2, 4  # so many classes are never dropped; so many may stay, however many fall behind


def heats(steps: int) -> list[range]:
    """The observations of exploration in groups; classes are dropped after 2, 4, 8, ... observations of its first half.

    >>> heats(20)
    [range(0, 2), range(2, 4), range(4, 8), range(8, 21)]
    """
    ends = [0]
    while (end := 2 ** len(ends)) <= steps / 2:
        ends.append(end)
    return [range(*pair) for pair in zip(ends, [*ends[1:], steps + 1], strict=True)]


def race(
    problems: Problems, sample: Tensor, label: Tensor, start: Tensor, spare: Callable[[int], None]
) -> Generator[Problems, Progress, tuple[SearchResult, Tensor]]:
    """Explore the classes of every sample, and drop those that fall behind.

    Args:
        problems: one for each pair of sample and class.
        sample: (R,) the sample of each problem.
        label: (R,) the class of each problem.
        start: (N, C) log-odds at the samples themselves.
        spare: is told the passes of the model that classes which are dropped will not take.

    Returns:
        best: the result of each search at its end, or when it was dropped.
        finished: (R,) bool.
    """
    rows = torch.arange(len(problems), device=sample.device)
    dropped: list[tuple[Tensor, Progress]] = []
    *early, last = heats(problems.method.steps)
    for observations in early:
        progress = yield problems.limited_to(observations)
        odds = torch.full_like(start, -torch.inf).index_put((sample, label), -progress.best.lowest)
        stay = _in_the_race(odds, (odds - start) / (observations.stop - 1))[sample, label]
        dropped.append((rows[~stay], progress[~stay]))
        spare(len(dropped[-1][0]) * problems.method.passes_of(range(observations.stop, last.stop)))
        rows, sample, label, problems = rows[stay], sample[stay], label[stay], problems.continued_from(progress)[stay]
    progress = yield problems.limited_to(last)
    best = in_order(*zip(*dropped, (rows, progress), strict=True)).best
    finished = torch.zeros_like(best.passes, dtype=torch.bool).index_fill(0, rows, True)
    return best, finished


def _in_the_race(odds: Tensor, gain: Tensor) -> Tensor:
    """Which classes go on (N, C): the first few, and half of those that are not too far behind."""
    running = odds > -torch.inf
    typical = gain.masked_fill(~running, torch.nan).nanmedian(1, keepdim=True).values.clamp(min=0)
    rank = odds.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    places = ((running.sum(1, keepdim=True) + 1) // 2).clamp(min=OFTEN)
    near = odds >= odds.amax(1, keepdim=True) - BEHIND * typical
    return running & ((rank < ALWAYS) | (near & (rank < places)))
