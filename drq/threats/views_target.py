"""Define DRQ over views as the target of attacks, which follow the maximum over views, its standardisation and the gate."""

from __future__ import annotations

import torch
from torch import Tensor

from drq.drq import DRQ
from drq.objectives import Model, Objective, Score, every_point, log_odds
from drq.search.loop import recompute
from drq.threats.drq_target import DRQTarget

LARGE = 1e6  # log-odds beyond all that there are: infinite thresholds would have slopes that are not numbers


class ViewsTarget(DRQTarget):
    """A DRQ that looks at views alone: all that decides is differentiable, but for which view speaks and whether the gate holds.

    Attackers are told on either side of the gate how far the answer is from another one, see :func:`nearest_lead`.
    """

    over_views = True

    def versions(self, *steps: int) -> list[DRQ]:
        """Return versions for reading scores; shortened ones have an open gate, since a kept answer hides what views say."""
        return [self.followed.shortened(each) for each in steps] or [self.defence]

    def contest(self, y: Tensor, rival: Tensor, radius: Tensor, *steps: int) -> Objective:
        """Return the objective that brings the true class below one rival, on the side of the gate that is nearer."""
        model = self.searched()

        def measure(point: Tensor, label: Tensor, rival: Tensor) -> Score:
            return every_point(nearest_lead(self.followed, model, point, label, rival))

        return Objective(lambda point: point, measure, (y, rival))

    def scores_cost(self, x: Tensor, *steps: int) -> int:
        return sum(1 + 2 * each.most_passes(self._classes(x)) for each in self.versions(*steps))

    def contest_cost(self, x: Tensor, *steps: int) -> int:
        return 2 * self.defence.most_passes(self._classes(x))


def nearest_lead(robust: DRQ, model: Model, x: Tensor, label: Tensor, rival: Tensor) -> Tensor:
    """(N,) how far DRQ over views is from answering ``rival`` in place of ``label``; below 0 it may answer so.

    Where the label is the own answer, the rival's best view has to lead the label's, and the own answer by more than the
    threshold of the gate; where the rival is, the label's best view must not do so. The nearer of both ways counts. With two
    classes its sign tells the answer exactly.

    Views are looked at one after the other, and again in the backward pass, so that memory is that of one.
    """
    x = robust.after_front(x)
    assert robust.views is not None

    def at_view(x: Tensor, number: int) -> Tensor:
        assert robust.views is not None
        return log_odds(model(robust.views[number](x)))

    again = torch.is_grad_enabled() and x.requires_grad
    looks = [recompute(at_view, x, each) if again else at_view(x, each) for each in range(len(robust.views))]
    odds = torch.stack(looks, 1)
    own, other = (_two(odds, each) for each in (label, rival))
    threshold = -LARGE if robust.gate is None else max(-LARGE, min(LARGE, robust.gate.threshold))

    def leads(first: Tensor, second: Tensor, base: Tensor) -> Tensor:
        """(N, 2) the best of each over views, from a base label with this confidence at the input."""
        pair = torch.stack([first, second], 2)
        counted = pair if robust.gate is None else robust.gate.standardised(pair, base)
        return counted.amax(1)

    at_label, at_rival = leads(own, other, own[:, 0]), leads(own, other, other[:, 0])
    lead = own[:, 0] - other[:, 0]  # at the input itself
    through_views = torch.maximum(at_label[:, 0], own[:, 0] + threshold) - at_label[:, 1]
    not_through = torch.minimum(at_rival[:, 0] - at_rival[:, 1], at_rival[:, 0] - other[:, 0] - threshold)
    return torch.minimum(torch.maximum(through_views, -lead), torch.maximum(lead, not_through))


def _two(odds: Tensor, label: Tensor) -> Tensor:
    """(N, V) the log-odds of one class at all views."""
    return odds.gather(2, label[:, None, None].expand(-1, odds.shape[1], 1))[:, :, 0]
