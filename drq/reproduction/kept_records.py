"""Records that are kept beside the code: the columns that tables, figures and claims need, small enough for a repository.

``NAME.parquet`` has the rows of an experiment, ``NAME.json`` what was evaluated, where, how long it took, and the sha256 of the
rows. Records of the first schema say no sha256, and have nothing in the columns that came later.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from drq.errors import InputError, require
from drq.evaluation.records import COLUMNS, DETAILS, READABLE, SCHEMA_VERSION, columns, completed, require_polars
from drq.evaluation.run import Run
from drq.system.files import atomic_write, digest

if TYPE_CHECKING:
    import polars

logger = logging.getLogger("drq")
BITS = 10  # of the fraction of a number that are kept: three digits, of a confidence near 1 those of what is left to 1
SETTINGS = ("alpha", "threshold", "threat_radius")  # stay as they are: rows are chosen by them
ABOUT = ("title", "spec_hash", "created", "models", "data")
HOW = ("versions", "seed", "quick", "missing", "devices", "seconds", "samples", "timed", "passes")


@dataclass(frozen=True)
class Record:
    """What is kept of an experiment.

    Args:
        name: of its spec.
        rows: with the columns of a run's records, but for :data:`drq.evaluation.records.DETAILS`.
        about: what was evaluated, where, and what it took.
    """

    name: str
    rows: polars.DataFrame
    about: Mapping[str, Any]


def shortened(run: Run) -> Record:
    """What is kept of a run."""
    return Record(run.name, condensed(run.records), about(run))


def keep(run: Run, folder: Path) -> Record:
    """Write what is kept of a run, and return it."""
    record = shortened(run)
    whole = BytesIO()
    record.rows.write_parquet(whole, compression="zstd", compression_level=19, statistics=False)
    told = {"schema_version": SCHEMA_VERSION, **record.about, "sha256": sha256(whole.getvalue()).hexdigest()}
    for suffix, content in (("parquet", whole.getvalue()), ("json", (json.dumps(told, indent=1) + "\n").encode())):
        with atomic_write(folder / f"{run.name}.{suffix}") as file:
            file.write(content)
    return record


def kept(folder: Path, name: str) -> Record | None:
    """What is kept of an experiment; None where there is nothing."""
    pl = require_polars()
    rows, notes = folder / f"{name}.parquet", folder / f"{name}.json"
    if not rows.exists() or not notes.exists():
        return None
    try:
        frame = pl.read_parquet(rows).with_columns(pl.selectors.categorical().cast(pl.String))
        told = json.loads(notes.read_text(encoding="utf-8"))
    except (OSError, ValueError, pl.exceptions.PolarsError) as error:
        raise InputError(f"{rows} must be a record, got '{error}': drq reproduce {name} --keep {folder} makes one") from error
    known = [_short(version) for version in READABLE]
    require(frame.columns in known, str(rows), "have the columns of this version", frame.columns, "make it again")
    whole = isinstance(told, dict) and told.keys() >= {*ABOUT, *HOW}
    require(whole, str(notes), "say what was evaluated", "something else", "make it again")
    _check_sum(rows, told)
    few = {"int": pl.Int32, "float": pl.Float32, "str": pl.String, "bool": pl.Boolean}
    absent = [pl.lit(None, few[COLUMNS[each].kind]).alias(each) for each in _short() if each not in frame.columns]
    return Record(name, frame.with_columns(absent).select(_short()), told)


def _check_sum(rows: Path, told: Mapping[str, Any]) -> None:
    if told.get("schema_version", 1) == 1:
        warn_unverified(rows.parent)
        return
    remedy = f"bring both files back from a copy, or run drq reproduce {rows.stem} --keep {rows.parent}"
    require(digest(rows) == told.get("sha256"), str(rows), f"have the sha256 in {rows.stem}.json", "another", remedy)


@cache
def warn_unverified(folder: Path) -> None:
    """Once, and only to those who listen: such records are old, and what keeps them has checksums of its own."""
    logger.info("drq: %s has records of the first schema, without checksums: they are taken as they are", folder)


def _short(version: int = SCHEMA_VERSION) -> list[str]:
    """The columns that are kept."""
    return [each for each in columns(version) if each not in DETAILS]


def condensed(records: polars.DataFrame) -> polars.DataFrame:
    """The columns that are kept, numbers to three digits."""
    pl = require_polars()
    names, exact = _short(), (*SETTINGS, "passes", "threat_passes")
    numbers = [each for each in names if COLUMNS[each].kind == "float" and each not in exact]
    whole = [each for each in names if COLUMNS[each].kind == "int"]
    frame = completed(records, names).with_columns(pl.col(whole).cast(pl.Int32))
    frame = frame.with_columns(pl.col(each).round().cast(pl.Int32) for each in ("passes", "threat_passes"))
    return frame.with_columns(_rounded(frame[each]).alias(each) for each in numbers)


def _rounded(column: polars.Series) -> polars.Series:
    """The nearest numbers whose fractions have few bits."""
    pl = require_polars()
    values = column.cast(pl.Float64).to_numpy()
    shares = (values > 0.5) & (values < 1)  # as confidences: what is left to 1 counts
    fraction, exponent = np.frexp(np.where(shares, 1 - values, values))
    short = np.ldexp(np.round(fraction * 2**BITS) / 2**BITS, exponent)
    short = np.where(shares, 1 - short, short).astype(np.float32)
    made: polars.Series = pl.Series(column.name, short, dtype=pl.Float32, nan_to_null=column.null_count() > 0)
    return made


def about(run: Run) -> dict[str, Any]:
    """What a reader of the numbers wants to know; of the time, what is known: a process that was killed has not told its own."""
    records = run.records
    tried = _tried(records)
    spent = [each for each in run.history if each["samples"]]  # not what it took to look what is there
    devices = records["device"].unique(maintain_order=True).to_list()
    quick = run.about["spec"].get("quick", False) and devices != ["cpu"]
    versions = {each: ", ".join(records[f"{each}_version"].unique(maintain_order=True)) for each in ("drq", "torch")}
    return {key: run.about.get(key) for key in ABOUT} | {
        "versions": versions,
        "seed": run.about["spec"]["seed"],
        "quick": quick,
        "missing": sorted({each["what"] for each in run.about["missing"]}),
        "devices": devices,
        "seconds": round(sum(each["seconds"] for each in spent), 1),
        "samples": len(tried),
        "timed": sum(each["samples"] for each in spent),
        "passes": {"answers": int(records["passes"].sum()), "threats": int(tried["threat_passes"].sum())},
    }


def _tried(records: polars.DataFrame) -> polars.DataFrame:
    """A row for each sample and threat. A threat to the undefended model was run once for all defences."""
    pl = require_polars()
    whom = pl.when(pl.col("victim") == "defence").then("defence").otherwise(pl.lit(""))
    return records.with_columns(whom=whom).unique(["model", "data", "suite", "threat", "victim", "whom", "index"])
