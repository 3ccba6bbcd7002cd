"""Define step rules for a descent in a ball, and the descent, which step_rules.py measures.

A rule computes the next point from the value and gradient at the current one. It knows the number of steps beforehand, since most
rules plan the lengths of all steps. Its memory is a dict of tensors with one entry for each row, so that rows can be dropped.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from drq.engine.compiled import Compiled
from drq.engine.twin import Twin
from drq.method.execution import InPrecision
from drq.norms import Ball
from drq.objectives import Model, log_odds
from drq.rows import per_row
from drq.search.auto_step import AutoStep

Memory = dict[str, Tensor]
TRAVEL = 2.5  # total length of all steps, in radii: that of drq.Gradient, and of every plan here but `shrinking`
LEAST_BATCH = 16  # points in a batch of a compiled model


@dataclass(frozen=True)
class Rule(ABC):
    """A step rule with its number of steps."""

    steps: int

    @abstractmethod
    def move(self, memory: Memory, ball: Ball, point: Tensor, value: Tensor, gradient: Tensor, count: int) -> Tensor:
        """Return the next point. The value is minimised; ``count`` is the number of steps done; ``memory`` is empty at first."""


@dataclass(frozen=True)
class Planned(Rule):
    """Steepest descent along some average of the gradients so far, with step lengths that are planned beforehand.

    Args:
        plan: returns the lengths of all steps, as multiples of the radius, given their number.
        average: returns the direction, given memory, gradient and count; None for the gradient itself.
    """

    plan: Callable[[int], list[float]]
    average: Callable[[Memory, Tensor, int], Tensor] | None = None

    def move(self, memory: Memory, ball: Ball, point: Tensor, value: Tensor, gradient: Tensor, count: int) -> Tensor:
        """Take one step of the plan."""
        slope = gradient if self.average is None else self.average(memory, gradient, count)
        length = per_row(self.plan(self.steps)[count] * ball.radius, point)
        return ball.project(point + length * ball.steepest_descent(point, slope))


def constant(steps: int) -> list[float]:
    """Return the plan of drq.Gradient: constant lengths."""
    return [TRAVEL / steps] * steps


def cosine(steps: int) -> list[float]:
    """Return lengths from twice the constant one down to almost 0 along a cosine."""
    return [TRAVEL / steps * (1 + math.cos(math.pi * (count + 0.5) / steps)) for count in range(steps)]


def linear(steps: int) -> list[float]:
    """Return lengths from twice the constant one down to almost 0 along a line."""
    return [TRAVEL / steps * 2 * (1 - (count + 0.5) / steps) for count in range(steps)]


def shrinking(steps: int) -> list[float]:
    """Return the whole radius, then a half of it, a third and so on: the first steps do not depend on how many follow."""
    return [1 / (count + 1) for count in range(steps)]


def momentum(memory: Memory, gradient: Tensor, count: int, decay: float = 0.75) -> Tensor:
    """Return a decaying sum of gradients, each scaled to the same size, as in MI-FGSM (Dong et al. 2018).

    That paper keeps all of the past (decay 1), for transfer to other models; a search of one model gains from forgetting.
    """
    scaled = gradient / per_row(gradient.abs().flatten(1).mean(1).clamp(min=1e-30), gradient)
    memory["sum"] = decay * memory["sum"] + scaled if count else scaled
    return memory["sum"]


def adam(memory: Memory, gradient: Tensor, count: int, first: float = 0.9, second: float = 0.999) -> Tensor:
    """Return Adam's mean over root mean square. In linf only its sign counts, so that there the squares change nothing."""
    for name, decay, new in (("mean", first, gradient), ("square", second, gradient.square())):
        memory[name] = (1 - decay) * new + (decay * memory[name] if count else 0)
    mean, square = memory["mean"] / (1 - first ** (count + 1)), memory["square"] / (1 - second ** (count + 1))
    return mean / (square.sqrt() + 1e-8)


@dataclass(frozen=True)
class Auto(Rule):
    """The rule of drq.AutoStep (Auto-PGD), which halves its step where that stops paying."""

    def move(self, memory: Memory, ball: Ball, point: Tensor, value: Tensor, gradient: Tensor, count: int) -> Tensor:
        """Take a step from the best point so far where the step was halved, else from the current one."""
        self._remember(memory, ball, point, value, gradient, count)
        base, slope = point, gradient
        if window := AutoStep(self.steps).checkpoints.get(count):
            halve = self._review(memory, window)
            base, slope = _where(halve, memory["best_point"], base), _where(halve, memory["best_gradient"], slope)
        ahead = ball.project(base + per_row(memory["length"], base) * ball.steepest_descent(base, slope))
        if count:
            share = AutoStep.momentum
            ahead = ball.project(base + (1 - share) * (ahead - base) + share * (base - memory["previous"]))
        memory["previous"] = base
        return ahead

    def _remember(self, memory: Memory, ball: Ball, point: Tensor, value: Tensor, gradient: Tensor, count: int) -> None:
        if not count:
            memory |= {"length": 2 * ball.radius, "best": value, "best_point": point, "best_gradient": gradient}
            memory |= {"milestone": torch.full_like(value, torch.inf), "halved": torch.ones_like(value, dtype=torch.bool)}
            memory |= {"gains": torch.zeros_like(value), "value": value}
            return
        lower = value < memory["best"]
        memory["best"] = torch.where(lower, value, memory["best"])
        memory["best_point"] = _where(lower, point, memory["best_point"])
        memory["best_gradient"] = _where(lower, gradient, memory["best_gradient"])
        memory["gains"] = memory["gains"] + (value < memory["value"])
        memory["value"] = value

    def _review(self, memory: Memory, window: int) -> Tensor:
        """Halve the step of rows that gained too rarely, or nothing since the last review; say which."""
        stuck = ~memory["halved"] & (memory["milestone"] <= memory["best"])
        halve = (memory["gains"] < AutoStep.enough_gains * window) | stuck
        memory |= {"milestone": memory["best"], "gains": torch.zeros_like(memory["gains"]), "halved": halve}
        memory["length"] = torch.where(halve, memory["length"] / 2, memory["length"])
        return halve


