"""Gradients averaged over nearby points: random ones, or the worst ones that an inner attack finds."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from drq.errors import require
from drq.norms import Ball
from drq.objectives import Objective, opposite
from drq.search.gradient import Gradient, Smoothing
from drq.search.loop import check_steps, search
from drq.seeds import generator


@dataclass(frozen=True)
class Noise(Smoothing):
    """Average the gradients at ``samples`` random points, as in the paper's PGD_noise.

    Args:
        samples: noisy gradients a step.
        scale: radius of the noise, as a share of the radius that is searched.
        seed: one noise tensor belongs to each seed, step and sample; all rows share it.
    """

    samples: int = 10
    scale: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        _check_smoothing(self.samples, self.scale)

    def neighbour(self, objective: Objective, ball: Ball, point: Tensor, draw: int) -> Tensor:
        return replace(ball, center=point, radius=self.scale * ball.radius).sample(generator(self.seed, draw))

    @property
    def passes(self) -> int:
        return self.samples


@dataclass(frozen=True)
class InnerAttack(Smoothing):
    """Average the gradients at ``samples`` worst points nearby, as in the paper's PGD_attack.

    Each comes from a gradient search of ``steps`` steps against the objective, from a random start.

    Args:
        samples: inner attacks a step.
        steps: steps of an inner attack.
        scale: its radius, as a share of the radius that is searched.
        seed: of the random starts; all rows share them.
    """

    samples: int = 4
    steps: int = 7
    scale: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        _check_smoothing(self.samples, self.scale)
        check_steps("steps", self.steps)

    def neighbour(self, objective: Objective, ball: Ball, point: Tensor, draw: int) -> Tensor:
        around = replace(ball, center=point, radius=self.scale * ball.radius)
        start = around.sample(generator(self.seed, draw))
        return search(Gradient(self.steps), opposite(objective), around, start=start).point

    @property
    def passes(self) -> int:
        return self.samples * (Gradient(self.steps).passes + 1)

    @property
    def forward_passes(self) -> int:
        return self.samples  # the last point of every attack is only scored


def _check_smoothing(samples: int, scale: float) -> None:
    require(samples >= 1, "samples", "be at least 1", samples, "every sample is one gradient of the average")
    require(scale >= 0, "scale", "be at least 0", scale, "it is a share of the radius that is searched")
