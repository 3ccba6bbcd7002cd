"""Look at views of samples: forward passes of the model alone, as many rows together as fit, then the contest of classes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from drq.decision import Decision
from drq.errors import require
from drq.method.execution import Execution
from drq.method.scores import scores_of
from drq.norms import Bounds
from drq.objectives import Model, log_odds
from drq.rows import Rows
from drq.search.loop import recompute
from drq.views.contest import Near, Outcome, in_doubt, outcome, table
from drq.views.gate import Gate
from drq.views.view import Views, neighbourhoods

TABLE_BYTES = 2**28  # of the log-odds of a block of samples, at most


@dataclass(frozen=True, eq=False)
class Looks(Rows):
    """What a model says about views of N samples."""

    x: Tensor  # (N, ...)
    logits: Tensor  # (N, C) at the input itself
    classes: Tensor  # (N, K) that take part
    odds: Tensor  # (N, V, C)
    largest: Tensor  # (N,) the largest logit at any view, whatever its sign
    passes: Tensor  # (N,)
    nonfinite: Tensor  # (N,) views whose logits were not finite, which are left out


@dataclass(frozen=True)
class Looking:
    """DRQ over views, without a ball; the arguments are those of :class:`drq.DRQ`."""

    execution: Execution
    views: Views
    alpha: float
    gate: Gate | None
    classes: int | None
    early: bool  # whether views are left out where the own answer is as far ahead as the gate says
    points: bool

    def blocks(self, x: Tensor) -> Iterator[Looks]:
        """All views of all samples, block by block."""
        self.views.check(x)
        count, item = self.execution.classes, x.element_size()
        most = max(1, TABLE_BYTES // (len(self.views) * count * item))
        for rows in torch.split(x, min(most, self._rows)) if len(x) else [x]:
            yield self._seen(rows)
        if self.execution.meter is not None:
            self.execution.meter.end()

    @property
    def _rows(self) -> int:
        """How many rows go through the model together."""
        return self.execution.forward_rows or self.execution.chunk

    def decisions(self, x: Tensor) -> Iterator[Decision]:
        """What follows from them."""
        for looks in self.blocks(x):
            found = self.outcome(looks)
            yield self._decision(looks, found)

    def outcome(self, looks: Looks) -> Outcome:
        """Who wins."""
        return outcome(looks.odds, looks.logits, self.near, self.gate)

    @property
    def near(self) -> Near | None:
        """Of every view its neighbours; None where each stands for itself."""
        return neighbourhoods(self.views, self.alpha) if self.alpha else None

    def scores(self, x: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """(N, C) log-robustness and (N,) passes; where ``x`` asks for a gradient, through the view by which each class counts."""
        done = 0
        for looks in self.blocks(x.detach()):
            rows = slice(done, done := done + len(looks.x))
            found, passes = self.outcome(looks), looks.passes
            odds = found.log_odds
            if torch.is_grad_enabled() and x.requires_grad:
                odds, more = self._attached(x[rows], looks, found)
                passes = passes + more
            yield scores_of(odds), passes

    def _seen(self, x: Tensor) -> Looks:
        """The views of a block of samples: first the samples themselves, then their other views."""
        logits = self.execution.logits(x)
        classes = _likeliest(logits, self.classes or logits.shape[1])
        where = torch.arange(len(x), device=x.device)
        if self.gate is not None and self.gate.threshold == math.inf:
            where = where[:0]  # nothing can exceed it
        elif self.early and self.gate is not None:
            where = (log_odds(logits).amax(1) < self.gate.ahead).nonzero()[:, 0]
        if self.execution.meter is not None:
            self.execution.meter.count(len(x))
            self.execution.meter.spare((len(x) - len(where)) * (len(self.views) - 1))
        others = logits.new_full((len(x), len(self.views) - 1, logits.shape[1]), torch.nan)
        others[where] = self._others(x[where], self.execution.searched)
        looks = self._looks(x, logits, classes, others, where)
        return self._settled(looks, where) if self.execution.rounding else looks

    def _others(self, x: Tensor, model: Model) -> Tensor:
        """(N, V - 1, C) the logits at all views but the input, several views in a batch where samples are few."""
        parts = []
        together = max(1, self._rows // max(1, len(x)))
        for first in range(1, len(self.views), together):
            seen = [self._view(x, number) for number in range(first, min(first + together, len(self.views)))]
            logits = model(torch.cat(seen)) if len(x) else x.new_zeros(0, self.execution.classes)
            rule = "return one row of logits for each sample"
            rows = len(seen) * len(x)
            fits = logits.shape == (rows, self.execution.classes)
            require(fits, "model", rule, f"shape {tuple(logits.shape)} for {rows}", "check what its forward pass averages")
            parts.append(logits.view(len(seen), len(x), self.execution.classes))
            if self.execution.meter is not None:
                self.execution.meter.count(rows)
        return torch.cat(parts).transpose(0, 1)

    def _view(self, x: Tensor, number: int) -> Tensor:
        """One view of samples, laid out in memory as they are, inside their bounds."""
        seen = self.views[number].inside(x, self.execution.space.bounds)
        last = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
        return seen.contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)

    def _looks(self, x: Tensor, logits: Tensor, classes: Tensor, others: Tensor, where: Tensor) -> Looks:
        whole = torch.cat([logits[:, None], others], 1)
        odds = table(whole, None if self.classes is None else classes)
        passes = torch.ones_like(classes[:, 0]).index_fill(0, where, len(self.views))
        left_out = (odds.amax(2) == -torch.inf).sum(1) - (len(self.views) - passes)
        largest = torch.where(whole.isfinite(), whole.abs(), 0).amax((1, 2))
        return Looks(x, logits, classes, odds, largest, passes, left_out)

    def _settled(self, looks: Looks, where: Tensor) -> Looks:
        """The same with samples looked at again in the precision of x where rounding may have decided."""
        doubt = in_doubt(looks.odds, looks.logits, self.near, self.gate, self.execution.rounding * looks.largest)
        again = where[(doubt | (looks.nonfinite > 0))[where]]
        if not len(again):
            return looks
        if self.execution.meter is not None:
            self.execution.meter.expect(len(again) * len(self.views))
            self.execution.meter.count(len(again))
        exact, x = self.execution.exact, looks.x[again].contiguous(memory_format=self.execution.exact_layout)
        sure = self._looks(x, exact(x), looks.classes[again], self._others(x, exact), torch.arange(len(again), device=x.device))
        settled = {
            name: getattr(looks, name).index_put((again,), getattr(sure, name)) for name in ("logits", "odds", "nonfinite")
        }
        return replace(looks, **settled, passes=looks.passes.index_add(0, again, sure.passes))

    def _decision(self, looks: Looks, found: Outcome) -> Decision:
        base = looks.logits.argmax(1)
        taking_part = torch.zeros_like(found.log_odds, dtype=torch.bool).scatter(1, looks.classes, True)
        nothing = torch.zeros_like(found.margin)
        label_at = found.explored_at.gather(1, found.label[:, None])[:, 0]
        explored, quantified = self._points(looks, found) if self.points else (None, None)
        return Decision(
            label=found.label,
            base_label=base,
            robustness=found.log_odds.sigmoid(),
            reached=taking_part | found.kept[:, None],
            radius=nothing,
            classes=looks.classes,
            exact=torch.ones_like(taking_part),
            found=torch.ones_like(found.kept),
            passes=looks.passes,
            forward_passes=looks.passes,
            margin=found.margin,
            log_odds=found.log_odds,
            explored_log_odds=found.explored_log_odds,
            base_log_odds=log_odds(looks.logits),
            stalled=torch.zeros_like(base),
            view=label_at,
            kept=found.kept,
            gate_margin=nothing + torch.nan if self.gate is None else found.evidence - self.gate.threshold,
            nonfinite=looks.nonfinite,
            explored=explored,
            quantified=quantified,
            x=looks.x if self.points else None,
            norm=self.execution.space.norm if self.points else None,
        )

    def _points(self, looks: Looks, found: Outcome) -> tuple[Tensor, Tensor]:
        """(N, K, ...) the view at which each class is best, and the one by which it counts."""
        each = [at.gather(1, looks.classes) for at in (found.explored_at, found.quantified_at)]
        count = looks.classes.shape[1]
        x = looks.x.repeat_interleave(count, 0)
        first, second = (self.views.of(x, at.flatten(), self.execution.space.bounds).view(-1, count, *x.shape[1:]) for at in each)
        return first, second

    def _attached(self, x: Tensor, looks: Looks, found: Outcome) -> tuple[Tensor, Tensor]:
        """(N, C) the log-odds by which classes count with their graph, and (N,) the passes that it took."""
        at = found.quantified_at
        wanted = torch.zeros(looks.odds.shape[:2], dtype=torch.bool, device=x.device).scatter(1, at, True)
        wanted[:, 0] = True  # own answers there are what leads are measured from
        sample, view = wanted.nonzero(as_tuple=True)
        place = wanted.flatten().cumsum(0).view(wanted.shape) - 1

        def evaluate(rows: Tensor, number: Tensor) -> Tensor:
            return log_odds(self.execution.exact(self.views.of(rows, number, self.execution.space.bounds)))

        pieces = self.execution.pieces(len(sample))
        if len(pieces) == 1:
            odds = evaluate(x[sample], view)
        else:
            odds = torch.cat([recompute(evaluate, x[sample[rows]], view[rows]) for rows in pieces])
        chosen = odds[place.gather(1, at), torch.arange(odds.shape[1], device=x.device)]
        if self.gate is not None and self.gate.mean:
            base = looks.logits.argmax(1)
            own = odds[place[:, 0], base][:, None]
            mean, deviation = chosen.new_tensor([0.0, *self.gate.mean]), chosen.new_tensor([1.0, *self.gate.deviation])
            leads = own + (chosen - own - mean[at]) / deviation[at]
            chosen = torch.where(found.kept[:, None] | (at == 0), chosen, leads)
        counted = torch.where(found.log_odds > -torch.inf, chosen, -torch.inf)
        return counted, wanted.sum(1)


def _likeliest(logits: Tensor, count: int) -> Tensor:
    """(N, K) the classes with the highest logits, ties as for the base label; all in their order where all are wanted."""
    if count == logits.shape[1]:
        return torch.arange(count, device=logits.device).expand(len(logits), -1)
    return logits.argsort(dim=1, descending=True, stable=True)[:, :count]


def check_views(
    views: Views | None, gate: Gate | None, bounds: Bounds | None, frozen: Tensor | None, ball: bool, lower: bool
) -> None:
    """Views, gate and the other settings of a DRQ fit together: whether a ``ball`` is searched, and in ``lower`` precision."""
    known = gate is None or isinstance(gate, Gate)
    require(known, "gate", "be a drq.views.Gate or None", repr(gate), "robust.gated(x) learns one")
    count = 1 if views is None else len(views)
    if gate is not None:
        gate.check(1 if ball else count)
    if views is None:
        return
    require(frozen is None, "frozen", "be None with views, which change all features", "a mask", "leave out one of the two")
    fits, remedy = not (ball and lower), "leave out radius or precision"
    require(fits, "precision", "be float32 where a ball is searched around views", "a lower one", remedy)
    unit = [str(each) for each in views.families if each.unit_range]
    low, high = (-math.inf, math.inf) if bounds is None else bounds
    inside = bool(torch.as_tensor(low).min() >= 0) and bool(torch.as_tensor(high).max() <= 1)
    require(
        inside or not unit, "bounds", f"lie in [0, 1] for {', '.join(unit)}", bounds, "scale inputs, or leave these views out"
    )