def _where(rows: Tensor, yes: Tensor, no: Tensor) -> Tensor:
    return torch.where(per_row(rows, yes), yes, no)


RULES: dict[str, Callable[[int], Rule]] = {
    "constant": partial(Planned, plan=constant),
    "cosine": partial(Planned, plan=cosine),
    "linear": partial(Planned, plan=linear),
    "momentum": partial(Planned, plan=constant, average=momentum),
    "auto": Auto,
    "adam": partial(Planned, plan=constant, average=adam),
    "shrinking": partial(Planned, plan=shrinking),
    "cosine momentum": partial(Planned, plan=cosine, average=momentum),
}


@dataclass(frozen=True)
class Patience:
    """The criterion of convergence: so many evaluations in a row without a sufficient gain.

    Args:
        looks: the evaluations without a gain.
        tolerance: the least gain, as a share of the value, or of 1 where the value is smaller.
    """

    looks: int
    tolerance: float

    def converged(self, memory: Memory, value: Tensor, count: int) -> Tensor:
        """Return which rows have converged at this value; gains are measured from the last that counted, so slow ones add up."""
        if not count:
            memory |= {"anchor": value, "idle": torch.zeros_like(value)}
        anchor = memory["anchor"]
        gained = value < anchor - self.tolerance * anchor.abs().clamp(min=1)
        memory["idle"] = torch.where(gained, 0, memory["idle"] + (count > 0))
        memory["anchor"] = torch.where(gained, value, anchor)
        return memory["idle"] >= self.looks


class Fast:
    """A frozen copy of a model, on a GPU in float16 and compiled; its logits are float32, for the loss."""

    def __init__(self, model: nn.Module, eager: bool = False) -> None:
        on_gpu = any(each.is_cuda for each in model.parameters())
        dtype = torch.float16 if on_gpu else None
        self.compiled = on_gpu and not eager
        self.run: Model = Compiled(model, dtype) if self.compiled else InPrecision(Twin(model).model, dtype)

    def leaf(self, x: Tensor) -> Tensor:
        """Return the points as a leaf with gradients, in the memory format of the model, which avoids compiling again."""
        x = x.detach()
        return (x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x.clone()).requires_grad_()

    def logits(self, x: Tensor) -> Tensor:
        """Return the logits; small batches are padded, since the compiler would specialise on them."""
        count = len(x)
        if self.compiled and count < LEAST_BATCH:
            x = torch.cat([x, x[:1].expand(LEAST_BATCH - count, *x.shape[1:])]).contiguous(memory_format=torch.channels_last)
        return self.run(x)[:count]


@dataclass
class Best:
    """The result of a descent, one entry for each row."""

    point: Tensor
    value: Tensor  # infinite where no visited point was admitted
    passes: Tensor


def evaluate(model: Fast, point: Tensor, label: Tensor, climb: bool, slope: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return the value to be minimised, whether the point is admitted, and the gradient (0 for the last evaluation).

    The last evaluation records its graph as well, though it is not used: without it the model would be compiled twice.
    """
    with torch.enable_grad():
        leaf = model.leaf(point)
        logits = model.logits(leaf)
        odds = log_odds(logits, label)
        value = -odds if climb else odds
        gradient = torch.autograd.grad(value.sum(), leaf)[0].nan_to_num(nan=0.0) if slope else torch.zeros_like(leaf)
    admitted = logits.argmax(1) == label if climb else torch.ones_like(label, dtype=torch.bool)
    return value.detach(), admitted, gradient


def descend(model: Fast, rule: Rule, ball: Ball, label: Tensor, climb: bool, patience: Patience | None) -> Best:
    """Lower the log-odds of the label in the ball, or raise them with ``climb``, like drq.search.loop but with any step rule."""
    point, rows, memory = ball.center, torch.arange(len(label), device=label.device), Memory()
    best = Best(point.clone(), torch.full_like(ball.radius, torch.inf), torch.zeros_like(label))
    for count in range(rule.steps + 1):
        value, admitted, gradient = evaluate(model, point, label, climb, slope=count < rule.steps)
        better = admitted & (value < best.value[rows])
        best.value[rows] = torch.where(better, value, best.value[rows])
        best.point[rows] = _where(better, point, best.point[rows])
        best.passes[rows] += 1
        if count == rule.steps:
            break
        point = rule.move(memory, ball, point, value, gradient, count)
        if patience is not None:
            active = ~patience.converged(memory, value, count)
            rows, point, label, ball = rows[active], point[active], label[active], ball[active]
            memory = {name: each[active] for name, each in memory.items()}
            if not len(rows):
                break
    return best
