"""Measure how often, and by how much, DRQ with gradient searches departs from the propositions of Appendix A.

On a lattice the propositions hold exactly; a gradient search of 20 + 20 steps only approximates the extrema that they are about.
Random classifiers on a line and in a plane show the difference. ``python -m tools.benchmarks.propositions`` prints a Markdown
table.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor, nn

import drq
from drq import theory
from drq.norms import as_norm

RADIUS, ALPHAS, INPUTS, UNITS = 1.0, (0.0, 0.25, 0.5, 0.75, 1.0), 4, 8
STEPS = {1: 64, 2: 16}  # lattice steps a radius, by dimension
CORNERS = {"l1": [[1.0, 0], [0, 1], [-1, 0]], "linf": [[1.0, -1], [1, 1], [-1, 1]]}  # half of the unit sphere, edge by edge
ROUNDING = 1e-9  # smaller departures are rounding errors


class Family(nn.Module):
    """Many functions u_k of d features in one module: the last feature of an input is k, so that one batch evaluates them all."""

    count: int
    dimension: int

    def member(self, number: int) -> theory.Binary:
        """Return the function u_k alone, of d features."""
        return lambda point: self(torch.cat([point, torch.full_like(point[:, :1], number)], 1))

    def batch(self, points: Tensor) -> Tensor:
        """Return inputs (count * P, d + 1) for points (count, P, d), so that every function gets its own P points."""
        number = torch.arange(self.count, dtype=points.dtype)[:, None, None].expand(-1, points.shape[1], 1)
        return torch.cat([points, number], 2).flatten(0, 1)


class RandomClassifiers(Family):
    """Sigmoids of a sum of bumps (even numbers) or of waves, that is of a small network (odd numbers)."""

    def __init__(self, count: int, dimension: int, seed: int) -> None:
        super().__init__()
        self.count, self.dimension = count, dimension
        random = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(shape, generator=random, dtype=torch.float64)

        self.center, self.slope = 2.5 * normal(count, UNITS, dimension), 2 * normal(count, UNITS, dimension)
        self.width, self.height = 0.3 + normal(count, UNITS).abs(), 2 * normal(count, UNITS)
        self.shift = 0.5 * normal(count)

    def forward(self, point: Tensor) -> Tensor:
        """(N, d + 1) -> (N,)."""
        number = point[:, -1].long()
        away = point[:, None, :-1] - self.center[number]
        bump = torch.exp(-0.5 * away.square().sum(2) / self.width[number] ** 2)
        wave = torch.tanh((self.slope[number] * away).sum(2))
        unit = torch.where(number[:, None] % 2 == 0, bump, wave)
        return ((self.height[number] * unit).sum(1) + self.shift[number]).sigmoid()


class Quadratics(Family):
    """u = bottom + v'Av around a minimum at 0, scaled to reach 0.99 at the far side of the ball of twice the radius."""

    def __init__(self, count: int, dimension: int, norm: str, seed: int) -> None:
        super().__init__()
        self.count, self.dimension = count, dimension
        random = torch.Generator().manual_seed(seed)
        root = torch.randn((count, dimension, dimension), generator=random, dtype=torch.float64)
        matrix = root @ root.mT + 0.1 * torch.eye(dimension)
        self.bottom = 0.2 + 0.3 * torch.rand(count, generator=random, dtype=torch.float64)
        highest = extremes(matrix, norm)[1] * (2 * RADIUS) ** 2
        self.matrix = matrix * ((0.99 - self.bottom) / highest)[:, None, None]
        self.convexity = extremes(self.matrix, norm)[0]

    def forward(self, point: Tensor) -> Tensor:
        """(N, d + 1) -> (N,)."""
        away, number = point[:, :-1], point[:, -1].long()
        rise = torch.einsum("ni,nij,nj->n", away, self.matrix[number], away)
        return (self.bottom[number] + rise).clamp(max=0.999)  # the clamp acts outside the ball only


