"""Records: one row for each sample, threat and defence; their columns, and how rows are stored in files.

The loop writes parts, ``.npz`` files that numpy alone can write and read; where polars is installed, finished parts become
Parquet. Both hold the same columns, which :data:`COLUMNS` describes.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from drq.errors import InputError, imported, one_line, require
from drq.system.files import atomic_write

if TYPE_CHECKING:
    import polars

SCHEMA_VERSION = 2  # decided once: later work fills its columns, and adds none
READABLE = (1, SCHEMA_VERSION)
Rows = Mapping[str, NDArray[Any]]  # columns of one length; a column of one value for all rows may have no dimension


class Column(NamedTuple):
    """One column: what it holds, what it means, whether a row may have nothing in it, and since which schema there is one."""

    kind: Literal["str", "int", "float", "bool"]
    meaning: str
    nullable: bool = False
    since: int = 1


COLUMNS = {
    "experiment": Column("str", "name of the spec"),
    "model": Column("str", "the classifier, by the name it was loaded under"),
    "data": Column("str", "the data set, by the name it was loaded under"),
    "suite": Column("str", "threats that belong together: the worst case is taken over those of one suite"),
    "threat": Column("str", "what was done to the input"),
    "victim": Column("str", "whom the threat looked at: base, the undefended model, or defence, the defence of this row"),
    "defence": Column("str", "who answers"),
    "index": Column("int", "position of the sample in its data set"),
    "label": Column("int", "true class"),
    "prediction": Column("int", "answer of the defence at x', the input as the threat left it"),
    "base_prediction": Column("int", "answer of the undefended model at x'"),
    "base_withstood": Column("bool", "whether the undefended model was right at x' and wherever else the threat tried it"),
    "rounded_prediction": Column("int", "answer of the defence at x' rounded to 8 bits", nullable=True),
    "survives_rounding": Column("bool", "whether that answer is the same as at x'", nullable=True),
    "robustness": Column("float", "of the answered class: confidence that remains after quantification", nullable=True),
    "true_robustness": Column("float", "of the true class; an upper bound where it was pruned", nullable=True),
    "explored": Column("float", "confidence in the answered class at its explored point", nullable=True),
    "true_explored": Column("float", "confidence in the true class at its explored point", nullable=True),
    "margin": Column("float", "best minus second-best robustness", nullable=True),
    "view": Column("int", "which view of the input spoke; 0 is the input itself", nullable=True, since=2),
    "kept": Column("bool", "whether a gate kept the answer of the undefended model", nullable=True, since=2),
    "gate_margin": Column("float", "how far the evidence was from the gate's threshold", nullable=True, since=2),
    "nonfinite": Column("int", "scores that were not finite", nullable=True, since=2),
    "confidence": Column("float", "of the undefended model in its own answer at x'"),
    "logit_margin": Column("float", "best minus second-best logit of the undefended model at x'"),
    "radius": Column("float", "of exploration; nothing where calibration found none", nullable=True),
    "found": Column("bool", "whether there was a radius to explore", nullable=True),
    "candidates": Column("int", "classes that exploration reached", nullable=True),
    "distance_linf": Column("float", "largest change of a feature, from x to x'"),
    "distance_l2": Column("float", "Euclidean length of x' - x"),
    "cosine": Column("float", "of the angle between x' - x and the way from x' to the quantified point", nullable=True),
    "threat_radius": Column("float", "of the threat's ball", nullable=True),
    "explore_steps": Column("int", "setting of the defence", nullable=True),
    "quantify_steps": Column("int", "setting of the defence", nullable=True),
    "alpha": Column("float", "setting of the defence", nullable=True),
    "threshold": Column("float", "confidence asked for in calibration; nothing for the sample's own", nullable=True),
    "passes": Column("int", "of the model, that the answer took"),
    "forward_passes": Column("int", "those of its passes that asked for no gradient", nullable=True, since=2),
    "threat_passes": Column("float", "of the model, that the threat took"),
    "seconds": Column("float", "that the answer took: its share of the batch"),
    "seed": Column("int", "of the spec"),
    "precision": Column("str", "in which the model ran"),
    "device": Column("str", "on which it ran"),
    "row_hash": Column("str", "tells all that the row depends on, but for its sample, from anything else", since=2),
    "spec_hash": Column("str", "tells this spec from any other"),
    "weights_sha256": Column("str", "tells the model from any other", nullable=True),
    "data_sha256": Column("str", "tells the data from any other", nullable=True),
    "drq_version": Column("str", "of this package"),
    "torch_version": Column("str", "of torch"),
    "schema_version": Column("int", "of this list of columns"),
}
DTYPES: dict[str, type] = {"str": np.str_, "int": np.int64, "float": np.float64, "bool": np.int8}
NOTHING = {"str": "", "int": -1, "float": np.nan, "bool": -1}  # in parts; null in a data frame
DAMAGE = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error, RuntimeError)
DETAILS = (  # what no table and no figure needs: the same in all rows, or for those who look closely
    *("rounded_prediction", "survives_rounding", "explored", "true_explored", "candidates", "seed", "precision", "device"),
    *("row_hash", "spec_hash", "weights_sha256", "data_sha256", "drq_version", "torch_version", "schema_version"),
)
UNTIMED = tuple(name for name in COLUMNS if name != "seconds")  # equal in every repetition on a CPU


def columns(version: int = SCHEMA_VERSION) -> list[str]:
    """The names of the columns of a schema, in their order."""
    return [name for name, column in COLUMNS.items() if column.since <= version]


def completed(frame: polars.DataFrame, names: Iterable[str] = COLUMNS) -> polars.DataFrame:
    """Rows of any schema with these columns: null where theirs had none."""
    pl, kinds = require_polars(), schema()
    absent = [pl.lit(None, kinds[name]).alias(name) for name in names if name not in frame.columns]
    whole: polars.DataFrame = frame.with_columns(absent).select(names)
    return whole


def write_part(path: Path, rows: Mapping[str, Any]) -> None:
    """Write rows; a column that a row says nothing on may be left out. What is the same in all rows is written once."""
    unknown = set(rows) - set(COLUMNS)
    assert not unknown, f"no such columns: {unknown}"
    arrays: dict[str, Any] = {}
    for name, column in COLUMNS.items():
        assert column.nullable or name in rows, f"{name} is missing"
        values: NDArray[Any] = np.asarray(rows.get(name, NOTHING[column.kind]), dtype=DTYPES[column.kind])
        constant = name != "index" and values.ndim == 1 and (values == values[0]).all()
        arrays[name] = values[0] if constant else values
    with atomic_write(path) as file:
        np.savez_compressed(file, **arrays)


def read_arrays(path: Path, names: Iterable[str], remedy: str) -> dict[str, NDArray[Any]]:
    """Arrays by name from a file of numpy; an error says what to do about a damaged one."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:  # it leaves a damaged file open by itself
            return {name: arrays[name] for name in names}
    except DAMAGE as error:
        raise InputError(f"{path} must be a whole part of a run, got '{one_line(error)}': {remedy}") from error


