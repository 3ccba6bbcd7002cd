"""Read a run: a directory with what was evaluated, and its records. Everything that is shown is a function of these.

- ``run.json``: what is evaluated, its hash, its tasks by number with the hashes of their rows, and what was missing;
- ``parts/TASK-FIRST.npz``: rows as the loop wrote them, one file a shard, each in one piece;
- ``records/TASK.parquet``: the rows of a finished task, where polars is installed; its parts are then gone;
- ``sha256sums``: what these files hold, see :mod:`drq.evaluation.checksums`;
- ``images/TASK-FIRST.npz``: images that were kept;
- ``history.jsonl``: one line for every time that it was worked on.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from drq.errors import InputError, one_line, require
from drq.evaluation import checksums, growth
from drq.evaluation.records import READABLE, as_frame, columns, completed, read_arrays, read_part, require_polars
from drq.system.files import digest

if TYPE_CHECKING:
    import polars

logger = logging.getLogger("drq")
AGAIN = "delete that file, and the same drq evaluate computes its rows again"


@dataclass(frozen=True)
class Run:
    """A run on disk, opened for reading.

    Args:
        path: its directory.
        about: what ``run.json`` says.
    """

    path: Path
    about: Mapping[str, Any]

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """The run in a directory."""
        path = Path(path)
        try:
            about = json.loads((path / "run.json").read_text(encoding="utf-8"))
            whole = isinstance(about, dict) and {"spec", "spec_hash"} <= set(about)
        except OSError as error:
            remedy = "drq evaluate makes one"
            raise InputError(f"run must be the directory of a run, got {str(path)!r} ({error.strerror}): {remedy}") from error
        except ValueError:
            whole = False
        remedy = "it was changed by hand; bring it back from a copy"
        require(whole, "run", "have a run.json that says what was evaluated", str(path / "run.json"), remedy)
        return cls(path, about)

    @property
    def name(self) -> str:
        """The name of the spec."""
        return str(self.about["spec"]["name"])

    @property
    def tasks(self) -> dict[int, dict[str, Any]]:
        """The entries of the tasks in run.json, by their number."""
        return {task["number"]: task for task in growth.tasks(self.about)}

    @property
    def records(self) -> polars.DataFrame:
        """All rows, in the order of the tasks."""
        pl, sums, files = require_polars(), checksums.known(self.path), self.files()
        frames = [
            checked_table(path, sums) if path.suffix == ".parquet" else as_frame([checked_part(path, sums)]) for path in files
        ]
        if any(checksums.name(path) not in sums for path in files):
            warn_unverified(self.path)
        return pl.concat(frames) if frames else as_frame([])

    def files(self) -> list[Path]:
        """The files that hold its rows, in the order of the tasks: of a finished task its Parquet file, and no parts."""
        finished = {path.stem: path for path in (self.path / "records").glob("[0-9]*.parquet")}
        parts = {key: path for key, path in self.parts() if key.partition("-")[0] not in finished}  # a crash may leave both
        return [path for _, path in sorted((finished | parts).items())]

    def checked_files(self) -> Iterator[tuple[Path, InputError | None]]:
        """Every file with rows, and its fault or None: it must be readable, whole, and hold the rows that its name says."""
        sums = checksums.known(self.path)
        for path in self.files():
            try:
                self._check_file(path, sums)
            except InputError as error:
                yield path, error
            else:
                yield path, None

    def _check_file(self, path: Path, sums: Mapping[str, str]) -> None:
        number, _, first = path.stem.partition("-")
        fits = True
        if path.suffix == ".npz":
            rows = read_part(path)
            hashes_of_rows = zip(rows["row_hash"].tolist(), rows["spec_hash"].tolist(), strict=True)
            fits = self._belongs(int(number), {*hashes_of_rows}) and int(rows["index"].min()) == int(first)
        elif find_spec("polars") is not None:
            vouched = checksums.name(path) in sums  # else it is read whole
            frame = _read(path, ["row_hash", "spec_hash"] if vouched else columns())
            fits = self._belongs(int(number), {*frame.select("row_hash", "spec_hash").unique().rows()})
        require(fits, str(path), "hold the rows of this run that its name says", "others", AGAIN)
        _check_sum(path, sums)

    def _belongs(self, number: int, hashes_of_rows: Collection[tuple[str | None, str]]) -> bool:
        """Whether rows belong to a task: by their hash, or by that of their spec where there is none to compare."""
        hashes, specs = self.tasks.get(number, {}).get("row_hashes", []), growth.spec_hashes(self.about)
        by_row = bool(hashes) and None not in hashes
        return all(row in hashes if row and by_row else spec in specs for row, spec in hashes_of_rows)

    def parts(self) -> list[tuple[str, Path]]:
        """Parts by their key."""
        return sorted((path.stem, path) for path in (self.path / "parts").glob("[0-9]*.npz"))

    def images(self, task: int) -> NDArray[np.float32]:
        """The images that were kept of one task, by its number, from its first sample on; (0,) where there are none."""
        files = sorted((self.path / "images").glob(f"{task:04d}-*.npz"))
        remedy = "delete that file: its images are lost, no rows are"
        found = [read_arrays(path, ["images"], remedy)["images"] for path in files]
        return np.concatenate(found) if found else np.zeros(0, np.float32)

    @property
    def history(self) -> list[dict[str, Any]]:
        """Every time that it was worked on; a line that a crash cut off is left out."""
        lines = []
        if (self.path / "history.jsonl").is_file():
            for line in (self.path / "history.jsonl").read_text(encoding="utf-8", errors="replace").splitlines():
                try:
                    lines.append(json.loads(line))
                except ValueError:
                    continue
        return lines


def checked_part(path: Path, sums: Mapping[str, str]) -> dict[str, NDArray[Any]]:
    """The rows of a part, whose checksum is compared."""
    rows = read_part(path)
    _check_sum(path, sums)
    return rows


def checked_table(path: Path, sums: Mapping[str, str]) -> polars.DataFrame:
    """The rows of a Parquet file, whose checksum is compared."""
    frame = _read(path, columns())
    _check_sum(path, sums)
    return frame


def _read(path: Path, names: list[str]) -> polars.DataFrame:
    """These columns of a Parquet file."""
    pl = require_polars()
    try:
        known = list(pl.read_parquet_schema(path))
        frame: polars.DataFrame = pl.read_parquet(path, columns=[each for each in names if each in known])
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise InputError(f"{path} must be a whole Parquet file, got '{one_line(error)}': {AGAIN}") from error
    rule = f"have the columns of schema_version {' or '.join(map(str, READABLE))}"
    of_ours = known in [columns(version) for version in READABLE]
    require(of_ours, str(path), rule, f"{len(known)} others", "read it with the version of drq that wrote it")
    return completed(frame, names)


def _check_sum(path: Path, sums: Mapping[str, str]) -> None:
    """Refuse a file that is another than its checksum says; one without any is taken as it is."""
    said = sums.get(checksums.name(path))
    found = said and digest(path)
    require(found == said, str(path), f"be what was written, with the sha256 {str(said)[:12]}", str(found)[:12], AGAIN)


@cache
def warn_unverified(path: Path) -> None:
    """Warn once of a run that has files without a checksum."""
    logger.warning("drq: %s has files without a checksum, which are taken as they are: drq evaluate adds what is missing", path)


def now() -> str:
    """The time in UTC, in the format of ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")
