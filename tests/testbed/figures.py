"""Made-up records behind the figures of the paper."""

import numpy as np
import polars as pl

from drq.reproduction.kept_records import condense_rows
from testbed.synthetic import records

STEPS = ((1, 20), (5, 20), (20, 20), (20, 5))
RADII = {"FAB": 8 / 255, "Square": 8 / 255, "FAB wide": 16 / 255}
SUITES = {"clean": "clean", "FAB": "ensemble 8/255", "Square": "ensemble 8/255", "FAB wide": "ensemble 16/255"}


def stepped():
    """A defence for each pair of steps."""
    parts = []
    for explore, quantify in STEPS:
        name = f"DRQ {explore}+{quantify}"
        part = records(models=("a",), defences=(name,), threats={"clean": "clean", "PGD": "PGD"}, seed=explore + 100 * quantify)
        steps = {"explore_steps": pl.lit(explore, pl.Int64), "quantify_steps": pl.lit(quantify, pl.Int64)}
        parts.append(part.with_columns(**steps))
    return pl.concat([records(models=("a",), defences=("standard",), threats={"clean": "clean", "PGD": "PGD"}), *parts])


def calibrated(thresholds=(0.1, 0.5, 0.9, 0.999), factor=3.0):
    """A defence for each threshold; the higher, the more samples have no radius."""
    random, parts = np.random.default_rng(0), []
    for number, threshold in enumerate(thresholds):
        part = records(models=("a",), defences=(f"DRQ c={threshold}",), threats={"clean": "clean"})
        radius = [None if random.random() < 0.1 * number else random.lognormal() * factor**number for _ in range(len(part))]
        parts.append(part.with_columns(threshold=pl.lit(threshold), radius=pl.Series(radius, dtype=pl.Float64)))
    return pl.concat(parts)


def attacked(*models):
    """As the records of Figure 2."""
    radius = pl.col("threat").replace_strict(RADII, default=None, return_dtype=pl.Float64)
    frame = records(50, models=models, threats=SUITES, defences=("standard", "DRQ l2", "DRQ linf"))
    return frame.with_columns(threat_radius=radius)


RUNS = {"figure2": attacked("cifar10-linf"), "figure3": stepped(), "figure4": calibrated(), "figure5": records(models=("a",))}
MADE = {name: condense_rows(frame) for name, frame in RUNS.items()}  # as they are kept
