"""DRQ as its attacker sees it: what it costs is known beforehand, and two classes can be followed alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from drq.decision import Decision
from drq.drq import DRQ
from drq.method.adapters import Behind
from drq.method.scores import UNREACHED
from drq.objectives import Model, Objective, Score, away_from, every_point, favour, log_odds
from drq.search.loop import search
from drq.threats.target import Answer, Meter, Target


class DRQTarget(Target):
    """A DRQ: deterministic, differentiable by construction, with searches that can be shortened.

    Where it has a front, the static model is the one behind it, and gains are over that.
    """

    defence: DRQ

    def __init__(self, defence: DRQ, draws: int = 10) -> None:
        super().__init__(defence, draws)
        if defence.front is not None:
            self.static = Behind(defence.front, self.static)
        self.followed = defence.variant(precision="float32")  # rounding blurs slopes, and no attacker has to share it
        self.meter = Meter()  # the one that counts at present

    @contextmanager
    def metered(self) -> Iterator[Meter]:
        """Of a compiled DRQ also what does not go through the model itself."""
        with super().metered() as self.meter:
            yield self.meter

    def searched(self) -> Model:
        """The model that DRQ searches, with the weights that it has now, in full precision."""
        model = self.followed.classifier
        if not self.defence.compile_model:
            return model

        def counted(x: Tensor) -> Tensor:
            self.meter.rows += len(x)
            logits: Tensor = model(x)
            return logits

        return counted

    def notice_randomness(self, x: Tensor) -> None:
        """It has none: random searches draw by their seed. But it is compiled now, before a meter counts what that examines."""
        for each in (self.defence, self.followed):
            each.classifier(x)

    def has_slopes(self, x: Tensor) -> bool:
        """It has, by the envelope rule."""
        return True

    def answer(self, x: Tensor) -> Answer:
        """Its decision, all classes comparable."""
        before, decision = self.meter.rows, self.defence.decide(x)
        self._count(before, decision.passes)
        radius = torch.where(decision.found, decision.radius, 0)
        return Answer(decision.label, _comparable(decision), decision.exact & decision.reached, radius)

    def look(self, version: DRQ, x: Tensor) -> Tensor:
        """The scores of one of its versions."""
        before, (scores, passes) = self.meter.rows, version.scored(x)
        self._count(before, passes)
        return scores

    def _count(self, before: int, passes: Tensor) -> None:
        """Hooks see a part of what is compiled; of what is unrolled they also see the steps that are taken again."""
        self.meter.rows = max(self.meter.rows, before + int(passes.sum()))

    def versions(self, *steps: int) -> list[DRQ]:
        """Whose scores can be read: nothing is pruned. What is cut down is there to be followed, in full precision."""
        return [self.followed.shortened(each) for each in steps] or [self.defence.variant(prune="none")]

    def contest(self, y: Tensor, rival: Tensor, radius: Tensor, *steps: int) -> Objective:
        """A duel: only the two classes are searched for."""
        return duel(self.searched(), self.versions(*steps), y, rival, radius)

    # Costs: whatever is called examines one row first, and a verdict asks the static model as well.

    def verdict_cost(self, x: Tensor) -> int:
        return 2 + self.defence.most_passes(self._classes(x))

    def scores_cost(self, x: Tensor, *steps: int) -> int:
        classes = self._classes(x)  # each is evaluated once more where scores are differentiated
        return sum(1 + each.most_passes(classes) + classes for each in self.versions(*steps))

    def contest_cost(self, x: Tensor, *steps: int) -> int:
        searches = [each.explore.passes + each.quantify.passes + 1 + (not each.explore_base) for each in self.versions(*steps)]
        return 2 * sum(searches)

    def _classes(self, x: Tensor) -> int:
        return int(self.static(x[:1]).shape[1])


def _comparable(decision: Decision) -> Tensor:
    """Log-odds of the robustness, finite; a class that was pruned stands just below the runner-up, as it is known to."""
    odds = decision.log_odds.clamp(min=UNREACHED)
    second = odds.gather(1, decision.runner_up.clamp(min=0)[:, None])
    return torch.where(decision.exact, odds, torch.minimum(odds, second) - 1e-4)


def duel(model: Model, versions: Sequence[DRQ], label: Tensor, rival: Tensor, radius: Tensor) -> Objective:
    """Lower the robustness of the true class and raise that of one rival, in log-odds, as DRQ finds them around a point.

    Only these two classes are searched for, so a step of an attack costs the same however many classes there are. By the
    envelope rule the gradient is that at both quantified points, moved to the point itself. A rival is followed before it is
    reached, too. The leads in several versions of a DRQ are added up; ``radius`` stands in for calibration.
    """

    def measure(point: Tensor, label: Tensor, rival: Tensor, radius: Tensor) -> Score:
        classes, center, wide = torch.cat([label, rival]), torch.cat([point, point]), torch.cat([radius, radius])
        odds = torch.stack([_robustness(model, each, center, classes, wide) for each in versions]).sum(0)
        own, other = odds.chunk(2)
        return every_point(own - other)

    return Objective(lambda point: point, measure, (label, rival, radius))


def _robustness(model: Model, robust: DRQ, x: Tensor, label: Tensor, radius: Tensor) -> Tensor:
    """Log-odds of one class around every point, with its envelope gradient."""
    x = robust.after_front(x)
    explored_in = radius
    if not robust.explore_base:  # then the confidence in the base label is read off at the point itself
        explored_in = torch.where(label == model(x.detach()).argmax(1), 0, radius)
    explored = search(robust.explore, favour(model, label), robust.ball(x, explored_in)).point
    quantified = search(robust.quantify, away_from(model, label), robust.ball(explored, robust.alpha * radius)).point
    return log_odds(model(quantified), label)
