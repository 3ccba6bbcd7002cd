"""A defended model as its attacker sees it: what it decides, what can be followed through it, what that costs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from drq.decision import Decision
from drq.drq import DRQ
from drq.errors import require
from drq.objectives import Model, Objective, Score, away_from, every_point, favour, log_odds
from drq.rows import Rows
from drq.scores import UNREACHED
from drq.search import search

logger = logging.getLogger("drq")


@dataclass(frozen=True, eq=False)
class Verdict(Rows):
    """What the defended model says about N points whose true labels are known."""

    fooled: Tensor  # (N,) bool: its label is wrong
    lead: Tensor  # (N,) of the true class over the best other, in log-odds of its own scores; lower is nearer to a success
    rivals: Tensor  # (N, C - 1) the wrong classes, the most dangerous first
    radius: Tensor  # (N,) in which a DRQ looked around; 0 for other defences
    static_fooled: Tensor  # (N,) bool: the label of the static model in it is wrong


class Meter:
    """Counts the rows that a module evaluates."""

    rows = 0

    def count(self, module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], output: object) -> None:
        """The forward hook."""
        self.rows += len(next(each for each in (*inputs, *named.values()) if isinstance(each, Tensor)))


class Target:
    """A defence, the static model in it, and what it costs to ask.

    A defence is a module whose ``decide(x)`` returns a decision with a ``label``; ``model`` is the classifier in it, calling it
    gives differentiable scores, and ``shortened(steps)``, where there is one, is a cheaper version of it. One that answers
    differently each time says ``random = True``. Any other model is its own defence.

    Args:
        defence: what is attacked.
        draws: over how many answers a random defence is averaged.
    """

    def __init__(self, defence: nn.Module, draws: int = 10) -> None:
        self.defence = defence
        self.static: nn.Module = getattr(defence, "model", None) if hasattr(defence, "decide") else defence  # type: ignore[assignment]
        self.most_draws = draws
        self.draws = draws if getattr(defence, "random", False) else 1

    def notice_randomness(self, x: Tensor) -> None:
        """Ask twice: a defence whose answers differ is taken for random, though it does not say so."""
        if self.draws > 1 or isinstance(self.defence, DRQ):
            return
        (label, scores, _), (other_label, other_scores, _) = self._answer(x), self._answer(x)
        moved = (scores - other_scores).abs().max() > 0.01 * scores.abs().max()  # rounding moves less
        if moved or not torch.equal(label, other_label):
            self.draws = self.most_draws
            logger.warning("drq: this defence answers differently each time: its answers are averaged over %d draws", self.draws)

    def has_slopes(self, x: Tensor) -> bool:
        """Whether gradients other than 0 come back through the scores; those of DRQ do by construction."""
        if isinstance(self.defence, DRQ):
            return True
        with torch.enable_grad():
            point = x.clone().requires_grad_()
            scores: Tensor = self.defence(point)
            if not scores.requires_grad:
                return False
            different = torch.arange(scores.shape[1], dtype=scores.dtype, device=scores.device)  # scores may sum to a constant
            (gradient,) = torch.autograd.grad((scores * different).sum(), point, allow_unused=True)
        return gradient is not None and bool((gradient != 0).any())

    @contextmanager
    def metered(self) -> Iterator[Meter]:
        """Count every row that the static model evaluates meanwhile."""
        meter = Meter()
        handle = self.static.register_forward_hook(meter.count, with_kwargs=True)
        try:
            yield meter
        finally:
            handle.remove()

    def measured(self, look: Callable[[Tensor], object], x: Tensor) -> int:
        """Passes that one look at one sample takes."""
        with self.metered() as meter:
            look(x[:1])
        return meter.rows

    def verdict_cost(self, x: Tensor) -> int:
        """The most passes of a verdict on one sample such as those of ``x``."""
        if isinstance(self.defence, DRQ):
            return 2 + self.defence.most_passes(self.static(x[:1]).shape[1])  # the static model; one row is examined first
        return self.measured(lambda row: self.judge(row, torch.zeros_like(row.flatten(1)[:, 0]).long()), x)

    def scores_cost(self, x: Tensor, *steps: int) -> int:
        """The most passes of one look at the scores, cut down to so many steps."""
        if not isinstance(self.defence, DRQ):
            return self.measured(self.scores(*steps), x)
        classes = self.static(x[:1]).shape[1]
        versions = [self.defence.shortened(each) for each in steps] or [self.defence]
        # Every class is evaluated once more where scores are differentiated, and one row is examined first.
        return sum(each.most_passes(classes) + classes + 1 for each in versions)

    def contest_cost(self, x: Tensor, *steps: int) -> int:
        """The most passes of one look at a contest."""
        if not isinstance(self.defence, DRQ):
            return self.scores_cost(x, *steps)
        versions = [self.defence.shortened(each) for each in steps]
        return sum(2 * (each.explore.passes + each.quantify.passes + 1 + (not each.explore_base)) for each in versions)

    def judge(self, x: Tensor, y: Tensor) -> Verdict:
        """The defence's own verdict. One that is random counts as fooled where most of its answers are wrong."""
        static = self.static(x).log_softmax(1)
        wrong, scores, radius = torch.zeros_like(y), torch.zeros_like(static), torch.zeros_like(static[:, 0])
        for _ in range(self.draws):
            label, answer, radius = self._answer(x)
            wrong, scores = wrong + (label != y), scores + answer / self.draws
        others = scores.scatter(1, y[:, None], -torch.inf)
        lead = scores.gather(1, y[:, None])[:, 0] - others.amax(1)
        likely = torch.where(others > UNREACHED, others, UNREACHED + static)  # classes that were not reached: by the static model
        rivals = likely.scatter(1, y[:, None], -torch.inf).argsort(dim=1, descending=True, stable=True)[:, :-1]
        return Verdict(2 * wrong > self.draws, lead, rivals, radius, static.argmax(1) != y)

    def _answer(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Labels, scores and radii of one look."""
        if isinstance(self.defence, DRQ):
            found = self.defence.decide(x)
            return found.label, _comparable(found), torch.where(found.found, found.radius, 0)
        with torch.enable_grad():  # a defence may need gradients of its own
            scores = check_scores(self.defence(x), x)
            decision = self.defence.decide(x) if hasattr(self.defence, "decide") else None  # type: ignore[operator]
        label = scores.argmax(1) if decision is None else check_label(decision, x)
        return label, scores, torch.zeros_like(scores[:, 0])

    def scores(self, *steps: int) -> Model:
        """The differentiable scores of the defence, averaged over versions cut down to so many steps, and over its draws."""
        versions: list[Model] = [self.defence]
        if steps and hasattr(self.defence, "shortened"):
            versions = [self.defence.shortened(each) for each in steps]  # type: ignore[operator]
        elif isinstance(self.defence, DRQ):
            versions = [self.defence.variant(prune="none")]
        looks = [version for version in versions for _ in range(self.draws)]
        return looks[0] if len(looks) == 1 else lambda x: torch.stack([look(x).log_softmax(1) for look in looks]).mean(0)

    def labels(self, x: Tensor) -> Tensor:
        """Its labels and nothing else, as scores of 0 and 1."""
        label, scores, _ = self._answer(x)
        return torch.zeros_like(scores).scatter(1, label[:, None], 1)

    def contest(self, y: Tensor, rival: Tensor, radius: Tensor, *steps: int) -> Objective:
        """Bring the true class below one rival in the defence, cut down to so many steps."""
        if isinstance(self.defence, DRQ):
            return duel([self.defence.shortened(each) for each in steps], y, rival, radius)
        return Objective(self.scores(*steps), _lead_over, (y, rival))


def _comparable(decision: Decision) -> Tensor:
    """Log-odds of the robustness, finite; a class that was pruned stands just below the runner-up, as it is known to."""
    odds = decision.log_odds.clamp(min=UNREACHED)
    second = odds.gather(1, decision.runner_up.clamp(min=0)[:, None])
    return torch.where(decision.exact, odds, torch.minimum(odds, second) - 1e-4)


def check_scores(scores: object, x: Tensor) -> Tensor:
    """What a defence returns when called: a finite table, which comes back without a graph."""
    given = f"shape {tuple(scores.shape)}" if isinstance(scores, Tensor) else type(scores).__name__
    table = isinstance(scores, Tensor) and scores.dim() == 2 and len(scores) == len(x)
    require(table, "model(x)", "be scores of shape (N, C)", given, "one row for each sample")
    assert isinstance(scores, Tensor)
    finite = bool(scores.isfinite().all())
    require(finite, "model(x)", "be finite", "NaN or infinity", "clamp the scores of the defence")
    return scores.detach()


def check_label(decision: object, x: Tensor) -> Tensor:
    """The label in what a defence decided."""
    known, remedy = hasattr(decision, "label"), "a drq.Decision, or a named tuple of your own"
    require(known, "model.decide(x)", "return something with a label", type(decision).__name__, remedy)
    label = getattr(decision, "label")  # noqa: B009 - its type is the caller's
    given = f"{label.dtype} of shape {tuple(label.shape)}" if isinstance(label, Tensor) else type(label).__name__
    whole = isinstance(label, Tensor) and label.shape == x.shape[:1] and not label.is_floating_point()
    require(whole, "model.decide(x).label", "be a tensor of one whole number for each sample", given, "as argmax(1) gives")
    assert isinstance(label, Tensor)
    return label


def duel(versions: Sequence[DRQ], label: Tensor, rival: Tensor, radius: Tensor) -> Objective:
    """Lower the robustness of the true class and raise that of one rival, in log-odds, as DRQ finds them around a point.

    Only these two classes are searched for, so a step of an attack costs the same however many classes there are. By the
    envelope rule the gradient is that at both quantified points, moved to the point itself. A rival is followed before it is
    reached, too. The leads in several versions of a DRQ are added up; ``radius`` stands in for calibration.
    """

    def measure(point: Tensor, label: Tensor, rival: Tensor, radius: Tensor) -> Score:
        classes, center, wide = torch.cat([label, rival]), torch.cat([point, point]), torch.cat([radius, radius])
        odds = torch.stack([_robustness(each, center, classes, wide) for each in versions]).sum(0)
        own, other = odds.chunk(2)
        return every_point(own - other)

    return Objective(lambda point: point, measure, (label, rival, radius))


def _robustness(robust: DRQ, x: Tensor, label: Tensor, radius: Tensor) -> Tensor:
    """Log-odds of one class around every point, with its envelope gradient."""
    model, explored_in = robust.classifier, radius
    if not robust.explore_base:  # then the confidence in the base label is read off at the point itself
        explored_in = torch.where(label == model(x.detach()).argmax(1), 0, radius)
    explored = search(robust.explore, favour(model, label), robust.ball(x, explored_in)).point
    quantified = search(robust.quantify, away_from(model, label), robust.ball(explored, robust.alpha * radius)).point
    return log_odds(model(quantified), label)


def _lead_over(scores: Tensor, label: Tensor, rival: Tensor) -> Score:
    return every_point((scores.gather(1, label[:, None]) - scores.gather(1, rival[:, None]))[:, 0])
