"""Define views that move pictures: turned, enlarged, shifted, mirrored. What enters from outside is reflected at the edges."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import grid_sample

from drq.errors import require
from drq.search.loop import check_count
from drq.views.view import MOST_VIEWS, Family


class OfPictures(Family):
    """A family of views of pictures."""

    rule: ClassVar[str] = "be pictures (N, C, H, W)"

    def takes(self, x: Tensor) -> bool:
        return x.dim() == 4 and min(x.shape[2:]) >= 2


class One(OfPictures):
    """A family with a single view besides the picture."""

    @property
    def amounts(self) -> tuple[float, ...]:
        return (1.0,)


@dataclass(frozen=True)
class ByFactor(Family):
    """A family whose amounts are factors in equal ratios from 1 / factor to factor, the input itself in the middle."""

    graded: ClassVar[bool] = True
    neutral: ClassVar[float] = 1.0
    told_by_amount: ClassVar[bool] = True
    factor: float
    views: int

    @property
    def amounts(self) -> tuple[float, ...]:
        return tuple(self.factor**share for share in evenly(self.views))

    def apart(self, first: float, second: float) -> float:
        return abs(math.log(first / second)) / math.log(self.factor)


@dataclass(frozen=True)
class Rotation(OfPictures):
    """Turned by angles in equal steps from -degrees to degrees, the picture itself in the middle; by 180, all around.

    Quarter turns move whole pixels; other angles interpolate between four. Pictures that are not square keep their shape.

    Args:
        degrees: the largest angle, counter-clockwise.
        views: how many, the picture itself among them: an odd number, unless they go all around.

    >>> Rotation(90, 13).names[1], len(Rotation(180, 4))
    ('rotated by -90 degrees', 4)
    """

    graded: ClassVar[bool] = True
    told_by_amount: ClassVar[bool] = True
    degrees: float = 90.0
    views: int = 13

    def __post_init__(self) -> None:
        check_reach("degrees", self.degrees, 0, 180, "90 finds what lies on its side")
        if self.degrees == 180:
            check_count("views", self.views, "24 are steps of 15 degrees", least=2)
            check_most(self.views)
        else:
            check_odd(self.views, "13 with 90 degrees are steps of 15")

    @property
    def amounts(self) -> tuple[float, ...]:
        if self.degrees == 180:
            steps = [360 * number / self.views for number in range(1, self.views)]
            return tuple(each - 360 if each > 180 else each for each in steps)
        half = self.views // 2
        return tuple(self.degrees * number / half for number in range(-half, half + 1) if number)  # quarter turns are exact

    def apart(self, first: float, second: float) -> float:
        turn = abs(first - second) % 360
        return min(turn, 360 - turn) / self.degrees

    def changed(self, x: Tensor, amount: float) -> Tensor:
        square = x.shape[2] == x.shape[3]
        if amount % (90 if square else 180) == 0:
            return x.rot90(round(amount / 90), (2, 3))
        angle = math.radians(amount)
        return resampled(x, ((math.cos(angle), -math.sin(angle)), (math.sin(angle), math.cos(angle))))

    def described(self, amount: float) -> str:
        return f"rotated by {amount:.4g} degrees"


@dataclass(frozen=True)
class Scale(ByFactor, OfPictures):
    """Enlarged around the centre by factors in equal ratios from 1 / factor to factor, the picture itself in the middle.

    Args:
        factor: the largest.
        views: how many, the picture itself among them: an odd number.
    """

    factor: float = 2.0
    views: int = 9

    def __post_init__(self) -> None:
        check_reach("factor", self.factor, 1, 16, "2 doubles and halves the size")
        check_odd(self.views, "9 with a factor of 2 are steps of a fourth of an octave")

    def changed(self, x: Tensor, amount: float) -> Tensor:
        return resampled(x, ((1 / amount, 0.0), (0.0, 1 / amount)))

    def described(self, amount: float) -> str:
        return f"enlarged {amount:.3g} times"


@dataclass(frozen=True)
class Shift(OfPictures):
    """Moved by whole pixels: to the left, to the right, up and down, with 9 views also along the diagonals.

    Args:
        pixels: how far.
        views: 5 or 9, the picture itself among them.
    """

    graded: ClassVar[bool] = True
    pixels: int = 4
    views: int = 5

    def __post_init__(self) -> None:
        check_count("pixels", self.pixels, "4 suits pictures of 32 pixels", least=1)
        check_reach("pixels", self.pixels, 0, 2**31, "4 suits pictures of 32 pixels")
        require(self.views in (5, 9), "views", "be 5 or 9", repr(self.views), "5 is the picture and one step to each side")

    @property
    def amounts(self) -> tuple[float, ...]:
        """The number of a way."""
        return tuple(map(float, range(1, self.views)))

    def apart(self, first: float, second: float) -> float:
        ways = zip(WAYS[int(first)][0], WAYS[int(second)][0], strict=True)
        return max(abs(one - other) for one, other in ways)

    def takes(self, x: Tensor) -> bool:
        return super().takes(x) and min(x.shape[2:]) > self.pixels

    def changed(self, x: Tensor, amount: float) -> Tensor:
        down, right = WAYS[int(amount)][0]
        rows, columns = (
            reflected(length, -way * self.pixels, x.device) for length, way in zip(x.shape[2:], (down, right), strict=True)
        )
        return x[:, :, rows[:, None], columns]

    def described(self, amount: float) -> str:
        return f"moved {self.pixels} pixels {WAYS[int(amount)][1]}"


WAYS = (  # down and right, and what it is called
    ((0, 0), "nowhere"),
    *(((0, -1), "left"), ((0, 1), "right"), ((-1, 0), "up"), ((1, 0), "down")),
    *(((-1, -1), "up and left"), ((-1, 1), "up and right"), ((1, -1), "down and left"), ((1, 1), "down and right")),
)


@dataclass(frozen=True)
class Mirror(One):
    """Mirrored from left to right."""

    def changed(self, x: Tensor, amount: float) -> Tensor:
        return x.flip(3)

    def described(self, amount: float) -> str:
        return "mirrored"


def resampled(x: Tensor, source: tuple[tuple[float, float], tuple[float, float]]) -> Tensor:
    """Pictures whose pixel at a place (right, down) from the centre comes from where ``source``, a matrix, takes that place."""
    height, width = x.shape[2:]

    def middle(size: int) -> Tensor:
        return torch.arange(size, dtype=torch.float64, device=x.device) - (size - 1) / 2

    right, down = middle(width)[None, :], middle(height)[:, None]
    ways = [(first * right + second * down) * 2 / size for (first, second), size in zip(source, (width, height), strict=True)]
    grid = torch.stack(ways, -1).to(x.dtype).expand(x.shape[0], -1, -1, -1)  # edges lie at -1 and 1
    return grid_sample(x, grid, "bilinear", "reflection", align_corners=False)


def reflected(length: int, shift: int, device: torch.device) -> Tensor:
    """Positions from ``shift`` on, reflected at the first and the last one."""
    last = length - 1
    return last - (last - (torch.arange(length, device=device) + shift).abs()).abs()


def evenly(views: int) -> list[float]:
    """Shares from -1 to 1 in equal steps, without 0 in the middle."""
    half = views // 2
    return [number / half for number in range(-half, half + 1) if number]


def check_odd(views: object, remedy: str) -> None:
    """An odd number of views, so that the input itself is in the middle."""
    odd = isinstance(views, int) and not isinstance(views, bool) and views >= 3 and views % 2 == 1
    require(odd, "views", "be an odd number of at least 3, the input itself among them", short(views), remedy)
    assert isinstance(views, int)
    check_most(views)


def check_most(views: int) -> None:
    """No more views than a set may have, before any is made."""
    require(views <= MOST_VIEWS, "views", f"be at most {MOST_VIEWS}", short(views), "every view costs a pass of the model")


def short(value: object) -> str:
    """A value for an error, however long it is."""
    return repr(value)[:40]


def check_reach(name: str, value: object, low: float, high: float, remedy: str) -> None:
    """A number above ``low``, and not above ``high``."""
    fits = isinstance(value, Real) and not isinstance(value, bool) and not value <= low and value <= high and value < math.inf
    most = f", {high:g} at most" if high < math.inf else ", and finite"
    require(fits, name, f"be a number above {low:g}{most}", short(value), remedy)
