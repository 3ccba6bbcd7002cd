"""Write and read kept records: the columns of a run that tables, figures and claims need, small enough for a repository.

``NAME.parquet`` has the rows of an experiment; ``NAME.json`` says what was evaluated, where, how long it took, and the sha256
of the rows. Records of the first schema have no sha256, and nulls in the columns that were added later.
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
# Bits that are kept of a number's fraction: three digits. Of a confidence near 1, those of its distance to 1 are kept.
BITS = 10
SETTINGS = ("alpha", "threshold", "threat_radius")  # not rounded, since rows are selected by them
ABOUT = ("title", "spec_hash", "created", "models", "data")
HOW = ("versions", "seed", "quick", "missing", "devices", "seconds", "samples", "timed", "passes")


@dataclass(frozen=True)
class Record:
    """The kept record of an experiment.

    Args:
        name: the name of its spec.
        rows: the run's records without the columns :data:`drq.evaluation.records.DETAILS`.
        about: what was evaluated, where, and what it cost.
    """

    name: str
    rows: polars.DataFrame
    about: Mapping[str, Any]


def condense(run: Run) -> Record:
    """Return the part of a run that is kept."""
    return Record(run.name, condense_rows(run.records), describe(run))


def write_record(run: Run, folder: Path) -> Record:
    """Write the kept record of a run, and return it."""
    record = condense(run)
    buffer = BytesIO()
    record.rows.write_parquet(buffer, compression="zstd", compression_level=19, statistics=False)
    about = {"schema_version": SCHEMA_VERSION, **record.about, "sha256": sha256(buffer.getvalue()).hexdigest()}
    for suffix, content in (("parquet", buffer.getvalue()), ("json", (json.dumps(about, indent=1) + "\n").encode())):
        with atomic_write(folder / f"{run.name}.{suffix}") as file:
            file.write(content)
    return record


def read_record(folder: Path, name: str) -> Record | None:
    """Read the kept record of an experiment; None where there is none."""
    pl = require_polars()
    rows, notes = folder / f"{name}.parquet", folder / f"{name}.json"
    if not rows.exists() or not notes.exists():
        return None
    try:
        frame = pl.read_parquet(rows).with_columns(pl.selectors.categorical().cast(pl.String))
        about = json.loads(notes.read_text(encoding="utf-8"))
    except (OSError, ValueError, pl.exceptions.PolarsError) as error:
        raise InputError(f"{rows} must be a record, got '{error}': drq reproduce {name} --keep {folder} makes one") from error
    readable = [_kept_columns(version) for version in READABLE]
    require(frame.columns in readable, str(rows), "have the columns of this version", frame.columns, "make it again")
    complete = isinstance(about, dict) and about.keys() >= {*ABOUT, *HOW}
    require(complete, str(notes), "say what was evaluated", "something else", "make it again")
    _check_sum(rows, about)
    types = {"int": pl.Int32, "float": pl.Float32, "str": pl.String, "bool": pl.Boolean}
    absent = [pl.lit(None, types[COLUMNS[each].kind]).alias(each) for each in _kept_columns() if each not in frame.columns]
    return Record(name, frame.with_columns(absent).select(_kept_columns()), about)


def _check_sum(rows: Path, about: Mapping[str, Any]) -> None:
    if about.get("schema_version", 1) == 1:
        warn_unverified(rows.parent)
        return
    remedy = f"bring both files back from a copy, or run drq reproduce {rows.stem} --keep {rows.parent}"
    require(digest(rows) == about.get("sha256"), str(rows), f"have the sha256 in {rows.stem}.json", "another", remedy)


@cache
def warn_unverified(folder: Path) -> None:
    """Log once that records have no checksums; no more, since the repository that keeps them has checksums of its own."""
    logger.info("drq: %s has records of the first schema, without checksums: they are taken as they are", folder)


def _kept_columns(version: int = SCHEMA_VERSION) -> list[str]:
    """Return the columns that are kept."""
    return [each for each in columns(version) if each not in DETAILS]


def condense_rows(records: polars.DataFrame) -> polars.DataFrame:
    """Return the columns that are kept, with numbers rounded to three digits."""
    pl = require_polars()
    names, exact = _kept_columns(), (*SETTINGS, "passes", "threat_passes")
    numbers = [each for each in names if COLUMNS[each].kind == "float" and each not in exact]
    whole = [each for each in names if COLUMNS[each].kind == "int"]
    frame = completed(records, names).with_columns(pl.col(whole).cast(pl.Int32))
    frame = frame.with_columns(pl.col(each).round().cast(pl.Int32) for each in ("passes", "threat_passes"))
    return frame.with_columns(_rounded(frame[each]).alias(each) for each in numbers)


def _rounded(column: polars.Series) -> polars.Series:
    """Round to the nearest numbers whose fractions have few bits, which compress well."""
    pl = require_polars()
    values = column.cast(pl.Float64).to_numpy()
    shares = (values > 0.5) & (values < 1)  # like confidences, whose distance to 1 matters
    fraction, exponent = np.frexp(np.where(shares, 1 - values, values))
    short = np.ldexp(np.round(fraction * 2**BITS) / 2**BITS, exponent)
    short = np.where(shares, 1 - short, short).astype(np.float32)
    rounded: polars.Series = pl.Series(column.name, short, dtype=pl.Float32, nan_to_null=column.null_count() > 0)
    return rounded


def describe(run: Run) -> dict[str, Any]:
    """Describe a run for readers of its numbers. Its time lacks that of processes that were killed, which wrote none."""
    records = run.records
    tried = _tried(records)
    spent = [each for each in run.history if each["samples"]]  # without processes that found nothing left to do
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
    """Return one row for each sample and threat. A threat to the undefended model was run once for all defences."""
    pl = require_polars()
    attacked = pl.when(pl.col("victim") == "defence").then("defence").otherwise(pl.lit(""))
    keys = ["model", "data", "suite", "threat", "victim", "attacked", "index"]
    return records.with_columns(attacked=attacked).unique(keys)
