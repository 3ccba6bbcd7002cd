r"""Geometry: the norms :math:`\ell_1, \ell_2, \ell_\infty` and balls in them. The only file that knows p.

Tensors are batches: dimension 0 counts rows, and every row is one vector whatever its shape. All results are per row.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from drq.errors import require
from drq.registry import NORMS
from drq.rows import Rows, per_row

Bounds = tuple[float | Tensor, float | Tensor]


class Norm(ABC):
    """A norm on vectors; ``Linf()``, ``L2()`` and ``L1()`` are the three there are."""

    single: ClassVar[bool] = False  # whether a steepest step changes a single feature

    @abstractmethod
    def length(self, vector: Tensor) -> Tensor:
        """The norm of every row: (N, ...) -> (N,)."""

    @abstractmethod
    def dual_length(self, vector: Tensor) -> Tensor:
        """The largest inner product of a row with a vector of length 1: (N, ...) -> (N,)."""

    @abstractmethod
    def project(self, vector: Tensor, radius: Tensor) -> Tensor:
        """The Euclidean projection of every row on the ball of its ``radius`` (N,) around 0."""

    @abstractmethod
    def steepest(self, gradient: Tensor, movable: Tensor | None = None) -> Tensor:
        """The vector of length 1 with the largest inner product with each row; 0 where the row is 0.

        ``movable`` marks features that a step may change. Only l1, which spends a step on a single feature, heeds it.
        """

    @abstractmethod
    def sample(self, shape: tuple[int, ...], generator: torch.Generator | None = None) -> Tensor:
        """``shape[0]`` independent float64 points on the CPU, uniform in the ball of radius 1."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))


class Linf(Norm):
    r"""The largest absolute value of a feature, :math:`\max_k |v_k|`.

    >>> Linf().length(torch.tensor([[3.0, -4.0]]))
    tensor([4.])
    """

    def length(self, vector: Tensor) -> Tensor:
        return vector.flatten(1).abs().amax(1)

    def dual_length(self, vector: Tensor) -> Tensor:
        return vector.flatten(1).abs().sum(1)

    def project(self, vector: Tensor, radius: Tensor) -> Tensor:
        limit = per_row(radius, vector)
        return torch.clamp(vector, -limit, limit)

    def steepest(self, gradient: Tensor, movable: Tensor | None = None) -> Tensor:
        return gradient.sign()

    def sample(self, shape: tuple[int, ...], generator: torch.Generator | None = None) -> Tensor:
        return torch.rand(shape, generator=generator, dtype=torch.float64) * 2 - 1


class L2(Norm):
    r"""Euclidean length, :math:`\sqrt{\sum_k v_k^2}`.

    >>> L2().length(torch.tensor([[3.0, -4.0]]))
    tensor([5.])
    """

    def length(self, vector: Tensor) -> Tensor:
        length: Tensor = torch.linalg.vector_norm(vector.flatten(1), dim=1)
        return length

    def dual_length(self, vector: Tensor) -> Tensor:
        return self.length(vector)

    def project(self, vector: Tensor, radius: Tensor) -> Tensor:
        length = self.length(vector)
        outside = length > radius  # a division by 0 inside the ball would poison derivatives
        shrink = torch.where(outside, radius / torch.where(outside, length, 1), 1)
        return vector * per_row(shrink, vector)

    def steepest(self, gradient: Tensor, movable: Tensor | None = None) -> Tensor:
        return unit_length(gradient, self)

    def sample(self, shape: tuple[int, ...], generator: torch.Generator | None = None) -> Tensor:
        gaussian = torch.randn(shape, generator=generator, dtype=torch.float64)
        share = torch.rand(shape[0], generator=generator, dtype=torch.float64) ** (1 / max(1, math.prod(shape[1:])))
        return unit_length(gaussian, self) * per_row(share, gaussian)