def extremes(matrix: Tensor, norm: str) -> tuple[Tensor, Tensor]:
    """Return the least and the largest v'Av of vectors v of length 1, for every A (N, d, d) with d at most 2.

    The least one is the constant mu of strong convexity in this norm.
    """
    if matrix.shape[1] == 1 or norm == "l2":
        values = torch.linalg.eigvalsh(matrix)
        return values[:, 0], values[:, -1]
    corner = torch.tensor(CORNERS[norm], dtype=matrix.dtype)
    start, edge = corner[:-1], corner[1:] - corner[:-1]
    cross, curve = (torch.einsum("ei,nij,ej->ne", edge, matrix, each) for each in (start, edge))
    nearest = start + edge * (-cross / curve).clamp(0, 1)[:, :, None]  # a quadratic along an edge has one lowest point
    least = torch.einsum("nei,nij,nej->ne", nearest, matrix, nearest).amin(1)
    return least, torch.einsum("ei,nij,ej->ne", corner, matrix, corner).amax(1)


def by_gradient(family: Family, point: Tensor, norm: str, alpha: float, search: drq.Search) -> theory.BinaryDecision:
    """Run drq.DRQ on a batch of the family, and return a binary decision; a class that was not reached has robustness 0."""
    which_function = torch.tensor([False] * family.dimension + [True])
    searches = {"explore": search, "quantify": search, "prune": "none", "keep_points": True}
    space = {"bounds": None, "frozen": which_function}
    decision = drq.DRQ(theory.TwoLogits(family), norm, RADIUS, alpha=alpha, **searches, **space).decide(point)

    def values(log_odds: Tensor) -> Tensor:
        return torch.stack([-log_odds[:, 0], log_odds[:, 1]], 1).sigmoid()

    return theory.BinaryDecision(family(point), decision.explored, values(decision.explored_log_odds), values(decision.log_odds))


def on_lattice(family: Family, points: Tensor) -> list[theory.Neighbourhood]:
    """Return the neighbourhoods of the points (count, P, d), function by function."""
    spacing = RADIUS / STEPS[family.dimension]
    return [theory.look_around(family.member(number), x, "l2", RADIUS, spacing) for number, x in enumerate(points)]


def in_norm(arounds: list[theory.Neighbourhood], norm: str) -> list[theory.Neighbourhood]:
    """Return the same neighbourhoods with lengths in another norm."""
    return [replace(around, length=as_norm(norm).length(around.offset)) for around in arounds]


def lowest_points(family: Family) -> Tensor:
    """Return the lowest point (count, 1, d) of each function in a box, by a lattice that is refined around it."""
    whole = torch.linspace(-1, 1, 21, dtype=torch.float64)
    lattice = torch.cartesian_prod(*[whole] * family.dimension).reshape(-1, family.dimension)
    best, reach = torch.zeros(family.count, 1, family.dimension, dtype=torch.float64), 4.0
    for _ in range(20):
        points = best + reach * lattice
        value = family(family.batch(points)).reshape(family.count, -1)
        best, reach = points.gather(1, value.argmin(1)[:, None, None].expand_as(best)), reach / 3
    return best


def shortfall(lower: Tensor, upper: Tensor, reached: Tensor) -> Tensor:
    """Return by how much "class 0: lower <= upper, class 1: upper <= lower" is violated, where a class was reached."""
    return torch.stack([lower[:, 0] - upper[:, 0], upper[:, 1] - lower[:, 1]], 1)[reached]


def monotonicity(found: list[theory.BinaryDecision]) -> dict[str, Tensor]:
    """Return departures from Proposition A.1: its chain of inequalities in alpha, and both ends of the chain."""
    reached, value = found[0].reached, found[0].value[:, None].expand(-1, 2)
    chain = [each.quantified_value for each in found]
    links = [shortfall(low, high, reached) for low, high in pairwise(chain)]
    return {
        "A.1: larger alpha, more caution": torch.stack(links).amax(0),
        "A.1: alpha = 0 is bolder than u": shortfall(chain[0], value, reached),
        "A.1: alpha = 1 is more cautious than u": shortfall(value, chain[-1], reached),
    }


def wide_minima(found: list[theory.BinaryDecision]) -> dict[str, Tensor]:
    """Return departures from Proposition A.3, given decisions at minima that are wide enough."""
    below = [torch.where(each.reached, each.value[:, None] - each.quantified_value, -torch.inf).amax(1) for each in found]
    missed = [torch.maximum(low, each.value - each.score) for low, each in zip(below, found, strict=True)]
    return {"A.3: no lower at a wide minimum": torch.stack(missed).amax(0)}


