"""Define Hedge Defense, which moves a sample away from all classes before the model classifies it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from drq.defences.defence import Peer
from drq.defences.defended import check_amount
from drq.defences.movements import MovedInput, check_moves, move_input, sign_descent
from drq.norms import Ball, Bounds, Linf, check_bounds
from drq.objectives import Objective, Score, every_point
from drq.search.loop import check_count
from drq.seeds import generator


@dataclass(frozen=True)
class Hedge(Peer):
    """Hedge Defense (Wu et al. 2021): steps up the sum of the cross-entropies of all classes, then the answer there.

    It starts at a random point of the ball; all samples share the draw. It costs ``steps + 1`` passes.

    Args:
        steps: the steps against all classes.
        step: the length of a step, in linf.
        radius: the radius of the linf ball that steps stay in.
        bounds: the lowest and the highest value of the input; None for no limit.
        seed: the seed of the start.
    """

    name: ClassVar[str] = "hedge"
    summary: ClassVar[str] = "the answer after an attack on all classes at once"

    steps: int = 20
    step: float = 4 / 255
    radius: float = 8 / 255
    bounds: Bounds | None = (0.0, 1.0)
    seed: int = 0

    def __post_init__(self) -> None:
        check_moves(self)
        check_amount("radius", self.radius, "8/255 is what the authors use for CIFAR-10")
        check_bounds(self.bounds)
        check_count("seed", self.seed, "0 is the default")

    def around(self, model: nn.Module) -> Hedged:
        """Return the model that classifies the points where the attack ends."""
        return Hedged(model, self)


class Hedged(MovedInput):
    """A model defended by :class:`Hedge`."""

    peer: Hedge

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (N, C) where the steps end."""
        peer = self.peer

        def move(center: Tensor) -> Tensor:
            ball = Ball(center, peer.radius, Linf(), peer.bounds)
            objective = Objective(self.model, _all_classes, ())
            return sign_descent(objective, ball.sample(generator(peer.seed)), peer.steps, peer.step, ball)

        logits: Tensor = self.model(move_input(x, move, peer.bounds))
        return logits


def _all_classes(logits: Tensor) -> Score:
    """Return minus the sum of the cross-entropies of all classes."""
    return every_point(logits.log_softmax(1).sum(1))