class L1(Norm):
    r"""The sum of absolute values, :math:`\sum_k |v_k|`.

    >>> L1().length(torch.tensor([[3.0, -4.0]]))
    tensor([7.])
    """

    single = True

    def length(self, vector: Tensor) -> Tensor:
        return vector.flatten(1).abs().sum(1)

    def dual_length(self, vector: Tensor) -> Tensor:
        return vector.flatten(1).abs().amax(1)

    def project(self, vector: Tensor, radius: Tensor) -> Tensor:
        """Soft-threshold every row by the one amount that brings its length down to ``radius``.

        Reference: Duchi et al., Efficient projections onto the l1-ball, ICML 2008.
        """
        size = vector.flatten(1).abs()
        largest_first = size.sort(dim=1, descending=True).values
        count = torch.arange(1, size.shape[1] + 1, device=size.device)
        excess = (largest_first.cumsum(1) - radius[:, None]) / count  # the threshold if `count` features survive
        survivors = (largest_first > excess).sum(1, keepdim=True).clamp(min=1)
        threshold = excess.gather(1, survivors - 1)
        shrunk = (size - threshold).clamp(min=0).reshape(vector.shape) * vector.sign()
        return torch.where(per_row(self.length(vector) <= radius, vector), vector, shrunk)

    def steepest(self, gradient: Tensor, movable: Tensor | None = None) -> Tensor:
        flat = gradient.flatten(1)
        size = flat.abs() if movable is None else flat.abs() * movable.flatten(1)
        first_largest = size.argmax(1, keepdim=True)
        value = torch.where(size.gather(1, first_largest) > 0, flat.gather(1, first_largest).sign(), 0)
        return torch.zeros_like(flat).scatter(1, first_largest, value).reshape(gradient.shape)

    def sample(self, shape: tuple[int, ...], generator: torch.Generator | None = None) -> Tensor:
        # d + 1 exponential variables over their sum are uniform on the simplex; the last one is the slack to its face.
        uniform = torch.rand((shape[0], math.prod(shape[1:]) + 1), generator=generator, dtype=torch.float64)
        exponential = -torch.log1p(-uniform)
        size = exponential[:, :-1] / exponential.sum(1, keepdim=True)
        positive = torch.rand(size.shape, generator=generator, dtype=torch.float64) < 0.5
        return torch.where(positive, size, -size).reshape(shape)


def unit_length(vector: Tensor, norm: Norm) -> Tensor:
    """Every row divided by its length; rows of length 0 stay 0."""
    largest = vector.detach().flatten(1).abs().amax(1)  # first to size 1, so that squares neither under- nor overflow
    nonzero = largest > 0
    sized = vector / per_row(torch.where(nonzero, largest, 1), vector)
    return sized / per_row(torch.where(nonzero, norm.length(sized), 1), vector)


def as_norm(norm: str | Norm) -> Norm:
    """The norm itself, or the one of that name.

    >>> as_norm("linf")
    Linf()
    """
    if isinstance(norm, Norm):
        return norm
    known = isinstance(norm, str) and norm in NORMS
    given = repr(norm) if isinstance(norm, str | int | float) else type(norm).__name__
    require(known, "norm", f"be one of {', '.join(NORMS)} or a drq.Norm", given, "for example norm='l2'")
    named: Norm = NORMS[norm]()
    return named


