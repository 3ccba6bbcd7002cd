"""Functions on lattices, for the propositions of Appendix A."""

import torch
from hypothesis import settings
from hypothesis import strategies as st

from drq import theory

NORMS = ("l1", "l2", "linf")
ALPHAS = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)
ROUNDING = 1e-12  # of a few operations on numbers in [0, 1]
STEPS = {1: 20, 2: 8}  # lattice steps a radius, by dimension


def random_classifier(kind, dimension, seed):
    random = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=random, dtype=torch.float64)

    slope, shift, height = 3 * normal(dimension, 6), normal(6), 2 * normal(6)
    center, mix = normal(6, dimension), normal(6, 6)

    def bumps(x):
        return (torch.exp(-3 * (x[:, None] - center).square().sum(2)) @ height).sigmoid()

    def sigmoids(x):
        return (x @ slope + shift).sigmoid() @ height.softmax(0)

    def network(x):
        return (((x @ slope + shift).tanh() @ mix).tanh() @ height).sigmoid()

    return {"bumps": bumps, "sigmoids": sigmoids, "network": network}[kind]


@st.composite
def neighbourhoods(draw, count=8, descents=0):
    """Some points of a random classifier, on lattices that their balls do and do not touch; after some descents on them."""
    dimension, seed = draw(st.integers(1, 2)), draw(st.integers(0, 2**31))
    u = random_classifier(draw(st.sampled_from(["bumps", "sigmoids", "network"])), dimension, seed)
    x = torch.randn(count, dimension, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    radius, norm = draw(st.floats(0.1, 2)), draw(st.sampled_from(NORMS))
    spacing = radius / (STEPS[dimension] + draw(st.sampled_from([0, 0.4])))
    for _ in range(descents):
        around = theory.look_around(u, x, norm, radius, spacing)
        x = x + around.offset[around.value.masked_fill(~around.ball(2), torch.inf).argmin(1)]
    return theory.look_around(u, x, norm, radius, spacing)


def many_examples(test):
    return settings(deadline=None, derandomize=True, max_examples=50)(test)


def bowl(matrix, bottom, quartic=0.0):
    """bottom + v'Av + quartic |v|^4 around 0; strongly convex with the constant of v'Av, since the rest is convex."""

    def u(x):
        square = x.square().sum(1)
        return (bottom + torch.einsum("ni,ij,nj->n", x, matrix, x) + quartic * square**2).clamp(max=1)

    return u
