"""What the pages of the reproduction are made of: runs that no model made."""

import json
from pathlib import Path

import numpy as np
import polars as pl

from drq.evaluation.run import Run
from drq.threats.corruptions.constants import KINDS
from testbed.synthetic import records

HISTORY = '{"seconds": 2.5, "samples": 60}\n{"seconds": 1.0, "samples": 20}\n{"seconds": 7.0, "samples": 0}\n'  # a last look
MODEL, IMAGES = "cifar10-linf", 200
MODELS, FEW = (MODEL, "cifar10-l2"), 60  # of gains
ENSEMBLE = ("FAB", "Square", "APGD-CE")
ATTACKS = {"APGD": "transferred", "APGD-T": "transferred"}
SHIFTS = {name: name for name in ("clean", "rotation", "translation", "rotations")}
NAMES = ("standard", "DRQ linf", "Hedge", "TENT")


def run(folder: Path, frame: pl.DataFrame, name: str, **spec) -> Run:
    """A run that no model made, as it lies in a directory."""
    about = {"spec": {"name": name, "seed": 3, "quick": True} | spec, "spec_hash": "ab" * 32, "title": "Made up", "missing": []}
    about |= {"versions": {"torch": "2.0"}, "created": "now", "models": {}, "data": {}, "tasks": []}
    (folder / "records").mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(about))
    (folder / "history.jsonl").write_text(HISTORY)
    frame.with_columns(experiment=pl.lit(name)).write_parquet(folder / "records" / "0000.parquet")
    return Run.open(folder)


def answers(right: dict[str, int], **more) -> pl.DataFrame:
    """Records in which a defence is right on so many of its images in every place, the first ones."""
    parts = [
        records(IMAGES, [MODEL], ["cifar10"], SHIFTS | ATTACKS, tuple(right)),
        records(IMAGES, [MODEL], [f"cifar10-c/{kind}/5" for kind in KINDS], {"clean": "clean"}, tuple(right)),
    ]
    number = pl.col("defence").replace_strict(right, return_dtype=pl.Int64)
    answer = pl.when(pl.col("index") < number).then("label").otherwise((pl.col("label") + 1) % 10)
    passes = pl.col("defence").replace_strict({"standard": 1, "DRQ linf": 290}, default=21, return_dtype=pl.Int64)
    return pl.concat(parts).with_columns(prediction=answer, passes=passes, **more)


def attacked(defended: int, static: int) -> pl.DataFrame:
    """Clean, transferred and adaptive rows of DRQ, right on so many images under attacks on itself."""
    plain = records(IMAGES, [MODEL], ["cifar10"], {"clean": "clean", "transferred": "transferred"}, NAMES[:2])
    team = records(IMAGES, [MODEL], ["cifar10"], {"red team": "red team"}, ("DRQ linf",))
    answer = pl.when(pl.col("index") < defended).then("label").otherwise((pl.col("label") + 1) % 10)
    team = team.with_columns(victim=pl.lit("defence"), prediction=answer, base_withstood=pl.col("index") < static)
    return pl.concat([plain, team])


def table4(fixed: int, spoiled: int, images: int = 1000) -> pl.DataFrame:
    """Table 4 with a stand-in: standard is wrong on the first half under FAB alone, DRQ changes as many answers as it is told."""
    frame = records(images, [MODEL], threats=dict.fromkeys(ENSEMBLE, "ensemble"), defences=("standard", "DRQ linf"))
    index, drq = pl.col("index"), pl.col("defence") == "DRQ linf"
    wrong = (index < images // 2) & (pl.col("threat") == "FAB")
    wrong = wrong & ~(drq & (index < fixed)) | (drq & (index >= images - spoiled))
    answer = pl.when(wrong).then((pl.col("label") + 1) % 10).otherwise("label")
    return frame.with_columns(prediction=answer, experiment=pl.lit("table4"))


def cell(frame: pl.DataFrame, **place: str) -> dict:
    """The one row in this place."""
    (row,) = frame.filter(**place).to_dicts()
    return row


def gaining(seed: int = 0) -> pl.DataFrame:
    """Random answers: the paper's DRQ is right more often than the model alone, and shift than either."""
    chances = {"standard": 0.5, "DRQ": 0.6, "DRQ shift": 0.8}
    known = {each: each for each in ("clean", "rotation", "translation")}
    parts = [
        records(FEW, list(MODELS), ["cifar10"], known, tuple(chances)),
        records(FEW, list(MODELS), [f"cifar10-c/{kind}/5" for kind in KINDS], {"clean": "clean"}, tuple(chances)),
    ]
    rows = pl.concat(parts)
    chance = rows["defence"].cast(pl.String).replace_strict(chances).to_numpy()
    right = np.random.default_rng(seed).random(len(rows)) < chance
    return rows.with_columns(prediction=pl.when(pl.Series(right)).then("label").otherwise((pl.col("label") + 1) % 10))