@dataclass(frozen=True)
class Ball(Rows):
    r"""One ball a row, :math:`B_p(x; \epsilon) = \{x' : \|x' - x\|_p \le \epsilon\}`, cut by a box and by frozen features.

    Args:
        center: (N, ...), inside the box.
        radius: a number, or (N,) with one radius a row.
        norm: a :class:`Norm` or its name.
        bounds: lowest and highest value, as numbers or as tensors that broadcast over the features; None for no box.
        frozen: boolean mask that broadcasts over the features, True where a feature must keep its value.

    >>> Ball(torch.tensor([[0.5, 0.9]]), 0.25, "linf", bounds=(0, 1)).project(torch.tensor([[0.0, 2.0]]))
    tensor([[0.2500, 1.0000]])
    """

    shared = ("bounds", "frozen")

    center: Tensor
    radius: Tensor
    norm: Norm
    bounds: tuple[Tensor, Tensor] | None
    frozen: Tensor | None

    def __init__(
        self,
        center: Tensor,
        radius: float | Tensor,
        norm: str | Norm,
        bounds: Bounds | None = None,
        frozen: Tensor | None = None,
    ) -> None:
        def like_center(value: float | Tensor) -> Tensor:
            return torch.as_tensor(value, dtype=center.dtype, device=center.device)

        set_field = partial(object.__setattr__, self)  # the dataclass is frozen: only its constructor may set fields
        set_field("center", center)
        set_field("radius", like_center(radius).expand(center.shape[0]))
        set_field("norm", as_norm(norm))
        set_field("bounds", None if bounds is None else (like_center(bounds[0]), like_center(bounds[1])))
        set_field("frozen", None if frozen is None else frozen.to(center.device))

    def project(self, point: Tensor) -> Tensor:
        """The ball projection, then the box.

        The result lies in both. For l1 and l2 it is not the exact Euclidean projection on their intersection.
        """
        return self.clip(self.center + self.norm.project(self.thaw(point - self.center), self.radius))

    def clip(self, point: Tensor) -> Tensor:
        """The nearest point of the box."""
        return point if self.bounds is None else torch.clamp(point, *self.bounds)

    def thaw(self, vector: Tensor) -> Tensor:
        """The vector with its frozen features set to 0."""
        return vector if self.frozen is None else torch.where(self.frozen, 0, vector)  # also where the vector is infinite

    def steepest_descent(self, point: Tensor, gradient: Tensor) -> Tensor:
        """The step of length 1 from ``point`` that lowers a function with this gradient most."""
        movable = self.movable(point, gradient) if self.norm.single else None
        return -self.norm.steepest(self.thaw(gradient), movable)

    def movable(self, point: Tensor, gradient: Tensor) -> Tensor:
        """Which features can follow the gradient downhill: neither frozen nor at the edge of the box that it points to."""
        inside = torch.ones_like(point, dtype=torch.bool)
        if self.bounds is not None:
            low, high = self.bounds
            inside = torch.where(gradient > 0, point > low, point < high)
        return inside if self.frozen is None else inside & ~self.frozen

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """A uniform point of every ball, clipped to the box; all rows share one draw, scaled by their radius."""
        features = self.center.shape[1:]
        free = torch.ones(features, dtype=torch.bool) if self.frozen is None else ~self.frozen.expand(features).cpu()
        offset = torch.zeros(features, dtype=torch.float64)
        offset[free] = self.norm.sample((1, int(free.sum())), generator)[0]  # uniform among the features that may change
        return self.clip(self.center + offset.to(self.center) * per_row(self.radius, self.center))

    def contains(self, point: Tensor, tolerance: float = 1e-6) -> Tensor:
        """Whether each row of ``point`` lies in its ball and box, up to ``tolerance`` and rounding: (N,) bool."""
        offset = point - self.center
        rounding = 4 * torch.finfo(point.dtype).eps * self.norm.length(self.center)
        inside = self.norm.length(offset) <= self.radius * (1 + tolerance) + rounding
        kept = ((offset - self.thaw(offset)) == 0).flatten(1).all(1)
        boxed = ((point - self.clip(point)).abs() <= tolerance).flatten(1).all(1)
        return inside & kept & boxed

    def farthest(self) -> Tensor:
        """The length of the longest vector from the centre that stays in the box: (N,), infinite without a box."""
        if self.bounds is None:
            return torch.full_like(self.radius, torch.inf)
        low, high = self.bounds
        return self.norm.length(self.thaw(torch.maximum(self.center - low, high - self.center)))


class Space(NamedTuple):
    """Where searches take place: how lengths are measured, the limits of the input, and features that must not change."""

    norm: Norm
    bounds: Bounds | None
    frozen: Tensor | None

    def ball(self, center: Tensor, radius: Tensor) -> Ball:
        """Balls in it."""
        return Ball(center, radius, *self)


def check_bounds(bounds: Bounds | None) -> None:
    """The bounds are a pair, lowest first."""
    if bounds is None:
        return
    pair = isinstance(bounds, tuple | list) and len(bounds) == 2
    require(pair, "bounds", "be a pair (lowest, highest) or None", bounds, "images use (0.0, 1.0)")
    ordered = bool((torch.as_tensor(bounds[0]) <= torch.as_tensor(bounds[1])).all())
    require(ordered, "bounds", "have lowest <= highest", bounds, "swap them")


def check_features(x: Tensor, bounds: Bounds | None, frozen: Tensor | None) -> None:
    """What is given per feature broadcasts over the features of ``x``."""
    if frozen is not None:
        remedy = "True where a feature must not change; a mask, not a list of positions"
        require(frozen.dtype == torch.bool, "frozen", "be a boolean mask", frozen.dtype, remedy)
    features, (low, high) = tuple(x.shape[1:]), bounds or (None, None)
    for name, value in {"frozen": frozen, "bounds": low, "bounds[1]": high}.items():
        shape = () if value is None else tuple(torch.as_tensor(value).shape)
        sizes = zip(shape[::-1], features[::-1], strict=False)
        fits = len(shape) <= len(features) and all(size in (1, full) for size, full in sizes)
        rule, remedy = f"broadcast over the features {features}", "give one value per feature, without the batch"
        require(fits, name, rule, f"shape {shape}", remedy)