def bound(family: Quadratics, norm: str, search: drq.Search) -> dict[str, Tensor]:
    """Return departures from Proposition A.4 at the minimum, where the gradient is zero, and just beside it."""
    minimum = torch.zeros(family.count, 1, family.dimension, dtype=torch.float64)
    beside = torch.randn(minimum.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    beside = 1e-6 * RADIUS * beside / beside.norm(dim=2, keepdim=True)
    arounds = in_norm(on_lattice(family, minimum), norm)
    measured = {}
    for name, x in (("A.4: bound, at the minimum", minimum), ("A.4: bound, just beside it", beside)):
        missed = []
        for alpha in ALPHAS[1:-1]:
            least = torch.cat([each.lower_bound(alpha, mu) for each, mu in zip(arounds, family.convexity, strict=True)])
            missed.append(least - by_gradient(family, family.batch(x), norm, alpha, search).score)
        measured[name] = torch.stack(missed).amax(0)
    return measured


def labels(searched: theory.BinaryDecision, exact: theory.BinaryDecision) -> dict[str, Tensor]:
    """Return disagreements between labels; each counts with the gap between the two robustnesses on the lattice."""
    pairs = {
        "label: search, lattice": (searched.label, exact.label_among_reached),
        "label: search, lattice without F = i": (searched.label, exact.label),
        "label: lattice with, without F = i": (exact.label_among_reached, exact.label),
        "label: rounded score, Eq. 3": (exact.rounded, exact.label),
    }
    gap = (exact.robustness[:, 0] - exact.robustness[:, 1]).abs()
    return {name: torch.where(one != other, gap.clamp(min=2 * ROUNDING), 0) for name, (one, other) in pairs.items()}


def measure(dimension: int, norms: list[str], count: int, search: drq.Search) -> Iterator[dict[str, Tensor]]:
    """Yield for each norm by how much each case of each statement departs; at most 0 where it holds."""
    family = RandomClassifiers(count, dimension, seed=dimension).eval()
    shape, random = (count, INPUTS, dimension), torch.Generator().manual_seed(10 + dimension)
    points = 6 * torch.rand(shape, generator=random, dtype=torch.float64) - 3
    lowest = lowest_points(family)
    arounds, lowest_arounds = on_lattice(family, points), on_lattice(family, lowest)
    for norm in norms:
        found = [by_gradient(family, family.batch(points), norm, alpha, search) for alpha in ALPHAS]
        exact = [around.decide(0.5) for around in in_norm(arounds, norm)]
        wide = torch.cat([around.is_minimum() for around in in_norm(lowest_arounds, norm)])
        at_minima = [by_gradient(family, family.batch(lowest)[wide], norm, alpha, search) for alpha in ALPHAS]
        yield {
            **monotonicity(found),
            **wide_minima(at_minima),
            **bound(Quadratics(count, dimension, norm, seed=20 + dimension).eval(), norm, search),
            **labels(found[ALPHAS.index(0.5)], exact[0].joined(exact[1:])),
        }


def cell(departure: Tensor) -> str:
    """Return the share of cases that depart, their number, and the median and largest departure."""
    real = departure[departure > ROUNDING]
    share = f"{100 * len(real) / len(departure):.1f}% of {len(departure)}"
    return share if not len(real) else f"{share} ({real.median():.1e}, {real.max():.1e})"


def table(count: int = 500, steps: int = 20) -> str:
    """Return the Markdown table, with a row for each statement and a column for each space."""
    norms, search = ["l1", "l2", "linf"], drq.Gradient(steps)
    spaces = [*measure(1, ["l2"], count, search), *measure(2, norms, count, search)]
    rows = [["statement", "line", *(f"plane, {norm}" for norm in norms)], ["---"] * 5]
    rows += [[name, *(cell(space[name]) for space in spaces)] for name in spaces[0]]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500, help="random classifiers in each dimension")
    parser.add_argument("--steps", type=int, default=20, help="steps of exploration, and of quantification")
    arguments = parser.parse_args()
    logging.getLogger("drq").setLevel(logging.ERROR)  # the cost of these calls is intended
    torch.set_num_threads(1)
    print(table(arguments.count, arguments.steps))
