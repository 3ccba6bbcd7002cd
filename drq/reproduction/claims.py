"""What the paper claims in its text, and what its records say of it."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from drq.evaluation.paper import CLAIMS, folder
from drq.reproduction import attack_measures, measures
from drq.reproduction.verdicts import Finding

if TYPE_CHECKING:
    import polars
MEASURES = measures.MEASURES | attack_measures.MEASURES


@dataclass(frozen=True)
class Claim:
    """What the paper says in its text, and what tells whether it is so."""

    name: str
    where: str  # section of the paper
    says: str
    experiments: tuple[str, ...]  # specs whose records it needs
    measure: str  # its function in measures.py


def claims() -> dict[str, Claim]:
    """The claims of the paper's text, by name.

    >>> claims()["half-alpha"].experiments
    ('alpha',)
    """
    tables = tomllib.loads((folder() / CLAIMS).read_text(encoding="utf-8"))["claims"]
    made = [Claim(**{**table, "experiments": tuple(table["experiments"])}) for table in tables]
    return {claim.name: claim for claim in made}


def find(claim: Claim, records: polars.DataFrame) -> Finding | None:
    """What records say of a claim; None where they lack what it needs.

    Args:
        claim: of :func:`claims`.
        records: those of its experiments, stacked.
    """
    return MEASURES[claim.measure](records)
