"""A run is a directory: what was evaluated, and its records. Everything that is shown is a function of these.

- ``run.json``: what is evaluated, its hash, and what was missing;
- ``parts/TASK-FIRST.npz``: rows as the loop wrote them, one file a shard, each in one piece;
- ``records/TASK.parquet``: the rows of a finished task, where polars is installed; its parts are then gone;
- ``images/TASK-FIRST.npz``: images that were kept;
- ``history.jsonl``: one line for every time that it was worked on.
"""

from __future__ import annotations

import errno
import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from drq.errors import InputError, one_line, require
from drq.evaluation.plan import Shard, Task
from drq.evaluation.records import as_frame, read_part, require_polars, write_part
from drq.files import in_one_piece

if TYPE_CHECKING:
    import polars

try:
    import fcntl
except ImportError:  # as on Windows: there two writers are not told apart
    fcntl = None  # type: ignore[assignment]

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@dataclass(frozen=True)
class Run:
    """A run, to read.

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
        """Of the spec."""
        return str(self.about["spec"]["name"])

    @property
    def records(self) -> polars.DataFrame:
        """Every row that there is, in the order of the plan."""
        pl = require_polars()
        finished = {path.stem: path for path in (self.path / "records").glob("*.parquet")}
        frames = {key: _parquet(path) for key, path in finished.items()}
        for key, path in self.parts():
            if key.partition("-")[0] not in finished:  # or a crash came between the two
                frames[key] = as_frame([read_part(path)])
        return pl.concat([frames[key] for key in sorted(frames)]) if frames else as_frame([])

    def parts(self) -> list[tuple[str, Path]]:
        """Parts by their key."""
        return sorted((path.stem, path) for path in (self.path / "parts").glob("[0-9]*.npz"))

    def images(self, task: int) -> NDArray[np.float32]:
        """The images that were kept of one task, by its number in ``about["tasks"]``; (0,) where there are none."""
        files = sorted((self.path / "images").glob(f"{task:04d}-*.npz"))
        found = [_array(path) for path in files]
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


def _array(path: Path) -> NDArray[Any]:
    with np.load(path, allow_pickle=False) as file:
        return file["images"]  # type: ignore[no-any-return]


def _parquet(path: Path) -> polars.DataFrame:
    pl = require_polars()
    try:
        return pl.read_parquet(path)  # type: ignore[no-any-return]
    except (OSError, pl.exceptions.PolarsError) as error:
        remedy = "delete that file, and the same drq evaluate computes its rows again"
        raise InputError(f"{path} must be a whole Parquet file, got '{one_line(error)}': {remedy}") from error


class Writer:
    """A run that rows are written to, by one process at a time."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.done = {key for key, _ in run.parts()}
        self.finished = {path.stem for path in (run.path / "records").glob("*.parquet")}

    def has(self, shard: Shard) -> bool:
        """Whether its rows are kept."""
        return shard.task.key in self.finished or shard.key in self.done

    def check(self) -> None:
        """Read every part, so that a damaged one is told before anything is computed."""
        for key, path in self.run.parts():
            if key.partition("-")[0] not in self.finished:
                read_part(path)

    def put(self, shard: Shard, rows: Mapping[str, Any], images: NDArray[Any] | None) -> None:
        """Keep the rows of a shard; the rows come last, since they say that the shard is done."""
        with room(self.run.path):
            if images is not None:
                with in_one_piece(self.run.path / "images" / f"{shard.key}.npz") as file:
                    np.savez_compressed(file, images=images)
            write_part(self.run.path / "parts" / f"{shard.key}.npz", rows)
        self.done.add(shard.key)

    def compact(self, task: Task) -> None:
        """Turn the parts of a finished task into Parquet."""
        paths = [path for key, path in self.run.parts() if key.startswith(f"{task.key}-")]
        if task.key not in self.finished:
            frame = as_frame([read_part(path) for path in paths])
            with room(self.run.path), in_one_piece(self.run.path / "records" / f"{task.key}.parquet") as file:
                frame.write_parquet(file)
            self.finished.add(task.key)
        for path in paths:
            path.unlink()

    def note(self, line: Mapping[str, Any]) -> None:
        """Add a line to the history."""
        with room(self.run.path), (self.run.path / "history.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


@contextmanager
def writing(path: Path, about: Mapping[str, Any]) -> Iterator[Writer]:
    """A run to write to: a new one, or one of the same spec to go on with. Nobody else can write meanwhile."""
    with room(path):
        path.mkdir(parents=True, exist_ok=True)
        strangers = not (path / "run.json").exists() and any(each.name != ".lock" for each in path.iterdir())
    remedy = "choose another, or remove what is in it"
    require(not strangers, "out", "be a new directory or that of a run", repr(str(path)), remedy)
    with _lock(path):
        known = Run.open(path) if (path / "run.json").exists() else None
        if known is not None:
            _check_same(known, about)
            about = {**about, "created": known.about.get("created", about["created"])}
        with room(path):
            for draft in (*path.glob(".*.*"), *path.glob("*/.*.*")):  # what a crash left half written
                draft.unlink(missing_ok=True)
            with in_one_piece(path / "run.json") as file:
                file.write(json.dumps(about, indent=2).encode())
        yield Writer(Run(path, about))


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """The right to write; the system takes it back when the process ends, however it ends."""
    with room(path), (path / ".lock").open("a+", encoding="utf-8") as file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                file.seek(0)
                holder = file.read().strip() or "another process"
                remedy = "wait for it, stop it, or choose another directory"
                raise InputError(f"out must not be in use, got {str(path)!r}, written by {holder}: {remedy}") from error
        _sign(file)
        yield


def _sign(file: IO[str]) -> None:
    file.seek(0)
    file.truncate()
    file.write(f"process {os.getpid()} on {socket.gethostname()}")
    file.flush()


@contextmanager
def room(path: Path) -> Iterator[None]:
    """Around every write: a disk that is full or closed to us is one line, and loses nothing that was written before."""
    try:
        yield
    except OSError as error:
        rule, remedy = "be a directory that can be written", "choose another directory, or change its rights"
        if error.errno in FULL:
            rule, remedy = "have room", "free some, and the same command goes on; all rows so far are safe"
        raise InputError(f"out must {rule}, got {str(path)!r} ({error.strerror}): {remedy}") from error


def _check_same(known: Run, about: Mapping[str, Any]) -> None:
    """Refuse to mix the records of two specs, or of two files of weights."""
    changes = [*differences(known.about["spec"], about["spec"])]
    for key in ("models", "data"):
        before = known.about.get(key, {})
        changes += [
            f"the content of {name} was {before[name][:12]}, is {now[:12]}"
            for name, now in about[key].items()
            if before.get(name) not in (None, now) and now is not None
        ]
    if changes or known.about["spec_hash"] != about["spec_hash"]:
        told = "; ".join(changes[:5]) + (f"; and {len(changes) - 5} more" if len(changes) > 5 else "")
        remedy = "choose another directory with --out, or undo the change"
        raise InputError(f"spec must be that of the run in {str(known.path)!r}, got a changed one ({told}): {remedy}")


def differences(before: Any, now: Any, place: str = "") -> Iterator[str]:
    """What changed between two things made of what JSON knows, in words.

    >>> list(differences({"a": {"b": 1}}, {"a": {"b": 2}, "c": 3}))
    ['a.b was 1, is 2', 'c was absent, is 3']
    """
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in (*before, *(key for key in now if key not in before)):
            where = f"{place}.{key}" if place else str(key)
            yield from differences(before.get(key, "absent"), now.get(key, "absent"), where)
    elif before != now:
        yield f"{place} was {_short(before)}, is {_short(now)}"


def _short(value: Any) -> str:
    text = value if value == "absent" else json.dumps(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def now() -> str:
    """The time, for people and machines."""
    return datetime.now(UTC).isoformat(timespec="seconds")
