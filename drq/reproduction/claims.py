"""Read the claims of the paper's text, and judge each by records."""

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
    """A claim of the paper's text, and how it is measured."""

    name: str
    where: str  # section of the paper
    says: str
    experiments: tuple[str, ...]  # specs whose records it needs
    measure: str  # name of its function in MEASURES


def claims() -> dict[str, Claim]:
    """Return the claims of the paper's text by name.

    >>> claims()["half-alpha"].experiments
    ('alpha',)
    """
    tables = tomllib.loads((folder() / CLAIMS).read_text(encoding="utf-8"))["claims"]
    all_claims = [Claim(**{**table, "experiments": tuple(table["experiments"])}) for table in tables]
    return {claim.name: claim for claim in all_claims}


def judge(claim: Claim, records: polars.DataFrame) -> Finding | None:
    """Judge a claim by records; None where they lack what it needs.

    Args:
        claim: one of :func:`claims`.
        records: the records of its experiments, concatenated.
    """
    return MEASURES[claim.measure](records)
