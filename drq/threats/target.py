"""A defended model as its attacker sees it: what it decides, what can be followed through it, what that costs."""

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
    """What the defended model says about N points whose true labels are known."""

    fooled: Tensor  # (N,) bool: its label is wrong
    lead: Tensor  # (N,) of the true class over the best other, in log-odds of its own scores; lower is nearer to a success
    rivals: Tensor  # (N, C - 1) the wrong classes, the most dangerous first
    radius: Tensor  # (N,) in which a DRQ looked around; 0 for other defences
    static_fooled: Tensor  # (N,) bool: the label of the static model in it is wrong


class Meter(Watcher):
    """Counts the rows that a module evaluates."""

    rows = 0

    def count(self, module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], output: object) -> None:
        """The forward hook."""
        self.rows += len(next(each for each in (*inputs, *named.values()) if isinstance(each, Tensor)))


class Answer(NamedTuple):
    """What a defence says about N points."""

    label: Tensor  # (N,)
    scores: Tensor  # (N, C)
    known: Tensor  # (N, C) bool: False where a score is but a bound
    radius: Tensor  # (N,) in which a DRQ looked around; 0 for other defences


class Target:
    """A defence, the static model in it, and what it costs to ask. DRQ, of which more is known, has a target of its own.

    A defence is a module whose ``decide(x)`` returns a decision with a ``label``; ``model`` is the classifier in it, calling it
    gives differentiable scores, and ``shortened(steps)``, where there is one, is a cheaper version of it. One that answers
    differently each time says ``random = True``. Any other model is its own defence.

    Args:
        defence: what is attacked.
        draws: over how many answers a random defence is averaged.
    """

    def __init__(self, defence: nn.Module, draws: int = 10) -> None:
        self.defence: Any = defence
        inner: Any = getattr(defence, "model", None)
        self.static: nn.Module = inner if hasattr(defence, "decide") else defence
        self.counted = self.static  # whose evaluations are
        self.most_draws = draws
        self.draws = draws if getattr(defence, "random", False) else 1

    def notice_randomness(self, x: Tensor) -> None:
        """Ask twice: a defence whose answers differ is taken for random, though it does not say so."""
        if self.draws > 1:
            return
        first, second = self.answer(x), self.answer(x)
        moved = (first.scores - second.scores).abs().max() > 0.01 * first.scores.abs().max()  # rounding moves less
        if moved or not torch.equal(first.label, second.label):
            self.draws = self.most_draws
            logger.warning("drq: this defence answers differently each time: its answers are averaged over %d draws", self.draws)

    def has_slopes(self, x: Tensor) -> bool:
        """Whether gradients other than 0 come back through the scores."""
        with torch.enable_grad():
            point = x.clone().requires_grad_()
            scores = self.scores(7)(point)  # as attacks follow them, cut down where that is possible
            if not scores.requires_grad:
                return False
            different = torch.arange(scores.shape[1], dtype=scores.dtype, device=scores.device)  # scores may sum to a constant
            (gradient,) = torch.autograd.grad((scores * different).sum(), point, allow_unused=True)
        return gradient is not None and bool((gradient != 0).any())

    @contextmanager
    def metered(self) -> Iterator[Meter]:
        """Count every row that the static model evaluates meanwhile."""
        meter = Meter()
        handle = self.counted.register_forward_hook(meter.count, with_kwargs=True)
        try:
            yield meter
        finally:
            handle.remove()

    def answer(self, x: Tensor) -> Answer:
        """One look at what it says."""
        with torch.enable_grad():  # a defence may need gradients of its own
            scores = None if self.speechless else check_scores(self.defence(x), x)
            decision = self.defence.decide(x) if hasattr(self.defence, "decide") else None
        label = check_label(decision, x) if decision is not None or scores is None else scores.argmax(1)
        if scores is None:
            scores = torch.zeros_like(self.static(x)).scatter(1, label[:, None], 1)
        return Answer(label, scores, torch.ones_like(scores, dtype=torch.bool), torch.zeros_like(scores[:, 0]))

    @property
    def speechless(self) -> bool:
        """Whether it decides and has no scores: its labels then stand for them."""
        return type(self.defence).forward is nn.Module.forward

    def judge(self, x: Tensor, y: Tensor) -> Verdict:
        """The defence's own verdict. One that is random counts as fooled where most of its answers are wrong."""
        static, answers = self.static(x).log_softmax(1), [self.answer(x) for _ in range(self.draws)]
        wrong = torch.stack([answer.label != y for answer in answers]).sum(0)
        scores = torch.stack([answer.scores for answer in answers]).mean(0)
        others = scores.scatter(1, y[:, None], -torch.inf)
        lead = scores.gather(1, y[:, None])[:, 0] - others.amax(1)
        usual = static.scatter(1, y[:, None], -torch.inf).argsort(dim=1, descending=True, stable=True)
        known = torch.where(answers[0].known, others, -torch.inf)  # others follow in the order of the static model
        rivals = usual.gather(1, known.gather(1, usual).argsort(dim=1, descending=True, stable=True))[:, :-1]
        return Verdict(2 * wrong > self.draws, lead, rivals, answers[0].radius, static.argmax(1) != y)

    def labels(self, x: Tensor) -> Tensor:
        """Its labels and nothing else, as scores of 0 and 1."""
        answer = self.answer(x)
        return torch.zeros_like(answer.scores).scatter(1, answer.label[:, None], 1)

    def versions(self, *steps: int) -> list[Any]:
        """The defence cut down to so many steps each, where it knows how; as it is where no steps are given."""
        cut = steps and hasattr(self.defence, "shortened")
        return [self.defence.shortened(each) for each in steps] if cut else [self.defence]

    def scores(self, *steps: int) -> Model:
        """The differentiable scores, averaged over versions cut down to so many steps, and over its draws."""
        if self.speechless:
            return self.labels
        looks: list[Model] = [partial(self.look, version) for version in self.versions(*steps) for _ in range(self.draws)]
        return looks[0] if len(looks) == 1 else lambda x: torch.stack([look(x).log_softmax(1) for look in looks]).mean(0)

    def look(self, version: Any, x: Tensor) -> Tensor:
        """The scores of one of its versions."""
        scores: Tensor = version(x)
        return scores

    def contest(self, y: Tensor, rival: Tensor, radius: Tensor, *steps: int) -> Objective:
        """Bring the true class below one rival in the defence, cut down to so many steps."""
        return Objective(self.scores(*steps), _lead_over, (y, rival))

    def verdict_cost(self, x: Tensor) -> int:
        """The most passes of a verdict on one sample such as those of ``x``."""
        return self._measured(lambda row: self.judge(row, torch.zeros_like(row.flatten(1)[:, 0]).long()), x)

    def scores_cost(self, x: Tensor, *steps: int) -> int:
        """The most passes of one look at the scores, cut down to so many steps."""
        return self._measured(self.scores(*steps), x)

    def contest_cost(self, x: Tensor, *steps: int) -> int:
        """The most passes of one look at a contest."""
        return self.scores_cost(x, *steps)

    def _measured(self, look: Callable[[Tensor], object], x: Tensor) -> int:
        """Passes that one look at one sample takes."""
        with self.metered() as meter:
            look(x[:1])
        return meter.rows


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


def _lead_over(scores: Tensor, label: Tensor, rival: Tensor) -> Score:
    return every_point((scores.gather(1, label[:, None]) - scores.gather(1, rival[:, None]))[:, 0])
