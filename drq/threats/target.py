"""Define the target of attacks on a defence: its answers, its differentiable scores, and their cost."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from drq.engine.twin import Watcher
from drq.errors import require
from drq.objectives import Model, Objective, Score, every_point
from drq.rows import Rows

logger = logging.getLogger("drq")


@dataclass(frozen=True, eq=False)
class Verdict(Rows):
    """How a defended model answers at N points whose true labels are known."""

    fooled: Tensor  # (N,) bool: its label is wrong
    lead: Tensor  # (N,) lead of the true class over the best other, in the defence's scores; lower is closer to success
    rivals: Tensor  # (N, C - 1) the wrong classes, the most dangerous first
    radius: Tensor  # (N,) the radius in which a DRQ explored; 0 for other defences
    static_fooled: Tensor  # (N,) bool: the label of the static model in it is wrong


class RowCounter(Watcher):
    """Counts the rows that a module evaluates."""

    rows = 0

    def count(self, module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], output: object) -> None:
        """The forward hook."""
        self.rows += len(next(each for each in (*inputs, *named.values()) if isinstance(each, Tensor)))


class Answer(NamedTuple):
    """The answer of a defence at N points."""

    label: Tensor  # (N,)
    scores: Tensor  # (N, C)
    known: Tensor  # (N, C) bool: False where a score is only a bound
    radius: Tensor  # (N,) the radius in which a DRQ explored; 0 for other defences


class Target:
    """A defence, the static model in it, and the cost of evaluating both. DRQ, of which more is known, has its own subclass.

    A defence is a module whose ``decide(x)`` returns a decision with a ``label``; ``model`` is the classifier in it, calling the
    defence gives differentiable scores, and its method ``shortened(steps)``, if it has one, returns a cheaper version. A defence
    whose answers are random has the attribute ``random = True``. Any other model is its own defence.

    Args:
        defence: the defence that is attacked.
        draws: over how many answers a random defence is averaged.
    """

    over_views = False  # whether the defence looks at declared views of its input

    def __init__(self, defence: nn.Module, draws: int = 10) -> None:
        self.defence: Any = defence
        inner: Any = getattr(defence, "model", None)
        self.static: nn.Module = inner if hasattr(defence, "decide") else defence
        self.counted = self.static  # the module whose evaluations are counted
        self.most_draws = draws
        self.draws = draws if getattr(defence, "random", False) else 1

    def detect_randomness(self, x: Tensor) -> None:
        """Answer twice: a defence whose answers differ counts as random, even without the attribute."""
        if self.draws > 1:
            return
        first, second = self.answer(x), self.answer(x)
        moved = (first.scores - second.scores).abs().max() > 0.01 * first.scores.abs().max()  # rounding moves less
        if moved or not torch.equal(first.label, second.label):
            self.draws = self.most_draws
            logger.warning("drq: this defence answers differently each time: its answers are averaged over %d draws", self.draws)

    def has_gradients(self, x: Tensor) -> bool:
        """Return whether the scores have gradients other than 0."""
        with torch.enable_grad():
            point = x.clone().requires_grad_()
            scores = self.scores(7)(point)  # as attacks follow them: shortened where possible
            if not scores.requires_grad:
                return False
            different = torch.arange(scores.shape[1], dtype=scores.dtype, device=scores.device)  # scores may sum to a constant
            (gradient,) = torch.autograd.grad((scores * different).sum(), point, allow_unused=True)
        return gradient is not None and bool((gradient != 0).any())

    @contextmanager
    def counting_rows(self) -> Iterator[RowCounter]:
        """Count every row that the static model evaluates inside the context."""
        meter = RowCounter()
        handle = self.counted.register_forward_hook(meter.count, with_kwargs=True)
        try:
            yield meter
        finally:
            handle.remove()

    def answer(self, x: Tensor) -> Answer:
        """Evaluate the defence once."""
        with torch.enable_grad():  # a defence may need gradients of its own
            scores = None if self.has_no_scores else check_scores(self.defence(x), x)
            decision = self.defence.decide(x) if hasattr(self.defence, "decide") else None
        label = check_label(decision, x) if decision is not None or scores is None else scores.argmax(1)
        if scores is None:
            scores = torch.zeros_like(self.static(x)).scatter(1, label[:, None], 1)
        return Answer(label, scores, torch.ones_like(scores, dtype=torch.bool), torch.zeros_like(scores[:, 0]))

    @property
    def has_no_scores(self) -> bool:
        """Whether the defence only decides and has no scores; its labels then replace them."""
        return type(self.defence).forward is nn.Module.forward

    def judge(self, x: Tensor, y: Tensor) -> Verdict:
        """Return the verdict of the defence; a random one counts as fooled where most of its answers are wrong."""
        static, answers = self.static(x).log_softmax(1), [self.answer(x) for _ in range(self.draws)]
        wrong = torch.stack([answer.label != y for answer in answers]).sum(0)
        scores = torch.stack([answer.scores for answer in answers]).mean(0)
        others = scores.scatter(1, y[:, None], -torch.inf)
        lead = scores.gather(1, y[:, None])[:, 0] - others.amax(1)
        by_static = static.scatter(1, y[:, None], -torch.inf).argsort(dim=1, descending=True, stable=True)
        known = torch.where(answers[0].known, others, -torch.inf)  # unknown scores come last, in the static model's order
        rivals = by_static.gather(1, known.gather(1, by_static).argsort(dim=1, descending=True, stable=True))[:, :-1]
        return Verdict(2 * wrong > self.draws, lead, rivals, answers[0].radius, static.argmax(1) != y)

    def labels(self, x: Tensor) -> Tensor:
        """Return the labels alone, as scores of 0 and 1."""
        answer = self.answer(x)
        return torch.zeros_like(answer.scores).scatter(1, answer.label[:, None], 1)

    def versions(self, *steps: int) -> list[Any]:
        """Return the defence shortened to each of these numbers of steps, if it can be; without steps, the defence itself."""
        can_shorten = steps and hasattr(self.defence, "shortened")
        return [self.defence.shortened(each) for each in steps] if can_shorten else [self.defence]

    def scores(self, *steps: int) -> Model:
        """Return the differentiable scores, averaged over shortened versions and over draws."""
        if self.has_no_scores:
            return self.labels
        looks: list[Model] = [partial(self.look, version) for version in self.versions(*steps) for _ in range(self.draws)]
        return looks[0] if len(looks) == 1 else lambda x: torch.stack([look(x).log_softmax(1) for look in looks]).mean(0)

    def look(self, version: Any, x: Tensor) -> Tensor:
        """Return the scores of one version of the defence."""
        scores: Tensor = version(x)
        return scores

    def contest(self, y: Tensor, rival: Tensor, radius: Tensor, *steps: int) -> Objective:
        """Return the objective that brings the true class below one rival in the defence, shortened to these steps."""
        return Objective(self.scores(*steps), _lead_over, (y, rival))

    def verdict_cost(self, x: Tensor) -> int:
        """Return the most passes of a verdict on one sample like those in ``x``."""
        return self._measured(lambda row: self.judge(row, torch.zeros_like(row.flatten(1)[:, 0]).long()), x)

    def scores_cost(self, x: Tensor, *steps: int) -> int:
        """Return the most passes of evaluating the scores once, shortened to these steps."""
        return self._measured(self.scores(*steps), x)

    def contest_cost(self, x: Tensor, *steps: int) -> int:
        """Return the most passes of evaluating the objective of :meth:`contest` once."""
        return self.scores_cost(x, *steps)

    def _measured(self, look: Callable[[Tensor], object], x: Tensor) -> int:
        """Return the passes that one evaluation on one sample takes."""
        with self.counting_rows() as meter:
            look(x[:1])
        return meter.rows


def check_scores(scores: object, x: Tensor) -> Tensor:
    """Check the scores that a defence returned, and return them detached."""
    given = f"shape {tuple(scores.shape)}" if isinstance(scores, Tensor) else type(scores).__name__
    table = isinstance(scores, Tensor) and scores.dim() == 2 and len(scores) == len(x)
    require(table, "model(x)", "be scores of shape (N, C)", given, "one row for each sample")
    assert isinstance(scores, Tensor)
    finite = bool(scores.isfinite().all())
    require(finite, "model(x)", "be finite", "NaN or infinity", "clamp the scores of the defence")
    return scores.detach()


def check_label(decision: object, x: Tensor) -> Tensor:
    """Check the label in a defence's decision, and return it."""
    known, remedy = hasattr(decision, "label"), "a drq.Decision, or a named tuple of your own"
    require(known, "model.decide(x)", "return something with a label", type(decision).__name__, remedy)
    label = getattr(decision, "label")  # noqa: B009 - its type is the caller's
    given = f"{label.dtype} of shape {tuple(label.shape)}" if isinstance(label, Tensor) else type(label).__name__
    whole = isinstance(label, Tensor) and label.shape == x.shape[:1] and not label.is_floating_point()
    require(whole, "model.decide(x).label", "be a tensor of one whole number for each sample", given, "as argmax(1) gives")
    assert isinstance(label, Tensor)
    return label


def _lead_over(scores: Tensor, label: Tensor, rival: Tensor) -> Score:
    return every_point((scores.gather(1, label[:, None]) - scores.gather(1, rival[:, None]))[:, 0])
