"""Define the variants of DRQ that are recorded: searches, settings, fronts and other ways to quantify."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from torch import Tensor

import drq
from drq.objectives import Model, Score
from drq.search.loop import Count, Observation, State
from drq.seeds import generator
from drq.threats.corruptions.constants import KINDS

PAPER = "linf 16/255, 20 + 20 steps"


@dataclass(frozen=True)
class Following(drq.Gradient):
    """Steps along the gradient of another loss; the best point is still that of the log-odds."""

    loss: Callable[[Model, Tensor], drq.Objective] = drq.margin

    def observe(self, objective: drq.Objective, ball: drq.Ball, state: State, count: Count) -> Observation:
        """Return the value of the log-odds with the gradient of the other loss, from one pass."""

        def measure(logits: Tensor, label: Tensor, direction: Tensor) -> Score:
            score = objective.measure(logits, label, direction)
            followed = direction * self.loss(lambda z: z, label)(logits).value
            return score._replace(value=score.value.detach() + (followed - followed.detach()))

        return super().observe(replace(objective, measure=measure), ball, state, count)


@dataclass(frozen=True)
class Starts(drq.Search):
    """A descent from the centre, then from random points; the loop remembers the best."""

    descent: drq.Gradient
    starts: int
    in_step = True  # all rows share the draws

    @property
    def steps(self) -> int:
        """The steps of all descents, and one from each to the next."""
        return self.starts * (self.descent.steps + 1) - 1

    def move(self, observation: Observation, ball: drq.Ball, state: State, best: drq.SearchResult, count: Count) -> State:
        """Take a step of the descent, or go to the next start."""
        assert isinstance(count, int)
        step = count % (self.descent.steps + 1)
        if step < self.descent.steps:
            return self.descent.move(observation, ball, state, best, step)
        return State(ball.sample(generator(0, count)))


class Variant(NamedTuple):
    """The settings of a variant of DRQ."""

    norm: str
    radius: float
    explore: drq.Search
    quantify: drq.Search
    alpha: float = 0.5
    fronts: tuple[str, ...] = ("none",)
    idea: str = "settings"


def with_steps(norm: str, radius: float, explore: int, quantify: int, alpha: float = 0.5, *fronts: str) -> Variant:
    """Return a variant with the paper's searches and these numbers of steps, behind the named fronts, if any."""
    return Variant(norm, radius, drq.Gradient(explore), drq.Gradient(quantify), alpha, fronts or ("none",))


def with_searches(idea: str, explore: drq.Search, quantify: drq.Search) -> Variant:
    """Return a variant with other searches than the paper's, in its ball."""
    return Variant("linf", 16 / 255, explore, quantify, idea=idea)


SMOOTHED = "exploration with noise or inner attacks"
NOISY = drq.Gradient(5, smooth=drq.Noise(4))
ATTACKED = drq.Gradient(2, smooth=drq.InnerAttack(1, steps=2, scale=0.5))  # with the radius of quantification
ALONG_LOSSES = {"margin": Following(5), "DLR": Following(5, loss=drq.dlr)}
THREE = Starts(drq.Gradient(1), 3)
VARIANTS = {
    PAPER: with_steps("linf", 16 / 255, 20, 20, 0.5, "none", "restored"),
    "l2 1, 20 + 20 steps": with_steps("l2", 1.0, 20, 20, 0.5, "none", "restored"),
    "linf 16/255, 5 + 5 steps": with_steps("linf", 16 / 255, 5, 5),
    "linf 16/255, 20 + 1 steps": with_steps("linf", 16 / 255, 20, 1),
    "linf 16/255, 1 + 1 steps": with_steps("linf", 16 / 255, 1, 1, 0.5, "none", "restored", "denoised"),
    "linf 16/255, 1 + 20 steps": with_steps("linf", 16 / 255, 1, 20),
    "linf 8/255, 1 + 1 steps": with_steps("linf", 8 / 255, 1, 1, 0.5, "none", "restored"),
    "linf 4/255, 1 + 1 steps": with_steps("linf", 4 / 255, 1, 1, 0.5, "none", "restored"),
    "linf 24/255, 1 + 1 steps": with_steps("linf", 24 / 255, 1, 1),
    "linf 16/255, 1 + 1 steps, alpha 0.25": with_steps("linf", 16 / 255, 1, 1, 0.25),
    "linf 16/255, 1 + 1 steps, alpha 0.75": with_steps("linf", 16 / 255, 1, 1, 0.75),
    "linf 16/255, 1 + 1 steps, alpha 1": with_steps("linf", 16 / 255, 1, 1, 1.0, "none", "restored"),
    "l2 1, 1 + 1 steps": with_steps("l2", 1.0, 1, 1, 0.5, "none", "restored", "mirrored"),
    "l2 0.5, 1 + 1 steps": with_steps("l2", 0.5, 1, 1, 0.5, "none", "restored"),
    "l2 1, 1 + 1 steps, alpha 1": with_steps("l2", 1.0, 1, 1, 1.0, "none", "restored"),
    "linf 16/255, exploration in noise": with_searches(SMOOTHED, NOISY, drq.Gradient(5)),
    "linf 16/255, exploration with inner attacks": with_searches(SMOOTHED, ATTACKED, drq.Gradient(5)),
    "linf 16/255, 20 random points quantify": with_searches("settings", drq.Gradient(1), drq.Random(20)),
    "linf 16/255, 1 + 1 steps from each of 3 starts": with_searches("several starts", THREE, THREE),
} | {
    f"linf 16/255, 5 + 5 steps along the {loss}": with_searches("margin or DLR losses", by, by)
    for loss, by in ALONG_LOSSES.items()
}
FEATURES = {
    "behind stage 3": (4, 0.05),
    "behind stage 2": (3, 0.05),
}  # of a residual network, radius by the features' length
POINTS, DOWN = 8, drq.Gradient(5, step=1)  # a walk that ends at the edge
INSTEAD, LINEAR = "mean or quantile instead of the minimum", "first-order estimate from the gradient norm"
NEARBY = {
    f"mean of {POINTS} random points": INSTEAD,
    f"lower quartile of {POINTS} random points": INSTEAD,
    f"distance to the boundary, {DOWN.steps} steps": "descent that stops at the boundary",
    "slope at the explored point": LINEAR,
    "slope at the input": LINEAR,
}  # ways to quantify what one step of exploration found, and their ideas
IDEAS = {title: look.idea for title, look in VARIANTS.items()} | dict.fromkeys(FEATURES, "DRQ in a feature layer") | NEARBY
AT_ONCE = 1024  # rows that go through the model together
LEAST = -60000.0  # in place of -inf, where a class was not reached: half precision has it
SHIFTS = [*KINDS, "rotation", "translation"]
WEIGHTS = (0.25, 0.5, 1.0, 2.0, 4.0)  # of the log-odds at the input, beside those of a search
LIKELIEST = (2, 3)  # classes at the input, and no others
GAPS = (1.0, 2.0, 4.0)  # between the two best classes at the input
