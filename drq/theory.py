r"""Binary theory (Appendix A): DRQ of a classifier :math:`u: \mathbb{R}^d \to [0, 1]`, exactly, on a lattice.

Balls are replaced by their points :math:`x + h k`, with integers k and a spacing h, and u is evaluated once at each of them.
Minima and maxima are then taken over finite sets, so the propositions, which compare extrema over nested sets, hold without any
tolerance. No gradient and no search is involved: this is what :class:`drq.DRQ` approximates.

Reference: Schwinn et al., Improving Robustness against Real-World and Worst-Case Distribution Shifts through Decision Region
Quantification, ICML 2022, Appendix A.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from drq.errors import require
from drq.method.adapters import Wrapper
from drq.norms import Norm, as_norm
from drq.rows import Rows

Binary = Callable[[Tensor], Tensor]  # (N, d) -> (N,), the confidence in class 1

ROUNDING = 1e-9  # relative: a multiple of the spacing that equals a radius in exact arithmetic counts as inside
MOST_POINTS = 50_000_000


@dataclass(frozen=True)
class BinaryDecision(Rows):
    """What binary DRQ found for N samples; columns are the classes 0 and 1. Indexing selects samples."""

    value: Tensor  # (N,) u(x)
    explored: Tensor  # (N, 2, d) the points x~_0 and x~_1
    explored_value: Tensor  # (N, 2) u(x~_0) and u(x~_1)
    quantified_value: Tensor  # (N, 2) u(x^_0) and u(x^_1)

    @property
    def robustness(self) -> Tensor:
        """(N, 2) the confidence in each class that remains after quantification: 1 - u(x^_0) and u(x^_1)."""
        return torch.stack([1 - self.quantified_value[:, 0], self.quantified_value[:, 1]], 1)

    @property
    def reached(self) -> Tensor:
        """(N, 2) bool: whether u assigns the explored point to its class, as Eq. 2 asks and the appendix does not."""
        return torch.stack([self.explored_value[:, 0] < 0.5, self.explored_value[:, 1] >= 0.5], 1)

    @property
    def score(self) -> Tensor:
        """(N,) u_DRQ: the value of u at the quantified point of the more robust class."""
        robustness, (zero, one) = self.robustness, self.quantified_value.unbind(1)
        return torch.where(robustness[:, 0] >= robustness[:, 1], zero, one)  # Eq. 6

    @property
    def rounded(self) -> Tensor:
        """(N,) the score rounded to a label, 1 from 1/2 on. It contradicts ``label`` where both robustnesses are below 1/2."""
        return (self.score >= 0.5).long()  # Eq. 6

    @property
    def base_label(self) -> Tensor:
        """(N,) the label of u itself, 1 from 1/2 on."""
        return (self.value >= 0.5).long()

    @property
    def label(self) -> Tensor:
        """(N,) the more robust class (Eq. 3) when exploration searches the whole ball; ties go to the base label."""
        return _more_robust(self.robustness, self.base_label)

    @property
    def label_among_reached(self) -> Tensor:
        """(N,) the more robust class that exploration reached (Eq. 2 and 3), which is what :class:`drq.DRQ` answers."""
        return _more_robust(torch.where(self.reached, self.robustness, -1), self.base_label)


def _more_robust(robustness: Tensor, base_label: Tensor) -> Tensor:
    zero, one = robustness.unbind(1)
    return torch.where(zero == one, base_label, (one > zero).long())


@dataclass(frozen=True)
class Neighbourhood:
    r"""The values of u at the lattice points of a box that holds :math:`B_p(x; 2\epsilon)`, for every x.

    Made by :func:`look_around`. All balls that binary DRQ asks about lie in it, so nothing is evaluated twice.
    """

    x: Tensor  # (N, d)
    offset: Tensor  # (T, d) from x to the lattice points, the same for every x; the middle one is 0
    length: Tensor  # (T,) of the offsets
    value: Tensor  # (N, T) u at x + offset
    radius: float

    def ball(self, share: float) -> Tensor:
        """(T,) bool: the offsets no longer than this share of the radius."""
        rule = "lie in [0, 2]"
        require(0 <= share <= 2, "share of the radius", rule, share, "look around with a larger radius to see farther")
        return self.length <= share * self.radius * (1 + ROUNDING)

    def decide(self, alpha: float = 0.5) -> BinaryDecision:
        """Explore both classes in the ball around x, then quantify in the smaller balls around what was found."""
        require(0 <= alpha <= 1, "alpha", "lie in [0, 1]", alpha, "the paper uses 0.5")
        outside, middle = ~self.ball(1), len(self.offset) // 2
        lowest = self.value.masked_fill(outside, torch.inf).argmin(1)  # x~_0
        highest = self.value.masked_fill(outside, -torch.inf).argmax(1)  # x~_1
        steps = self.ball(alpha).nonzero()[:, 0] - middle  # from a lattice point to the others in a ball around it
        zero = self.value.gather(1, lowest[:, None] + steps).amax(1)  # u(x^_0)
        one = self.value.gather(1, highest[:, None] + steps).amin(1)  # u(x^_1)
        found = torch.stack([lowest, highest], 1)
        explored = self.x[:, None] + self.offset[found]
        return BinaryDecision(self.value[:, middle], explored, self.value.gather(1, found), torch.stack([zero, one], 1))

    def is_minimum(self, width: float = 2.0) -> Tensor:
        """(N,) bool: whether no value within ``width`` radii is below u(x)."""
        return self.value[:, self.ball(width)].amin(1) == self.value[:, len(self.offset) // 2]  # A.2

    def sharpness(self, alpha: float) -> Tensor:
        r"""(N,) how far u rises: :math:`g_\epsilon(\alpha) = \max_{B_p(x; \alpha\epsilon)} u - \min_{B_p(x; \epsilon)} u`."""
        return self.value[:, self.ball(alpha)].amax(1) - self.value[:, self.ball(1)].amin(1)  # Eq. 11

    def lower_bound(self, alpha: float, convexity: float | Tensor) -> Tensor:
        """(N,) what the score cannot fall below where x is a minimum of twice the radius (Proposition A.4).

        ``convexity`` is the constant mu for which u rises above its tangents by mu times the squared length.
        """
        far_side = convexity * ((1 - alpha) * self.radius) ** 2
        return self.value[:, len(self.offset) // 2] + torch.clamp(self.sharpness(alpha), max=far_side)  # Eq. 13


@torch.no_grad()
def look_around(u: Binary, x: Tensor, norm: str | Norm, radius: float, spacing: float) -> Neighbourhood:
    r"""Evaluate u on the lattice :math:`x + h k` around every x, once and for all radii up to :math:`2\epsilon`.

    Args:
        u: binary classifier, (N, d) -> (N,) confidence in class 1; row by row.
        x: (N, d), with a small d: the number of points grows like (4 radius / spacing) to the power of d.
        norm: "linf", "l2", "l1" or a :class:`Norm`.
        radius: of exploration. Balls touch their boundary where it is a multiple of the spacing.
        spacing: distance of neighbouring lattice points.

    >>> around = look_around(lambda x: x[:, 0].sigmoid(), torch.tensor([[0.5]]), "l2", radius=2.0, spacing=0.5)
    >>> decision = around.decide(alpha=0.5)
    >>> decision.explored[0, :, 0], decision.quantified_value.logit()
    (tensor([-1.5000,  2.5000]), tensor([[-0.5000,  1.5000]]))
    >>> decision.label, decision.score.logit()
    (tensor([1]), tensor([1.5000]))
    """
    require(x.dim() == 2, "x", "be a batch of vectors, (N, d)", f"shape {tuple(x.shape)}", "flatten it, or add x[None]")
    require(radius >= 0, "radius", "be at least 0", radius, "0 is the undefended classifier")
    require(spacing > 0, "spacing", "be above 0", spacing, "a tenth of the radius is a start")
    reach = int(2 * radius * (1 + ROUNDING) / spacing)
    count = len(x) * (2 * reach + 1) ** x.shape[1]
    require(count <= MOST_POINTS, "spacing", f"give at most {MOST_POINTS:.0g} points", f"{count:.2g}", "use a larger one")

    whole = torch.arange(-reach, reach + 1, dtype=torch.float64, device=x.device)
    offset = spacing * torch.cartesian_prod(*[whole] * x.shape[1]).reshape(-1, x.shape[1])
    points = x[:, None] + offset.to(x.dtype)
    value = u(points.flatten(0, 1)).reshape(len(x), len(offset))
    inside = bool(((value >= 0) & (value <= 1)).all())
    require(inside, "u", "return values in [0, 1]", f"{value.min():.4g} to {value.max():.4g}", "apply a sigmoid")
    return Neighbourhood(x, offset.to(x.dtype), as_norm(norm).length(offset), value, radius)


class TwoLogits(Wrapper):
    """The model with logits 0 and logit(u), so that :class:`drq.DRQ` can be run on u; u must stay strictly inside (0, 1).

    >>> TwoLogits(lambda x: x[:, 0].sigmoid())(torch.tensor([[2.0]]))
    tensor([[0.0000, 2.0000]])
    """

    def forward(self, x: Tensor) -> Tensor:
        """(N, d) -> (N, 2)."""
        logit = torch.logit(self.model(x))
        return torch.stack([torch.zeros_like(logit), logit], 1)
