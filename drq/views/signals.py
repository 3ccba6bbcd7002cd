"""Define views of sound and of tables: louder, earlier, without a noise floor; features rescaled without changing their order."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from drq.search.loop import check_count
from drq.views.spatial import ByFactor, check_odd, check_reach, evenly
from drq.views.tones import Powers
from drq.views.view import Family


class OfSound(Family):
    """A family of views of sound."""

    rule: ClassVar[str] = "be sound (N, samples) or (N, channels, samples)"

    def takes(self, x: Tensor) -> bool:
        return x.dim() in (2, 3)


@dataclass(frozen=True)
class Gain(ByFactor, OfSound):
    """Louder and softer by factors in equal ratios from 1 / factor to factor; what leaves the bounds of the input is clipped.

    Args:
        factor: the largest.
        views: how many, the input itself among them: an odd number.
    """

    stays: ClassVar[bool] = False
    factor: float = 4.0
    views: int = 5

    def __post_init__(self) -> None:
        check_reach("factor", self.factor, 1, 1000, "4 is 12 decibels up and down")
        check_odd(self.views, "5 with a factor of 4 are steps of 6 decibels")

    def changed(self, x: Tensor, amount: float) -> Tensor:
        return x * amount

    def described(self, amount: float) -> str:
        return f"{amount:.3g} times as loud"


@dataclass(frozen=True)
class TimeShift(OfSound):
    """Earlier and later by whole samples, in steps as equal as these allow; what enters is silence, 0.

    Args:
        samples: the most.
        views: how many, the sound itself among them: an odd number.
    """

    graded: ClassVar[bool] = True
    stays: ClassVar[bool] = False  # bounds need not hold 0
    told_by_amount: ClassVar[bool] = True
    samples: int = 800
    views: int = 5

    def __post_init__(self) -> None:
        check_odd(self.views, "5 are two steps to each side")
        check_count("samples", self.samples, "800 are a twentieth of a second at 16 kHz", least=self.views // 2)
        check_reach("samples", self.samples, 0, 2**31, "800 are a twentieth of a second at 16 kHz")

    @property
    def amounts(self) -> tuple[float, ...]:
        return tuple(float(round(self.samples * share)) for share in evenly(self.views))

    def apart(self, first: float, second: float) -> float:
        return abs(first - second) / self.samples

    def takes(self, x: Tensor) -> bool:
        return super().takes(x) and x.shape[-1] > self.samples

    def changed(self, x: Tensor, amount: float) -> Tensor:
        by, silence = int(amount), torch.zeros_like(x[..., : abs(int(amount))])
        return torch.cat([silence, x[..., :-by]], -1) if by > 0 else torch.cat([x[..., -by:], silence], -1)

    def described(self, amount: float) -> str:
        return f"{abs(amount):.0f} samples {'later' if amount > 0 else 'earlier'}"


@dataclass(frozen=True, init=False)
class NoiseFloor(OfSound):
    """What is softer than a level taken out: values move towards 0 by the level, and stop there.

    Args:
        levels: one for each view besides the sound.
    """

    stays: ClassVar[bool] = False  # bounds need not hold 0
    told_by_amount: ClassVar[bool] = True
    levels: tuple[float, ...] = (0.01,)

    def __init__(self, *levels: float) -> None:
        for each in levels:
            check_reach("levels", each, 0, math.inf, "0.01 is 40 decibels below full scale")
        object.__setattr__(self, "levels", levels or (0.01,))

    @property
    def amounts(self) -> tuple[float, ...]:
        return self.levels

    def changed(self, x: Tensor, amount: float) -> Tensor:
        return x.sign() * (x.abs() - amount).clamp(min=0)

    def described(self, amount: float) -> str:
        return f"without noise below {amount:.3g}"


@dataclass(frozen=True, init=False)
class Monotone(Powers):
    """The features of a table in [0, 1] rescaled without changing their order: every value to the power of the exponent.

    Args:
        exponents: one for each view besides the row itself.
    """

    rule: ClassVar[str] = "be rows of a table (N, features)"
    unit_range: ClassVar[bool] = True
    stays: ClassVar[bool] = False  # bounds may be narrower
    remedy: ClassVar[str] = "below 1 lifts low values"
    exponents: tuple[float, ...] = (0.5, 2.0)

    def takes(self, x: Tensor) -> bool:
        return x.dim() == 2

    def described(self, amount: float) -> str:
        return f"to the power of {amount:.3g}"
