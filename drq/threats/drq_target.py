"""Define DRQ as the target of attacks: its cost is known beforehand, and attacks can follow two classes alone."""

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
from drq.threats.target import Answer, RowCounter, Target


class DRQTarget(Target):
    """A DRQ: deterministic, differentiable by construction, with searches that can be shortened.

    Where it has a front, the static model is the one behind it, and gains are over that.
    """

    defence: DRQ

    def __init__(self, defence: DRQ, draws: int = 10) -> None:
        super().__init__(defence, draws)
        if defence.front is not None:
            self.static = Behind(defence.front, self.static)
        self.followed = defence.variant(precision="float32")  # an attacker may avoid the rounding of half precision
        self.meter = RowCounter()  # the meter that is currently counting

    @contextmanager
    def counting_rows(self) -> Iterator[RowCounter]:
        """Count rows inside the context; for a compiled DRQ also those that do not go through the model itself."""
        with super().counting_rows() as self.meter:
            yield self.meter

    def searched(self) -> Model:
        """Return the model that DRQ searches, with its current weights, in full precision."""
        model = self.followed.classifier
        if not self.defence.compile_model:
            return model

        def counted(x: Tensor) -> Tensor:
            self.meter.rows += len(x)
            logits: Tensor = model(x)
            return logits

        return counted

    def detect_randomness(self, x: Tensor) -> None:
        """Do nothing about randomness, as DRQ has none; compile now, so that no meter counts the rows of compiling."""
        for each in (self.defence, self.followed):
            each.classifier(x)

    def has_gradients(self, x: Tensor) -> bool:
        """Return True: DRQ has gradients by the envelope rule."""
        return True

    def answer(self, x: Tensor) -> Answer:
        """Return DRQ's decision with scores that are comparable between all classes."""
        before, decision = self.meter.rows, self.defence.decide(x)
        self._count(before, decision.passes)
        radius = torch.where(decision.found, decision.radius, 0)
        return Answer(decision.label, _comparable(decision), decision.exact & decision.reached, radius)

    def look(self, version: DRQ, x: Tensor) -> Tensor:
        """Return the scores of one version of DRQ."""
        before, (scores, passes) = self.meter.rows, version.scored(x)
        self._count(before, passes)
        return scores

    def _count(self, before: int, passes: Tensor) -> None:
        """Correct the meter: hooks miss part of compiled searches, and count repeated steps of unrolled ones."""
        self.meter.rows = max(self.meter.rows, before + int(passes.sum()))

    def versions(self, *steps: int) -> list[DRQ]:
        """Return versions for reading scores, without pruning; shortened ones are in full precision, for following gradients."""
        return [self.followed.shortened(each) for each in steps] or [self.defence.variant(prune="none")]

    def contest(self, y: Tensor, rival: Tensor, radius: Tensor, *steps: int) -> Objective:
        """Return an objective for which only the two classes are searched for, its gate open; around views, all classes are."""
        if self.defence.views is not None:
            return super().contest(y, rival, radius, *steps)
        return two_class_objective(self.searched(), self.versions(*steps), y, rival, radius)

    # Costs: every call first examines one row, and a verdict also evaluates the static model.

    def verdict_cost(self, x: Tensor) -> int:
        return 2 + self.defence.most_passes(self._classes(x))

    def scores_cost(self, x: Tensor, *steps: int) -> int:
        classes = self._classes(x)  # each class is evaluated once more where scores are differentiated
        return sum(1 + each.most_passes(classes) + classes for each in self.versions(*steps))

    def contest_cost(self, x: Tensor, *steps: int) -> int:
        searches = [each.explore.passes + each.quantify.passes + 1 + (not each.explore_base) for each in self.versions(*steps)]
        return 2 * sum(searches)

    def _classes(self, x: Tensor) -> int:
        return int(self.static(x[:1]).shape[1])


def _comparable(decision: Decision) -> Tensor:
    """Return finite log-odds of the robustness, with pruned classes just below the runner-up, which bounds them."""
    odds = decision.log_odds.clamp(min=UNREACHED)
    second = odds.gather(1, decision.runner_up.clamp(min=0)[:, None])
    return torch.where(decision.exact, odds, torch.minimum(odds, second) - 1e-4)


def two_class_objective(model: Model, versions: Sequence[DRQ], label: Tensor, rival: Tensor, radius: Tensor) -> Objective:
    """Return the objective that lowers the true class's robustness and raises that of one rival, in log-odds, as DRQ finds them.

    Only these two classes are searched for, so a step of an attack costs the same however many classes there are. By the
    envelope rule the gradient is that at both quantified points, moved to the point itself. A rival has a gradient even before it
    is reached. The leads in several versions of a DRQ are added up; ``radius`` replaces calibration.
    """

    def measure(point: Tensor, label: Tensor, rival: Tensor, radius: Tensor) -> Score:
        classes, center, wide = torch.cat([label, rival]), torch.cat([point, point]), torch.cat([radius, radius])
        odds = torch.stack([_robustness(model, each, center, classes, wide) for each in versions]).sum(0)
        own, other = odds.chunk(2)
        return every_point(own - other)

    return Objective(lambda point: point, measure, (label, rival, radius))


def _robustness(model: Model, robust: DRQ, x: Tensor, label: Tensor, radius: Tensor) -> Tensor:
    """Return the log-odds of one class's robustness around every point, with its envelope gradient."""
    x = robust.after_front(x)
    explored_in = radius
    if not robust.explore_base:  # then the confidence in the base label is read off at the point itself
        explored_in = torch.where(label == model(x.detach()).argmax(1), 0, radius)
    explored = search(robust.explore, favour(model, label), robust.ball(x, explored_in)).point
    quantified = search(robust.quantify, away_from(model, label), robust.ball(explored, robust.alpha * radius)).point
    return log_odds(model(quantified), label)
