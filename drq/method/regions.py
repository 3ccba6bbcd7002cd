"""The decision regions around a block of samples: explored and quantified, in the order of the paper.

The method is written as generators, which yield search problems and receive their solutions: :func:`one_by_one` solves them one
after the other, :mod:`drq.engine.slots` those of several blocks together. So the method is written once, for both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import pairwise, repeat
from typing import Literal, TypeVar

import torch
from torch import Tensor

from drq.decision import Block, Candidates
from drq.method.calibration import Calibrated
from drq.method.execution import Execution
from drq.method.race import race
from drq.objectives import Model, away_from, log_odds, toward
from drq.rows import in_order
from drq.search.loop import Problems, Progress, Search, SearchResult

T = TypeVar("T")
Procedure = Generator[Problems, Progress, T]  # yields problems, receives them solved, and returns a T


def one_by_one(solve: Callable[[Problems], Progress], procedures: Iterable[Procedure[T]], _most: float = 1) -> Generator[T]:
    """Carry out one procedure after the other, however many might be under way at a time."""
    for procedure in procedures:
        try:
            problems = next(procedure)
            while True:
                problems = procedure.send(solve(problems))
        except StopIteration as stop:
            yield stop.value


@dataclass(frozen=True)
class Regions:
    """Finds the regions of the classes around samples; the arguments are those of :class:`drq.DRQ`."""

    execution: Execution
    radius: Tensor | Calibrated  # (N,) of exploration, or how it is calibrated
    alpha: float
    explore: Search
    quantify: Search
    classes: int | None
    explore_base: bool
    prune: Literal["none", "exact", "race"]
    points: bool  # whether blocks keep the points that were found
    views: Sequence[Callable[[Tensor], Tensor]] | None = None  # around which it explores, x itself first; None for x alone

    def blocks(self, x: Tensor, carried_out: Callable[..., Generator[Block]]) -> Generator[Block]:
        """All samples, block by block; ``carried_out`` solves what procedures yield, at most so many of them at a time."""
        problems = (self.classes or self.execution.classes) * len(self.views or [None])
        rows = max(1, self.execution.together * self.execution.chunk // problems)
        radii = repeat(None) if isinstance(self.radius, Calibrated) else torch.split(self.radius, rows)
        blocks = carried_out(self.search(*each) for each in zip(torch.split(x, rows), radii, strict=False))
        if self.execution.rounding:  # all of them first, so that the near ties of all are searched together
            with closing(blocks):
                settled = [self.settle(block) for block in blocks]
            blocks = carried_out(settled, math.inf)
        with closing(blocks):
            yield from blocks

    def search(self, x: Tensor, radius: Tensor | None) -> Procedure[Block]:
        """Calibration (where there is no ``radius``), exploration and quantification for a block of samples."""
        with torch.no_grad():
            logits = self.execution.logits(x)
        near, classes = self.execution.near(logits), self._classes(logits)
        if self.execution.meter is not None:
            self.execution.meter.count(len(x))
        once = torch.ones_like(classes[:, 0])
        spent = _Spent(once, once, torch.zeros_like(once))
        if radius is None:
            assert isinstance(self.radius, Calibrated)
            calibration = (yield self.radius.problems(self.execution, x.detach(), logits)).best  # Eq. 1
            radius = calibration.merit
            spent.add(torch.arange(len(x), device=x.device), calibration)

        samples, searched = _Samples(x, logits, radius, near, spent), self.execution.searched
        around = samples if self.views is None else self._at_views(samples, self.views)
        known = classes.repeat(len(around.x) // max(1, len(x)), 1)
        sample, rank = (around.radius < torch.inf)[:, None].expand(known.shape).nonzero(as_tuple=True)
        self._spare((known.numel() - len(sample)) * (self.explore.passes + self.quantify.passes))
        candidates, dropped = yield from self._explored(around, searched, sample, known[sample, rank], self.prune)
        if self.views is not None:
            candidates, dropped = _best_views(candidates, dropped, len(x))
            spent.add_views(around.spent)
        quantified, complete = yield from self._quantified(samples, searched, candidates)
        cost = (spent.passes, spent.forward_passes, spent.stalled)
        block = Block(x, logits, classes, radius, *cost, candidates, quantified, complete, dropped, self.execution.space.norm)
        return block if self.points else block.without_points()

    def _at_views(self, samples: _Samples, views: Sequence[Callable[[Tensor], Tensor]]) -> _Samples:
        """The views of a block of samples, one view of all samples after the other, as samples of their own."""
        clip, count = self.execution.space.ball, len(samples.x)
        nowhere = torch.zeros_like(samples.radius)
        others = [clip(seen, nowhere).clip(seen) for seen in (view(samples.x) for view in views[1:])]
        with torch.no_grad():
            logits = [self.execution.logits(each.detach()) for each in others]
        zero = torch.zeros(count * len(views), dtype=torch.long, device=samples.x.device)
        looked = zero.index_fill(0, torch.arange(count, len(zero), device=zero.device), 1)
        near, radius = samples.near.repeat(len(views)), samples.radius.repeat(len(views))
        spent = _Spent(looked, looked, zero)
        return _Samples(torch.cat([samples.x, *others]), torch.cat([samples.logits, *logits]), radius, near, spent)

    def settle(self, block: Block) -> Procedure[Block]:
        """Search the first classes of near ties again, in the precision of x: rounding shall not decide between them."""
        candidates, unknown = block.candidates, torch.full_like(block.logits, -torch.inf)
        odds = candidates.table(torch.where(block.complete, block.quantified.value.detach(), -torch.inf), unknown)
        close = odds >= odds.amax(1, keepdim=True) - self.execution.near(block.logits)[:, None]
        tied = (close & (close.sum(1, keepdim=True) > 1))[candidates.sample, candidates.label] & block.complete
        if not tied.any():
            return block
        pairs, spent = candidates[tied], _Spent(block.passes, block.forward_passes, block.stalled)
        if self.execution.meter is not None:
            self.execution.meter.expect(len(pairs.label) * (self.explore.passes + self.quantify.passes))
        x = block.x.contiguous(memory_format=self.execution.exact_layout)
        samples = _Samples(x, block.logits, block.radius, self.execution.near(block.logits), spent)
        again, _ = yield from self._explored(samples, self.execution.exact, pairs.sample, pairs.label, "none")
        least = yield from self._least(samples, self.execution.exact, again, slice(None))
        part = replace(block, candidates=again, quantified=least, complete=torch.ones_like(again.label, dtype=torch.bool))
        part = part if self.points else part.without_points()
        return replace(
            block,
            passes=spent.passes,
            forward_passes=spent.forward_passes,
            stalled=spent.stalled,
            candidates=candidates[~tied].joined([part.candidates]),
            quantified=block.quantified[~tied].joined([part.quantified]),
            complete=torch.cat([block.complete[~tied], part.complete]),
        )

    def _classes(self, logits: Tensor) -> Tensor:
        """(N, K) the classes that are searched."""
        if self.classes is None:
            return torch.arange(logits.shape[1], device=logits.device).expand(len(logits), -1)
        return logits.argsort(dim=1, descending=True, stable=True)[:, : self.classes]  # ties as for the base label

    def _explored(
        self, samples: _Samples, model: Model, sample: Tensor, label: Tensor, prune: str
    ) -> Procedure[tuple[Candidates, Tensor]]:
        """The most confident point of every class that was reached, and the classes (N, C) that a race dropped."""
        is_base = label == samples.logits.argmax(1)[sample]
        at_x = is_base & (not self.explore_base)
        ball = self.execution.space.ball(samples.x[sample], torch.where(at_x, 0, samples.radius[sample]))
        problems = Problems.new(self.explore, toward(model, label), ball)  # Eq. 2 and 4
        if prune == "race":
            best, finished = yield from race(problems, sample, label, log_odds(samples.logits), self._spare)
        else:
            best = (yield problems).best
            finished = torch.ones_like(label, dtype=torch.bool)
        # The base label is reached at x itself, even where the searched model, rounding, says otherwise.
        odds = torch.where(best.admitted, -best.value.detach(), log_odds(samples.logits)[sample, label])
        reached = Candidates(sample, label, best.point, odds)[(best.admitted | is_base) & finished]
        samples.spent.add(sample, best)
        self._spare((len(sample) - len(reached.label)) * self.quantify.passes)
        return reached, torch.zeros_like(samples.logits, dtype=torch.bool).index_put((sample, label), ~finished)

    def _quantified(self, samples: _Samples, model: Model, candidates: Candidates) -> Procedure[tuple[SearchResult, Tensor]]:
        """The least confident point around every candidate, and whether its search was finished rather than pruned.

        Candidates are searched in the order of their explored confidence, first two of a sample, then two, four, eight, ...: what
        is, or falls, below the second best so far can neither win nor come second. Where so few rows take no longer than fewer,
        all are searched at once, and the same ones count as finished.
        """
        everything = torch.ones_like(candidates.label, dtype=torch.bool)
        at_once = None
        if self.prune == "none" or len(everything) <= self.execution.spare:
            at_once = yield from self._least(samples, model, candidates, slice(None))
        if self.prune == "none":
            assert at_once is not None
            return at_once, everything
        unknown = torch.full_like(samples.logits, -torch.inf)
        rank, here = candidates.ranks(unknown), candidates.sample
        values, bar, finished = unknown, unknown[:, 0], ~everything
        parts: list[tuple[Tensor, SearchResult]] = []
        for first, last in _rounds(unknown.shape[1]):
            pending = ((rank >= first) & (rank < last) & (candidates.log_odds >= bar[here])).nonzero()[:, 0]
            if not len(pending):
                break
            stop_below = bar[here[pending]] if first else None
            if at_once is None:
                least = yield from self._least(samples, model, candidates, pending, stop_below)
            else:
                least = at_once[pending]
            finished = finished.index_put((pending,), least.value >= bar[here[pending]])
            values = values.index_put((here[pending], candidates.label[pending]), least.value.detach())
            bar = values.topk(2).values[:, 1] - samples.near
            parts.append((pending, least))
        never = everything
        for searched, _ in parts:
            never = never.index_fill(0, searched, False)
        parts.append((never.nonzero()[:, 0], SearchResult.empty(candidates.point[never])))
        if at_once is None:
            self._spare(len(parts[-1][0]) * self.quantify.passes)
        return in_order(*zip(*parts, strict=True)), finished

    def _least(
        self,
        samples: _Samples,
        model: Model,
        candidates: Candidates,
        rows: Tensor | slice,
        stop_below: Tensor | None = None,
    ) -> Procedure[SearchResult]:
        """The least confident point around each of these candidates."""
        candidates = candidates[rows]
        ball = self.execution.space.ball(candidates.point, self.alpha * samples.radius[candidates.sample])
        problems = Problems.new(self.quantify, away_from(model, candidates.label), ball, stop_below=stop_below)  # Eq. 3 and 5
        least = (yield problems).best
        samples.spent.add(candidates.sample, least)
        if stop_below is not None:
            self._spare(len(candidates.label) * self.quantify.passes - least.passes.sum())
        # The start was scored before, perhaps in another batch: rounding must not lift robustness above that.
        return replace(least, value=torch.minimum(least.value, candidates.log_odds))

    def _spare(self, passes: int | Tensor) -> None:
        """So many evaluations of the model were expected, and turned out not to be needed."""
        if self.execution.meter is not None:
            self.execution.meter.spare(int(passes))


def _rounds(classes: int) -> list[tuple[int, int]]:
    """Ranks of explored confidence that are quantified together."""
    ends = [0, 2]
    while ends[-1] < classes:
        ends.append(2 * ends[-1])
    return list(pairwise(ends))


def _best_views(candidates: Candidates, dropped: Tensor, count: int) -> tuple[Candidates, Tensor]:
    """Of every class of ``count`` samples the candidate of the view at which it is best, the first of equals."""
    view, sample = candidates.sample // count, candidates.sample % count
    odds = candidates.table(candidates.log_odds, candidates.log_odds.new_full(dropped.shape, -torch.inf))
    odds = odds.view(-1, count, dropped.shape[1])
    first = (odds == odds.amax(0)).int().argmax(0)
    chosen = first[sample, candidates.label] == view
    best = replace(candidates, sample=sample, view=view)[chosen]
    return best, dropped.view(odds.shape).any(0)


@dataclass
class _Spent:
    """What the searches of a block cost so far."""

    passes: Tensor  # (N,)
    forward_passes: Tensor  # (N,)
    stalled: Tensor  # (N,)

    def add_views(self, other: _Spent) -> None:
        """What the views of the samples cost, one view of all samples after the other."""
        for name in ("passes", "forward_passes", "stalled"):
            each = getattr(other, name).view(-1, len(self.passes)).sum(0)
            setattr(self, name, getattr(self, name) + each)

    def add(self, sample: Tensor, result: SearchResult) -> None:
        self.passes = self.passes.index_add(0, sample, result.passes)
        self.forward_passes = self.forward_passes.index_add(0, sample, result.forward_passes)
        self.stalled = self.stalled.index_add(0, sample, result.stalled)


@dataclass(frozen=True)
class _Samples:
    """A block of samples, and what is known before their regions are explored."""

    x: Tensor
    logits: Tensor
    radius: Tensor
    near: Tensor  # how far apart log-odds may be that rounding cannot tell apart
    spent: _Spent
