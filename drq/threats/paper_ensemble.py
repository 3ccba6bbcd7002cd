"""Make the attacks of the paper's Table 7. Each runs on all samples; the worst case over them is computed from records."""

from __future__ import annotations

from typing import Any, Literal

from drq.errors import require
from drq.method.execution import check_radius
from drq.search.loop import check_steps
from drq.threats.attacks import PGDAttack, PGDNoise
from drq.threats.third_party import AutoAttack
from drq.threats.threat import Threat

L2_BESIDE_8_255 = 0.5  # the radius of APGD in l2, which the paper does not state


def ensemble(
    radius: float,
    norm: Literal["linf", "l2"] = "linf",
    *,
    beta: int = 1,
    l2_radius: float | None = None,
    seed: int = 0,
    batch: int = 100,
) -> dict[str, Threat]:
    """Return the paper's ensemble of attacks, by the names in its Table 7; needs the extra ``attacks``.

    Args:
        radius: the radius of the ball.
        norm: "linf" or "l2".
        beta: multiplies iterations and queries (Section 5.3 has 2 and 4).
        l2_radius: the radius of APGD in l2; None is in proportion to 0.5 for a linf radius of 8/255. With norm "l2" that attack
            equals APGD-CE and is left out.
        seed: the seed of AutoAttack's members.
        batch: how many samples AutoAttack's members attack together.

    >>> list(ensemble(8 / 255))
    ['FAB', 'Square', 'APGD-L2', 'APGD-CE', 'PGD-noise', 'PGD-attack', 'APGD-DLR']
    """
    check_radius(radius)
    check_steps("beta", beta, "1 is the paper's standard setting")
    require(norm in ("linf", "l2"), "norm", "be 'linf' or 'l2'", repr(norm), "the paper's ensemble has no other")
    beside = L2_BESIDE_8_255 * radius / (8 / 255) if l2_radius is None else l2_radius
    drawn: dict[str, Any] = {"seed": seed, "batch": batch}
    attacks: dict[str, Threat] = {
        "FAB": AutoAttack(norm, radius, "fab-t", 100 * beta, **drawn),
        "Square": AutoAttack(norm, radius, "square", 5000 * beta, **drawn),
        "APGD-L2": AutoAttack("l2", beside, "apgd-ce", 100 * beta, **drawn),
        "APGD-CE": AutoAttack(norm, radius, "apgd-ce", 100 * beta, **drawn),
        "PGD-noise": PGDNoise(norm, radius, 100 * beta),
        "PGD-attack": PGDAttack(norm, radius, 100 * beta),
        "APGD-DLR": AutoAttack(norm, radius, "apgd-dlr", 100 * beta, **drawn),
    }
    if norm == "l2":
        del attacks["APGD-L2"]
    return attacks
