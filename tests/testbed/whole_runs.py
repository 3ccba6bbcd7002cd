"""A made-up run with something of everything: attacks on the model and on the defence, corruptions, steps, calibration."""

from typing import Any

import numpy as np
import polars as pl

from testbed.synthetic import records

CORRUPTIONS = ("fog", "frost", "snow", "gaussian_noise", "jpeg_compression")


def everything(images: int = 100, seed: int = 0, model: str = "cifar10-linf") -> pl.DataFrame:
    """Records of that run."""
    one = {"images": images, "models": (model,)}
    attacks = {"clean": "clean", "rotation": "rotation", "FAB": "ensemble", "Square": "ensemble", "APGD-CE": "ensemble"}
    three = ("standard", "DRQ linf", "DRQ l2")
    parts = [records(**one | {"models": (model, "other")}, defences=three, threats=attacks, seed=seed)]
    attacked = records(**one, defences=three[1:], threats={"red team": "red team"}, seed=seed + 1)
    parts.append(attacked.with_columns(victim=pl.lit("defence")))
    corrupted = tuple(f"cifar10-c/{kind}/5" for kind in CORRUPTIONS)
    parts.append(records(**one, data=corrupted, threats={"clean": "clean"}, seed=seed + 2))
    for explore, quantify in ((1, 20), (5, 20), (10, 20), (20, 5)):
        steps = {"explore_steps": pl.lit(explore, pl.Int64), "quantify_steps": pl.lit(quantify, pl.Int64)}
        part = records(
            images, ("steps",), defences=(f"DRQ {explore}+{quantify}",), threats={"clean": "clean", "PGD": "PGD"}, seed=explore
        )
        parts.append(part.with_columns(**steps))
    for threshold in (0.1, 0.5, 0.9, 0.99):
        radii = np.random.default_rng(seed).lognormal(-np.log(1 - threshold) / 2, 0.4, images)
        part = records(images, ("calibrated",), defences=(f"DRQ c={threshold}",), threats={"clean": "clean"}, seed=seed)
        parts.append(part.with_columns(threshold=pl.lit(threshold), radius=pl.Series(radii)))
    return pl.concat(parts)


ABOUT: dict[str, Any] = {
    "name": "table4",
    "title": "Table 4: worst case over an ensemble of attacks",
    "spec": {"title": "Table 4", "seed": 0, "threats": {"clean": {}, "ensemble": {"norm": "linf", "radius": "8/255"}}},
    "spec_hash": "ab" * 32,
    "created": "2026-11-15T17:30:00+00:00",
    "command": "drq evaluate experiments/table4.toml --out runs/table4",
    "missing": [{"what": "robustbench:cifar100/Linf/Rice2020Overfitting", "why": "its weights are not on this machine"}],
    "history": [{"started": "2026-11-15T17:30:00+00:00", "seconds": 1234.5, "engine": "local", "device": "cpu"}],
}


def pictures(count: int = 3) -> list[dict[str, Any]]:
    """Examples to show: noise, in colour and in grey."""
    random = np.random.default_rng(0)
    shapes = [(32, 32, 3), (8, 8, 1), (20, 30, 3)]
    images = [random.integers(0, 256, shapes[number % 3], dtype=np.uint8) for number in range(count)]
    return [
        {"title": f"horse {number}", "caption": "standard: deer, DRQ: horse", "image": image}
        for number, image in enumerate(images)
    ]
