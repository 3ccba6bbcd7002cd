"""Wrap attacks of other libraries as threats: the members of AutoAttack, and any attack of Foolbox.

Their random draws depend on the shape of the batch, so a sample's result depends on the rest of its batch: batches have a fixed,
recorded size. The global random state, which these libraries reseed, and the gradients of parameters, which they change, are
restored.
"""

from __future__ import annotations

import logging
import random
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from drq import errors
from drq.errors import require
from drq.method.adapters import Wrapper
from drq.method.execution import Execution
from drq.objectives import Model
from drq.search.loop import check_steps
from drq.threats.threat import Attack, Shifted, plain

logger = logging.getLogger("drq")


imported = partial(errors.imported, purpose="this attack", remedy="pip install decision-region-quantification[attacks]")


@contextmanager
def random_state(seed: int) -> Iterator[None]:
    """Seed all global random generators inside the context, and restore their states afterwards."""
    python, numbers = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        try:
            torch.manual_seed(seed)
            np.random.seed(seed)
            random.seed(seed)
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numbers)


class LibraryModel(Wrapper):
    """The model as other libraries get it: it counts its rows, keeps its precision, and has gradients for its input only."""

    def __init__(self, model: nn.Module | Model, dtype: torch.dtype) -> None:
        super().__init__(model)
        self.dtype = dtype
        self.rows = 0  # rows evaluated so far

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits; backward() through them does not touch the parameters."""
        self.rows += len(x)
        if torch.is_grad_enabled() and x.requires_grad:
            logits: Tensor = _InputGradient.apply(x, self._logits)  # type: ignore[no-untyped-call]
            return logits
        return self._logits(x).clone()  # Square writes into the logits, which the model may hold

    def _logits(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model(x.to(self.dtype))
        return logits.to(x.dtype)


class _InputGradient(torch.autograd.Function):
    """A function that is differentiated with respect to its input only."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        with torch.enable_grad():
            ctx.x = x.detach().requires_grad_()
            ctx.y = function(ctx.x)
        result: Tensor = ctx.y.detach()
        return result

    @staticmethod
    def backward(ctx: Any, *outer: Any) -> tuple[Tensor, None]:
        (gradient,) = torch.autograd.grad(ctx.y, ctx.x, outer[0], retain_graph=True)
        return gradient, None


