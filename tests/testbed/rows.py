"""Rows of records that nobody measured, with values of every kind."""

import numpy as np

from drq.evaluation.records import COLUMNS, DTYPES, NOTHING, SCHEMA_VERSION


def made_up(count: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Rows of every kind of value, with nothing in some places of every column that may have nothing."""
    draws, found = np.random.default_rng(seed), {}
    for name, column in COLUMNS.items():
        values = {
            "str": np.array([f"{name} é {each}" for each in draws.integers(0, 3, count)]),
            "int": draws.integers(0, 2**62, count),
            "float": draws.normal(size=count),
            "bool": draws.integers(0, 2, count),
        }[column.kind]
        empty = (draws.random(count) < 0.3) & column.nullable
        found[name] = np.where(empty, NOTHING[column.kind], values).astype(DTYPES[column.kind])
    return found | {"schema_version": np.full(count, SCHEMA_VERSION), "index": np.arange(count)}
