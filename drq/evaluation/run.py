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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from io import BytesIO, FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from drq.errors import InputError, one_line, require
from drq.evaluation.plan import Shard, Task
from drq.evaluation.records import COLUMNS, SCHEMA_VERSION, as_frame, read_arrays, read_part, require_polars, write_part
from drq.system.files import claimed, in_one_piece

if TYPE_CHECKING:
    import polars

DRAFT = ".*." + 32 * "[0-9a-f]"  # as files.in_one_piece names what it is writing
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

    @property
    def first(self) -> int:
        """The first sample of every data set; images that were kept begin with it."""
        return int(self.about["spec"].get("first", 0))

    def images(self, task: int) -> NDArray[np.float32]:
        """The images that were kept of one task, by its number in ``about["tasks"]``; (0,) where there are none."""
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


def _parquet(path: Path, rows: int | None = None) -> polars.DataFrame:
    """The rows of a file, or the first so many."""
    pl = require_polars()
    try:
        frame: polars.DataFrame = pl.read_parquet(path, n_rows=rows)
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        remedy = "delete that file, and the same drq evaluate computes its rows again"
        raise InputError(f"{path} must be a whole Parquet file, got '{one_line(error)}': {remedy}") from error
    known, rule = frame.columns == [*COLUMNS], f"have the columns of schema_version {SCHEMA_VERSION}"
    require(known, str(path), rule, f"{frame.width} others", "read it with the version of drq that wrote it")
    return frame


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
        """Look into every file, so that a damaged one is told before anything is computed."""
        for key, path in self.run.parts():
            if key.partition("-")[0] not in self.finished:
                self._check_rows(path, read_part(path), int(key.partition("-")[2]))
        for key in sorted(self.finished) if find_spec("polars") is not None else ():
            _parquet(self.run.path / "records" / f"{key}.parquet", rows=0)

    def _check_rows(self, path: Path, rows: Mapping[str, Any], first: int) -> None:
        """A part must be of this run, and where its name says."""
        mine = set(rows["spec_hash"]) == {self.run.about["spec_hash"]} and int(rows["index"].min()) == first
        remedy = "delete that file, and the same command computes its rows again"
        require(mine, str(path), "hold the rows of this run that its name says", "others", remedy)

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
            planned = self.run.about["tasks"][task.number]["samples"] * len(task.defences)
            twice = frame.select("defence", "index").is_duplicated().any()
            remedy = "a file was added or removed by hand; the same command makes what is missing"
            require(len(frame) == planned and not twice, f"{task}", f"have {planned} different rows", len(frame), remedy)
            whole = BytesIO()  # written by us, since polars would tell a full disk as a broken file
            frame.write_parquet(whole)
            with room(self.run.path), in_one_piece(self.run.path / "records" / f"{task.key}.parquet") as file:
                file.write(whole.getbuffer())
            self.finished.add(task.key)
        for path in paths:
            path.unlink()

    def lacks(self, missing: Mapping[str, str]) -> None:
        """Say what turned out to be missing, and why."""
        if missing:
            told = [*self.run.about["missing"], *({"what": what, "why": why} for what, why in missing.items())]
            self.run = Run(self.run.path, {**self.run.about, "missing": told})
            _say(self.run)

    def note(self, line: Mapping[str, Any]) -> None:
        """Add a line to the history."""
        path = self.run.path / "history.jsonl"
        with room(self.run.path), path.open("a+b") as file:
            file.seek(max(0, file.tell() - 1))
            start = b"" if file.read() in (b"", b"\n") else b"\n"  # a crash may have cut off the last line
            file.write(start + json.dumps(line).encode() + b"\n")


@contextmanager
def writing(path: Path, about: Mapping[str, Any]) -> Iterator[Writer]:
    """A run to write to: a new one, or one of the same spec to go on with. Nobody else can write meanwhile."""
    with room(path):
        path.mkdir(parents=True, exist_ok=True)
        ours = [each.name == ".lock" or each.match(DRAFT) for each in path.iterdir()]
        strangers = not (path / "run.json").exists() and not all(ours)
    remedy = "choose another, or remove what is in it"
    require(not strangers, "out", "be a new directory or that of a run", repr(str(path)), remedy)
    with _lock(path):
        known = Run.open(path) if (path / "run.json").exists() else None
        begun = any(path.glob("parts/[0-9]*")) or any(path.glob("records/[0-9]*"))
        if known is not None and begun:  # one without rows may still change its spec: a mistake in it came to light late
            _check_same(known, about)
            about = _continued(known, about)
        with room(path):
            for draft in (*path.glob(DRAFT), *path.glob(f"*/{DRAFT}")):  # what a crash left half written
                draft.unlink(missing_ok=True)
            for image in () if begun else path.glob("images/[0-9]*.npz"):  # and what it left without rows
                image.unlink(missing_ok=True)
        _say(Run(path, about))
        yield Writer(Run(path, about))


def _say(run: Run) -> None:
    with room(run.path), in_one_piece(run.path / "run.json") as file:
        file.write(json.dumps(run.about, indent=2).encode())


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """The right to write; the system takes it back when the process ends, however it ends."""
    with room(path):
        file = (path / ".lock").open("a+b", buffering=0)  # so that nothing is left to write when it is closed
    with file:
        with room(path):
            _claim(file, path)
        yield


def _claim(file: FileIO, path: Path) -> None:
    if not claimed(file):
        file.seek(0)
        holder = file.read().decode(errors="replace").strip() or "another process"
        remedy = "wait for it, stop it, or choose another directory"
        raise InputError(f"out must not be in use, got {str(path)!r}, written by {holder}: {remedy}")
    file.truncate(0)
    file.write(f"process {os.getpid()} on {socket.gethostname()}".encode())


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
    changes = changes or [*dict.fromkeys(_changed_tasks(known.about.get("tasks", ()), about["tasks"]))]
    if changes or known.about["spec_hash"] != about["spec_hash"]:
        told = "; ".join(changes[:5]) + (f"; and {len(changes) - 5} more" if len(changes) > 5 else "")
        remedy = "choose another directory with --out, or undo the change"
        raise InputError(f"spec must be that of the run in {str(known.path)!r}, got a changed one ({told}): {remedy}")


def _changed_tasks(before: Sequence[Any], now: Sequence[Any]) -> Iterator[str]:
    """Rows are kept by the number of their task, so that the order of threats counts, too."""
    for number, (old, new) in enumerate(zip(before, now, strict=False)):
        was, is_now = (
            f"{each['model']} on {each['data']}, {each['threat']} by {', '.join(each['defences'])}" for each in (old, new)
        )
        if was != is_now:
            yield f"task {number} was {was}, is {is_now}"
        elif None not in (old["images"], new["images"]) and old["images"] != new["images"]:
            yield f"{new['data']} had {old['images']} images, has {new['images']}"


def _continued(known: Run, about: Mapping[str, Any]) -> dict[str, Any]:
    """What is said of a run that goes on: what this machine lacks stays as it was known before."""
    before = known.about
    kept = {key: {**before.get(key, {}), **about[key]} for key in ("models", "data")}
    pairs = zip(before.get("tasks", about["tasks"]), about["tasks"], strict=False)
    tasks = [{**now, "images": old["images"] if now["images"] is None else now["images"]} for old, now in pairs]
    return {**about, **kept, "tasks": tasks, "created": before.get("created", about["created"])}


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
