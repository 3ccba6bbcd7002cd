"""Made-up records with holes."""

import numpy as np
import polars as pl

from testbed.synthetic import records as made_up

THREATS = {"clean": "clean", "FAB": "ensemble", "Square": "ensemble", "PGD": "ensemble"}
DEFENCES = ("standard", "DRQ linf", "DRQ l2")


def trial(images=60, seed=0, victims=("base", "defence"), **options):
    """Records with holes: the answers of every victim are drawn anew, and some threats reach fewer samples."""
    options = {"threats": THREATS, "defences": DEFENCES} | options
    parts = []
    for number, victim in enumerate(victims):
        part = made_up(images, seed=seed + number, **options).with_columns(victim=pl.lit(victim))
        draws = np.random.default_rng(seed + number)
        withstood = (part["base_prediction"] == part["label"]) & pl.Series(draws.random(len(part)) < 0.9)
        costs = {"passes": pl.Series(draws.integers(1, 500, len(part))), "seconds": pl.Series(draws.random(len(part)))}
        parts.append(part.with_columns(base_withstood=withstood, **costs))
    whole = pl.concat(parts)
    short = (pl.col("threat") == "Square") & (pl.col("index") >= 2 * images // 3)
    step = pl.col("defence").replace_strict({"standard": 11, "DRQ l2": 7}, default=images)
    holes = (pl.col("threat") == "FAB") & (pl.col("index") % step == 0)
    missing = (pl.col("model") == "b") & (pl.col("threat") == "PGD") & (pl.col("defence") == "DRQ l2")
    return whole.filter(~short, ~holes, ~missing)
