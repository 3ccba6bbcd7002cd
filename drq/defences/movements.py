"""Defences that move a sample before they classify it: towards every class, towards its own, or away from all of them.

Their steps are signs of gradients. How far a sample was moved is held constant in the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from drq.defences.defence import Peer
from drq.defences.defended import Defended, Label, check_amount, out_of_range
from drq.inputs import check_bounds, checked
from drq.norms import Ball, Bounds, Linf
from drq.objectives import Objective, Score, every_point, favour, log_odds
from drq.search import check_count, check_steps, envelope, slope
from drq.seeds import generator


def carried(x: Tensor, move: Callable[[Tensor], Tensor], bounds: Bounds | None = None) -> Tensor:
    """Where ``move`` brings the samples; to a derivative it is as if they all moved by a constant."""
    with torch.inference_mode(False), torch.no_grad():
        moved = move(checked(x.detach(), bounds, None))
    return envelope(moved, x)


def descended(objective: Objective, point: Tensor, steps: int, step: float, ball: Ball | None = None) -> Tensor:
    """Where so many sign steps down the objective end, each projected on the ball, if there is one."""
    for _ in range(steps):
        point = point - step * Linf().steepest(slope(objective, point)[1])
        point = point if ball is None else ball.project(point)
    return point


class Moved(Defended):
    """A model that looks at samples after they were moved."""

    peer: NormalisedLikelihood | AntiAdversary | Hedge

    def shortened(self, steps: int) -> Self:
        """The same with at most so many steps."""
        return type(self)(self.model, replace(self.peer, steps=min(steps, self.peer.steps)))


class Normalised(Moved):
    """A model behind :class:`NormalisedLikelihood`."""

    peer: NormalisedLikelihood

    def forward(self, x: Tensor) -> Tensor:
        """Log of the normalised probabilities (N, C)."""
        return logsigmoid(self.odds(x)).log_softmax(1)

    def decide(self, x: Tensor) -> Label:
        """The class with the highest log-odds: its probability is highest, too, but may be rounded to the 1 of others."""
        with torch.no_grad():
            return Label(self.odds(x).argmax(1))

    def odds(self, x: Tensor) -> Tensor:
        """Log-odds (N, C) of every class at the point that was moved towards it."""
        first = self._toward(x, 0)  # it tells how many classes there are
        odds = [log_odds(first, _all(x, 0))]
        odds += [log_odds(self._toward(x, label), _all(x, label)) for label in range(1, first.shape[1])]
        return torch.stack(odds, dim=1)

    def _toward(self, x: Tensor, label: int) -> Tensor:
        """The logits where the steps towards a class end."""
        peer = self.peer

        def move(start: Tensor) -> Tensor:
            ball = Ball(start, peer.radius, Linf(), peer.bounds)
            return descended(favour(self.model, _all(start, label)), start, peer.steps, peer.step, ball)

        logits: Tensor = self.model(carried(x, move, peer.bounds))
        return logits


def _all(x: Tensor, label: int) -> Tensor:
    """The same class for every sample."""
    return torch.full((len(x),), label, device=x.device)


class AntiAdversarial(Moved):
    """A model behind :class:`AntiAdversary`."""

    peer: AntiAdversary

    def forward(self, x: Tensor) -> Tensor:
        """The logits (N, C) where the steps end."""
        look = out_of_range(self.model)

        def move(start: Tensor) -> Tensor:
            own = favour(look, self.model(start).argmax(1))
            return descended(own, start, self.peer.steps, self.peer.step)

        return look(carried(x, move))


class Hedged(Moved):
    """A model behind :class:`Hedge`."""

    peer: Hedge

    def forward(self, x: Tensor) -> Tensor:
        """The logits (N, C) where the steps end."""
        peer = self.peer

        def move(center: Tensor) -> Tensor:
            ball = Ball(center, peer.radius, Linf(), peer.bounds)
            everyone = Objective(self.model, _all_classes, ())
            return descended(everyone, ball.sample(generator(peer.seed)), peer.steps, peer.step, ball)

        logits: Tensor = self.model(carried(x, move, peer.bounds))
        return logits


def _all_classes(logits: Tensor) -> Score:
    """Minus the sum of the cross-entropies of all classes."""
    return every_point(logits.log_softmax(1).sum(1))


@dataclass(frozen=True)
class NormalisedLikelihood(Peer):
    """Adversarial pNML (Pesso et al. 2021): the probability of every class after a step towards it, divided by their sum.

    It is the nearest relative of DRQ: it explores by one step, and quantifies nothing. It costs ``steps + 1`` passes for
    every class.

    Args:
        steps: towards every class; the authors take one.
        step: length of a step, in linf.
        radius: of the linf ball that steps stay in.
        bounds: lowest and highest value of the input; None for no limit.
    """

    name: ClassVar[str] = "pnml"
    summary: ClassVar[str] = "the probability of every class after a step towards it, normalised"

    steps: int = 1
    step: float = 0.03
    radius: float = 0.03
    bounds: Bounds | None = (0.0, 1.0)

    def __post_init__(self) -> None:
        _check_moves(self)
        check_amount("radius", self.radius, "0.03 is what the authors use for CIFAR-10")
        check_bounds(self.bounds)

    def around(self, model: nn.Module) -> Normalised:
        """The model that looks where the steps towards every class end."""
        return Normalised(model, self)


@dataclass(frozen=True)
class AntiAdversary(Peer):
    """Anti-Adversary (Alfarra et al., AAAI 2022): a few steps towards the label that the model gives, then its answer there.

    Nothing is projected, neither on a ball nor on a box. It costs ``steps + 2`` passes.

    Args:
        steps: towards the label.
        step: length of a step, in linf.
    """

    name: ClassVar[str] = "anti-adversary"
    summary: ClassVar[str] = "the answer after a few steps towards the model's own label"

    steps: int = 2
    step: float = 0.15

    def __post_init__(self) -> None:
        _check_moves(self)

    def around(self, model: nn.Module) -> AntiAdversarial:
        """The model that looks where the steps end."""
        return AntiAdversarial(model, self)


@dataclass(frozen=True)
class Hedge(Peer):
    """Hedge Defense (Wu et al. 2021): steps up the sum of the cross-entropies of all classes, then the answer there.

    It starts at a random point of the ball; all samples share the draw. It costs ``steps + 1`` passes.

    Args:
        steps: against all classes.
        step: length of a step, in linf.
        radius: of the linf ball that steps stay in.
        bounds: lowest and highest value of the input; None for no limit.
        seed: of the start.
    """

    name: ClassVar[str] = "hedge"
    summary: ClassVar[str] = "the answer after an attack on all classes at once"

    steps: int = 20
    step: float = 4 / 255
    radius: float = 8 / 255
    bounds: Bounds | None = (0.0, 1.0)
    seed: int = 0

    def __post_init__(self) -> None:
        _check_moves(self)
        check_amount("radius", self.radius, "8/255 is what the authors use for CIFAR-10")
        check_bounds(self.bounds)
        check_count("seed", self.seed, "0 is the default")

    def around(self, model: nn.Module) -> Hedged:
        """The model that looks where the attack ends."""
        return Hedged(model, self)


def _check_moves(peer: NormalisedLikelihood | AntiAdversary | Hedge) -> None:
    check_steps("steps", peer.steps, "a step of length 0 moves nothing")
    check_amount("step", peer.step, "it is the length of a step, in linf")