def read_part(path: Path) -> dict[str, NDArray[Any]]:
    """The columns of a part, all of one length."""
    again = "delete that file, and the same command computes its rows again"
    version = int(read_arrays(path, ["schema_version"], again)["schema_version"])
    rule = f"have schema_version {' or '.join(map(str, READABLE))}"
    require(version in READABLE, str(path), rule, version, "read it with the version of drq that wrote it")
    arrays = read_arrays(path, columns(version), again)
    count = len(arrays["index"])
    found = {name: arrays.get(name, np.asarray(NOTHING[column.kind], DTYPES[column.kind])) for name, column in COLUMNS.items()}
    return {name: np.broadcast_to(values, (count,)) for name, values in found.items()}


def as_frame(parts: Iterable[Rows]) -> polars.DataFrame:
    """Rows as a data frame, with null where a part has nothing."""
    pl, kinds = require_polars(), schema()
    frames = [pl.DataFrame({name: _series(name, part[name]) for name in COLUMNS}, schema=kinds) for part in parts]
    whole: polars.DataFrame = pl.concat(frames) if frames else pl.DataFrame(schema=kinds)
    return whole


def schema() -> dict[str, Any]:
    """The type of every column of a data frame."""
    pl = require_polars()
    kinds = {"str": pl.String, "int": pl.Int64, "float": pl.Float64, "bool": pl.Boolean}
    return {name: kinds[column.kind] for name, column in COLUMNS.items()}


def _series(name: str, values: NDArray[Any]) -> polars.Series:
    pl, column = require_polars(), COLUMNS[name]
    constant = values.strides == (0,) and len(values) > 0  # one value for all, as read_part leaves it
    series = pl.Series(name, values[:1] if constant else values)
    if column.nullable or column.since > 1:  # which rows of the first schema have not
        nothing = series.is_nan() if column.kind == "float" else series == NOTHING[column.kind]
        series = series.to_frame().select(pl.when(~nothing).then(pl.col(name)))[name]  # without a branch there is null
    if column.kind == "bool":
        series = series.cast(pl.Boolean)
    whole: polars.Series = series.new_from_index(0, len(values)) if constant else series
    return whole


def require_polars() -> Any:
    """The module, or an error that says how to get it."""
    return imported("polars", "records as a data frame", "pip install 'decision-region-quantification[report]'")
