"""Define views that change the tones of pictures in [0, 1]: contrast and detail restored, gamma, noise and blur taken out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from drq.errors import require
from drq.restoration import Restoration, blurred
from drq.views.spatial import OfPictures, One, check_reach
from drq.views.view import Family

DARKEST = 1e-6  # below which a power is taken to be 0: its slope there may be infinite


class Toned(OfPictures):
    """A family of views of pictures in [0, 1]."""

    unit_range: ClassVar[bool] = True
    stays: ClassVar[bool] = False  # bounds may be narrower


@dataclass(frozen=True, init=False)
class Powers(Family):
    """A family of powers of inputs in [0, 1]; every exponent makes a view."""

    remedy: ClassVar[str]  # what exponents do, for errors
    told_by_amount: ClassVar[bool] = True
    exponents: tuple[float, ...]

    def __init__(self, *exponents: float) -> None:
        for each in exponents:
            check_reach("exponents", each, 0, 16, self.remedy)
        object.__setattr__(self, "exponents", exponents or self.exponents)  # which is the default until it is set

    @property
    def amounts(self) -> tuple[float, ...]:
        return self.exponents

    def changed(self, x: Tensor, amount: float) -> Tensor:
        return power(x, amount)


@dataclass(frozen=True)
class Contrast(One, Toned):
    """Every channel stretched to its full range, which fog and haze narrow."""

    def changed(self, x: Tensor, amount: float) -> Tensor:
        return Restoration(detail=None)(x)

    def described(self, amount: float) -> str:
        return "stretched"


@dataclass(frozen=True)
class Detail(One, Toned):
    """Stretched, then fine detail scaled to the share of contrast that it has in clear pictures: :class:`drq.Restoration`.

    Args:
        detail: that share, which depends on the size of pictures: :meth:`like` measures it. 0.25 suits 32 x 32 pixels.
    """

    detail: float = 0.25

    def __post_init__(self) -> None:
        require(self.detail is not None, "detail", "be a number above 0", None, "drq.views.Contrast() stretches alone")
        Restoration(self.detail)

    def like(self, x: Tensor) -> Detail:
        """For pictures such as the clear ones ``x`` (N, C, H, W); some dozens are enough, without labels."""
        return Detail(float(f"{Restoration.like(x).detail:.4g}"))

    def changed(self, x: Tensor, amount: float) -> Tensor:
        return Restoration(self.detail)(x)

    def described(self, amount: float) -> str:
        return "restored"


@dataclass(frozen=True, init=False)
class Gamma(Powers, Toned):
    """Brighter with exponents below 1, darker above: every value to the power of the exponent.

    Args:
        exponents: one for each view besides the picture.

    >>> Gamma(0.5).changed(torch.tensor([[[[0.25]]]]), 0.5)
    tensor([[[[0.5000]]]])
    """

    remedy: ClassVar[str] = "below 1 makes brighter, above 1 darker"
    exponents: tuple[float, ...] = (0.6, 1.6)

    def described(self, amount: float) -> str:
        return f"{'brighter' if amount < 1 else 'darker'}, gamma {amount:.3g}"


@dataclass(frozen=True)
class Denoise(One):
    """Every value the median of the 3 x 3 around it, which takes single wrong pixels out."""

    def changed(self, x: Tensor, amount: float) -> Tensor:
        return median(x)

    def described(self, amount: float) -> str:
        return "median"


@dataclass(frozen=True)
class Blur(One):
    """Every value a weighted mean of the 3 x 3 around it, which takes fine noise out."""

    def changed(self, x: Tensor, amount: float) -> Tensor:
        return blurred(x)

    def described(self, amount: float) -> str:
        return "blurred"


@dataclass(frozen=True)
class Sharpen(One, Toned):
    """What a 3 x 3 blur takes away, added once more.

    Args:
        amount: how much of it.
    """

    amount: float = 1.0

    def __post_init__(self) -> None:
        check_reach("amount", self.amount, 0, 16, "1 adds it once")

    def changed(self, x: Tensor, amount: float) -> Tensor:
        return (x + self.amount * (x - blurred(x))).clamp(0, 1)

    def described(self, amount: float) -> str:
        return "sharpened"


def power(x: Tensor, exponent: float) -> Tensor:
    """Values of at least 0 to a power, with a finite slope everywhere."""
    return torch.where(x > DARKEST, x.clamp(min=DARKEST) ** exponent, 0)


def median(x: Tensor) -> Tensor:
    """The median of the 3 x 3 around every value, edges reflected: of sorted columns it is between lows, middles and highs.

    Minima and maxima of whole pictures are quicker than sorting nine values everywhere.
    """
    height, width = x.shape[2:]
    rows = pad(x, (1, 1, 1, 1), "reflect")
    low, middle, high = _sorted(*(rows[:, :, first : first + height] for first in range(3)))
    left, centre, right = ([each[..., first : first + width] for each in (low, middle, high)] for first in range(3))
    highest_low = torch.maximum(torch.maximum(left[0], centre[0]), right[0])
    lowest_high = torch.minimum(torch.minimum(left[2], centre[2]), right[2])
    return _sorted(highest_low, _sorted(left[1], centre[1], right[1])[1], lowest_high)[1]


def _sorted(first: Tensor, second: Tensor, third: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Three values at every place, from the lowest to the highest."""
    first, second = torch.minimum(first, second), torch.maximum(first, second)
    second, third = torch.minimum(second, third), torch.maximum(second, third)
    first, second = torch.minimum(first, second), torch.maximum(first, second)
    return first, second, third
