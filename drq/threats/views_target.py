"""Define DRQ over views as the target of attacks, which follow the maximum over views, its standardisation and the gate."""

from __future__ import annotations

import torch
from torch import Tensor

from drq.drq import DRQ
from drq.objectives import Model, Objective, Score, every_point, log_odds
from drq.search.loop import recompute
from drq.threats.drq_target import DRQTarget
from drq.views.view import neighbours

LARGE = 1e6  # log-odds beyond all that there are: infinite thresholds would have slopes that are not numbers


class ViewsTarget(DRQTarget):
    """A DRQ that looks at views alone: all that decides is differentiable, but for which view speaks and whether the gate holds.

    Attackers are told on either side of the gate how far the answer is from another one, see :func:`nearest_lead`; with
    ``softness`` through all views together, and of a single view what the model says there.
    """

    over_views = True

    def versions(self, *steps: int) -> list[DRQ]:
        """Return versions for reading scores; shortened ones have an open gate, since a kept answer hides what views say."""
        return [self.followed.shortened(each) for each in steps] or [self.defence]

    def contest(self, y: Tensor, rival: Tensor, radius: Tensor, *steps: int, softness: float = 0.0) -> Objective:
        """Return the objective that brings the true class below one rival, on the side of the gate that is nearer."""
        model = self.searched()

        def measure(point: Tensor, label: Tensor, rival: Tensor) -> Score:
            return every_point(nearest_lead(self.followed, model, point, label, rival, softness))

        return Objective(lambda point: point, measure, (y, rival))

    def at_view(self, number: Tensor, y: Tensor) -> Objective:
        """Return the objective that raises the best wrong class at one view of every sample, wherever the true class is."""

        def measure(point: Tensor, number: Tensor, label: Tensor) -> Score:
            return every_point(-self.wrong_at(point, number, label).amax(1))

        return Objective(lambda point: point, measure, (number, y))

    def wrong_at(self, x: Tensor, number: Tensor, y: Tensor) -> Tensor:
        """(N, C) log-odds at the view with its ``number`` (N,) of every sample, minus infinity for the true class."""
        odds = odds_at(self.followed, self.searched(), self.followed.after_front(x), number)
        return odds.scatter(1, y[:, None], -torch.inf)

    def wrong_at_views(self, x: Tensor, y: Tensor) -> Tensor:
        """(N, V, C) the same at all views."""
        assert self.defence.views is not None
        each = range(len(self.defence.views))
        return torch.stack([self.wrong_at(x, torch.full_like(y, number), y) for number in each], 1)

    def lead(self, x: Tensor, y: Tensor, rival: Tensor) -> Tensor:
        """(N,) what :meth:`contest` lowers."""
        return nearest_lead(self.followed, self.searched(), x, y, rival)

    def scores_cost(self, x: Tensor, *steps: int) -> int:
        return sum(1 + 2 * each.most_passes(self._classes(x)) for each in self.versions(*steps))

    def contest_cost(self, x: Tensor, *steps: int) -> int:
        return 2 * self.query_cost(x)

    def query_cost(self, x: Tensor) -> int:
        """Return the most passes of evaluating that objective without a gradient."""
        return self.defence.most_passes(self._classes(x))


def odds_at(robust: DRQ, model: Model, x: Tensor, number: Tensor) -> Tensor:
    """(N, C) log-odds at the view with its ``number`` (N,) of every sample behind a front, far below all others if not finite.

    Where a view is cut to the bounds of inputs, slopes go through as if it were not: what was cut has none.
    """
    assert robust.views is not None
    seen, inside = robust.views.of(x, number), robust.views.of(x.detach(), number, robust.bounds)
    logits = model(inside + (seen - seen.detach()))
    finite = logits.isfinite().all(1, keepdim=True)
    return torch.where(finite, log_odds(torch.where(finite, logits, 0)), -LARGE)


def nearest_lead(robust: DRQ, model: Model, x: Tensor, label: Tensor, rival: Tensor, softness: float = 0.0) -> Tensor:
    """(N,) how far DRQ over views is from answering ``rival`` in place of ``label``; below 0 it may answer so.

    Where the label is the own answer, the rival's best view has to lead the label's, and the own answer by more than the
    threshold of the gate; where the rival is, the label's best view must not do so. The nearer of both ways counts. With two
    classes its sign tells the answer exactly, unless soft.

    Views are looked at one after the other, and again in the backward pass, so that memory is that of one.

    The best view may lead nowhere where another would: with ``softness``, views count that are behind it by so many log-odds, and
    the farther way. 0 is what DRQ does.
    """
    x = robust.after_front(x)
    assert robust.views is not None

    def pair(x: Tensor, number: int) -> Tensor:
        odds = odds_at(robust, model, x, torch.full_like(label, number))
        return torch.stack([odds.gather(1, each[:, None])[:, 0] for each in (label, rival)], 1)

    again = torch.is_grad_enabled() and x.requires_grad
    odds = torch.stack([recompute(pair, x, each) if again else pair(x, each) for each in range(len(robust.views))], 1)
    own, other = odds[:, 0].unbind(1)
    near = neighbours(robust.views, robust.alpha).to(x.device) if robust.alpha else None

    def counted(base: Tensor) -> tuple[Tensor, Tensor]:
        """(N,) what both count by, from a base label with this confidence at the input."""
        leads = odds if robust.gate is None else robust.gate.standardised(odds, base)
        first, second = (_softest(leads, softness) if softness else _lowest(leads, odds > -LARGE, near)).unbind(1)
        return first, second

    threshold, ahead = (-LARGE, LARGE) if robust.gate is None else (_finite(robust.gate.threshold), _finite(robust.gate.ahead))
    if robust.prune != "race":
        ahead = LARGE
    first, second = counted(own)
    through_views = torch.maximum(torch.maximum(first, own + threshold) - second, own - ahead)
    first, second = counted(other)
    not_through = torch.minimum(torch.minimum(first - second, first - other - threshold), ahead - other)
    ways = torch.stack([torch.maximum(through_views, other - own), torch.maximum(own - other, not_through)], 1)
    return -_softest(-ways, softness) if softness else ways.amin(1)


def _softest(values: Tensor, softness: float) -> Tensor:
    """The highest of values along dimension 1, with a slope in all that are not far below it."""
    return softness * (values / softness).logsumexp(1)


def _lowest(odds: Tensor, present: Tensor, near: Tensor | None) -> Tensor:
    """(N, 2) of log-odds (N, V, 2) at views the highest, or the lowest at those ``present`` views that are near that one."""
    highest = odds.amax(1)
    if near is None:
        return highest
    first = (odds == highest[:, None]).int().argmax(1)  # of equals
    taking_part = near[first].transpose(1, 2) & present
    return odds.masked_fill(~taking_part, torch.inf).amin(1)


def _finite(value: float) -> float:
    return max(-LARGE, min(LARGE, value))