@dataclass(frozen=True)
class ThirdParty(Attack):
    """An attack that another library runs; what all of them have in common.

    Its result is projected on the ball and the box. ``passes`` counts the rows that went forward through the model,
    averaged over the batch and rounded up.

    Args:
        seed: the seed of every batch.
        batch: how many samples are attacked together, on which random draws depend; ``chunk`` has no effect.
    """

    batch_dependent: ClassVar[bool] = True
    seed: int = field(default=0, kw_only=True)
    batch: int = field(default=100, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_steps("batch", self.batch, "for example batch=100")
        require(self.frozen is None, "frozen", "be None", "a mask", "this library moves every feature; drq.threats.PGD heeds it")

    def shift(self, model: nn.Module | Model | None, x: Tensor, y: Tensor | None, index: Tensor) -> Shifted:
        """Attack in batches of the recorded size."""
        return Attack.shift(replace(self, chunk=self.batch), model, x, y, index)

    def attack(self, execution: Execution, x: Tensor, y: Tensor, index: Tensor) -> Shifted:
        """Run the library's attack on one batch."""
        if self.radius == 0:
            return Shifted(x, torch.zeros_like(y))
        counted = LibraryModel(execution.model, x.dtype)
        contiguous = x.clone(memory_format=torch.contiguous_format)  # AutoAttack flattens views of it
        with random_state(self.seed):
            points = self.run_library(counted, contiguous, y.clone(), execution.classes)
        points = torch.where(points == x.to(points.dtype), x, points.to(x.dtype))  # features that did not move are not rounded
        passes = -(-counted.rows // len(x))
        return Shifted(self.ball(x).project(points.detach()), torch.full_like(y, passes))

    @abstractmethod
    def run_library(self, model: LibraryModel, x: Tensor, y: Tensor, classes: int) -> Tensor:
        """Return the library's adversarial examples; gradients are off, random numbers are seeded."""


Member = Literal["apgd-ce", "apgd-dlr", "apgd-t", "fab-t", "square"]
FEWEST = {"apgd-dlr": 3, "apgd-t": 4}  # classes: the losses divide by a difference to the third and fourth logit


@dataclass(frozen=True)
class AutoAttack(ThirdParty):
    """One member of AutoAttack (Croce and Hein 2020), by the package ``pyautoattack``, on every sample.

    - "apgd-ce", "apgd-dlr": all steps are made for every sample, and the point of highest loss comes back, fooled or not.
    - "apgd-t": likewise, for each target class in turn; of the targets' points the one of highest loss.
    - "fab-t": a point of another class within the radius where one was found; other samples, and those that are misclassified
      already, stay as they are.
    - "square": as fab-t; a sample is done with once it is misclassified. For images (N, C, H, W).

    Args:
        member: which one.
        steps: iterations, queries for "square"; None is 100, and 5000 queries.
        targets: most likely wrong classes that "apgd-t" and "fab-t" aim at; no more than there are.
        restarts: runs from different random starts; "apgd-t" and "fab-t" make them for every target.
    """

    member: Member = "apgd-ce"
    steps: int | None = None
    targets: int = field(default=9, kw_only=True)
    restarts: int = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        known = get_args(Member)
        require(self.member in known, "member", f"be one of {', '.join(known)}", repr(self.member), "for example 'fab-t'")
        if self.steps is None:
            object.__setattr__(self, "steps", 5000 if self.member == "square" else 100)  # so that the record holds it
        for name in ("steps", "targets", "restarts"):
            check_steps(name, getattr(self, name), "radius=0 changes nothing")
        box = plain(self.bounds) == [0, 1]
        require(box, "bounds", "be (0.0, 1.0)", self.bounds, "AutoAttack knows no other: scale x, and undo it inside the model")

    def run_library(self, model: LibraryModel, x: Tensor, y: Tensor, classes: int) -> Tensor:
        """Run the member."""
        fewest = FEWEST.get(self.member, 2)
        remedy = "use member='apgd-ce' or 'fab-t'"
        require(classes >= fewest, "model", f"have at least {fewest} classes for {self.member}", classes, remedy)
        images = self.member != "square" or (x.dim() == 4 and min(x.shape[2:]) >= 5)
        require(images, "x", "be images (N, C, H, W) with sides of at least 5 for square", f"shape {tuple(x.shape)}", remedy)
        run: dict[str, Callable[..., Tensor]] = {"fab-t": self._fab, "square": self._square, "apgd-t": self._targeted}
        return run.get(self.member, self._apgd)(model, x.float(), y, classes)  # AutoAttack knows no doubles

    def _options(self, **more: Any) -> dict[str, Any]:
        ball = {"norm": type(self.norm).__name__, "eps": float(self.radius)}
        return ball | {"n_restarts": self.restarts, "seed": self.seed, "verbose": False} | more

    def _apgd(self, model: LibraryModel, x: Tensor, y: Tensor, classes: int) -> Tensor:
        attack = imported("pyautoattack.autopgd_base").APGDAttack
        loss = self.member.removeprefix("apgd-")
        points: Tensor = attack(model, **self._options(n_iter=self.steps, loss=loss, logger=logger)).perturb(x, y, best_loss=True)
        return points

    def _targeted(self, model: LibraryModel, x: Tensor, y: Tensor, classes: int) -> Tensor:
        # The library's own loop over targets leaves out samples that are fooled already, here or by an earlier target.
        attack = imported("pyautoattack.autopgd_base").APGDAttack_targeted(
            model, **self._options(n_iter=self.steps, logger=logger)
        )
        attack.init_hyperparam(x)
        best, highest = x.clone(), torch.full((len(x),), -torch.inf, dtype=x.dtype, device=x.device)
        ranked = model(x).scatter(1, y[:, None], -torch.inf).argsort(1, descending=True)
        for target in ranked.T[: min(self.targets, classes - 1)]:
            attack.y_target = target
            for _ in range(self.restarts):
                point, _, loss, _ = attack.attack_single_run(x, y)
                better = loss > highest
                best[better], highest[better] = point[better], loss[better]
        return best

    def _fab(self, model: LibraryModel, x: Tensor, y: Tensor, classes: int) -> Tensor:
        targeted = {"targeted": True, "n_target_classes": min(self.targets, classes - 1)}
        attack = imported("pyautoattack.fab_pt").FABAttack_PT(model, **self._options(n_iter=self.steps, **targeted))
        points: Tensor = attack.perturb(x, y)
        return points

    def _square(self, model: LibraryModel, x: Tensor, y: Tensor, classes: int) -> Tensor:
        options = self._options(n_queries=self.steps, resc_schedule=False)  # as in AutoAttack: squares shrink by its schedule
        points: Tensor = imported("pyautoattack.square").SquareAttack(model, **options).perturb(x.contiguous(), y)
        return points


@dataclass(frozen=True)
class Foolbox(ThirdParty):
    """Any attack of Foolbox at one radius; attacks that search for the nearest adversarial example are cut off at it.

    Samples on which the attack fails come back as Foolbox returns them, within the radius.

    Args:
        method: the name of a class in ``foolbox.attacks``, or an attack that has been made already.
        options: arguments of that class, by name.
    """

    method: Any = "LinfPGD"
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        plain_box = self.bounds is not None and not any(isinstance(each, Tensor) for each in self.bounds)
        require(plain_box, "bounds", "be a pair of numbers", self.bounds, "Foolbox knows no other; images use (0.0, 1.0)")
        ready = isinstance(self.method, str) or callable(self.method)
        remedy = "for example 'LinfPGD', with options={'steps': 20}"
        require(ready, "method", "be the name of a Foolbox attack or such an attack", repr(self.method), remedy)
        named = isinstance(self.method, str) or not self.options
        require(named, "options", "be empty for an attack that has been made already", dict(self.options), "name the attack")

    @property
    def record(self) -> dict[str, Any]:
        """The name and every setting, with the options as JSON values."""
        return super().record | {"options": {name: plain(value) for name, value in self.options.items()}}

    def run_library(self, model: LibraryModel, x: Tensor, y: Tensor, classes: int) -> Tensor:
        """Run the attack; Foolbox needs gradients to be on, and would otherwise move the model to its default device."""
        foolbox = imported("foolbox")
        attack = self._attack(foolbox)
        with torch.enable_grad():
            _, clipped, _ = attack(foolbox.PyTorchModel(model, self.bounds, device=x.device), x, y, epsilons=float(self.radius))
        points: Tensor = clipped
        return points

    def _attack(self, foolbox: Any) -> Any:
        if not isinstance(self.method, str):
            attack = self.method
        else:
            maker = getattr(foolbox.attacks, self.method, None)
            require(isinstance(maker, type), "method", "be an attack in foolbox.attacks", repr(self.method), "check its spelling")
            assert maker is not None
            attack = maker(**self.options)
        measured = getattr(foolbox.distances, type(self.norm).__name__.lower())
        own = getattr(attack, "distance", None)
        same = getattr(own, "p", None) == measured.p
        require(same, "norm", f"be that of the attack, {own}", self.norm, "take another norm or another attack")
        return attack
