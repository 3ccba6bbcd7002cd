"""Writes a run, one process at a time: rows in one piece, then their checksum, so that no crash loses any."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from io import BytesIO, FileIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drq.errors import InputError, require
from drq.evaluation import checksums, growth
from drq.evaluation.plan import Shard, Task
from drq.evaluation.records import as_frame, write_part
from drq.evaluation.run import Run, checked_part, warn_unverified
from drq.system import files
from drq.system.files import atomic_write, try_lock

DRAFT = ".*." + 32 * "[0-9a-f]"  # as files.atomic_write names what it is writing


class Writer:
    """Writes rows to a run."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.done = {key for key, _ in run.parts()}
        self.finished = {path.stem for path in (run.path / "records").glob("*.parquet")}

    def has(self, shard: Shard) -> bool:
        """Whether the rows of this shard are in the run already."""
        return shard.task.key in self.finished or shard.key in self.done

    def check(self) -> None:
        """Check every file, so that a damaged one is reported before anything is computed; afterwards all have a checksum."""
        readable, sums = find_spec("polars") is not None, checksums.known(self.run.path)
        whole = []
        for path, fault in self.run.checked_files():
            if fault is not None:
                raise fault
            if readable or path.suffix == ".npz" or checksums.name(path) in sums:  # nobody vouches for what was not read
                whole.append(path)
        with disk_errors(self.run.path):
            checksums.rewrite(self.run.path, whole)

    def put(self, shard: Shard, rows: Mapping[str, Any], images: NDArray[Any] | None) -> None:
        """Keep the rows of a shard; the rows come last, since they say that the shard is done."""
        with disk_errors(self.run.path):
            if images is not None:
                with atomic_write(self.run.path / "images" / f"{shard.key}.npz") as file:
                    np.savez_compressed(file, images=images)
            path = self.run.path / "parts" / f"{shard.key}.npz"
            write_part(path, rows)
            checksums.add(self.run.path, path)
        self.done.add(shard.key)

    def compact(self, task: Task) -> None:
        """Turn the parts of a finished task into Parquet."""
        parts = [path for key, path in self.run.parts() if key.startswith(f"{task.key}-")]
        if task.key not in self.finished:
            sums = checksums.known(self.run.path)
            frame = as_frame([checked_part(path, sums) for path in parts])
            planned = self.run.tasks[task.number]["samples"] * len(task.defences)
            twice = frame.select("defence", "index").is_duplicated().any()
            remedy = "a file was added or removed by hand; the same command makes what is missing"
            require(len(frame) == planned and not twice, f"{task}", f"have {planned} different rows", len(frame), remedy)
            whole = BytesIO()  # written by us, since polars would tell a full disk as a broken file
            frame.write_parquet(whole)
            with disk_errors(self.run.path), atomic_write(self.run.path / "records" / f"{task.key}.parquet") as file:
                file.write(whole.getbuffer())
            self.finished.add(task.key)
        if parts:
            with disk_errors(self.run.path):
                checksums.rewrite(self.run.path, self.run.files())  # first, so that every line has its file at any moment
        for path in parts:
            path.unlink()

    def record_missing(self, missing: Mapping[str, str]) -> None:
        """Note in run.json what turned out to be missing, and why."""
        if missing:
            entries = [*self.run.about["missing"], *({"what": what, "why": why} for what, why in missing.items())]
            self.run = Run(self.run.path, {**self.run.about, "missing": entries})
            _write_description(self.run)

    def add_history(self, line: Mapping[str, Any]) -> None:
        """Add a line to the history."""
        path = self.run.path / "history.jsonl"
        with disk_errors(self.run.path), path.open("a+b") as file:
            file.seek(max(0, file.tell() - 1))
            start = b"" if file.read() in (b"", b"\n") else b"\n"  # a crash may have cut off the last line
            file.write(start + json.dumps(line).encode() + b"\n")


@contextmanager
def open_run(path: Path, about: Mapping[str, Any]) -> Iterator[Writer]:
    """A run to write to: a new one, or one of the same spec to go on with. Nobody else can write meanwhile."""
    with disk_errors(path):
        path.mkdir(parents=True, exist_ok=True)
        ours = [each.name == ".lock" or each.match(DRAFT) for each in path.iterdir()]
        strangers = not (path / "run.json").exists() and not all(ours)
    remedy = "choose another, or remove what is in it"
    require(not strangers, "out", "be a new directory or that of a run", repr(str(path)), remedy)
    with _lock(path):
        known = Run.open(path) if (path / "run.json").exists() else None
        begun = {int(file.stem.partition("-")[0]) for file in known.files()} if known is not None else set()
        if known is not None and begun:  # one without rows may still change its spec: a mistake in it came to light late
            about = growth.continued(path, known.about, about, begun)
            if known.about.get("schema_version") == 1:
                warn_unverified(path)
        with disk_errors(path):
            for draft in (*path.glob(DRAFT), *path.glob(f"*/{DRAFT}")):  # what a crash left half written
                draft.unlink(missing_ok=True)
            for image in path.glob("images/[0-9]*.npz"):  # and what it left without rows: its number may go to another task
                if int(image.stem.partition("-")[0]) not in begun:
                    image.unlink(missing_ok=True)
        run = Run(path, growth.with_row_hashes(about))
        _write_description(run)
        yield Writer(run)


def _write_description(run: Run) -> None:
    with disk_errors(run.path), atomic_write(run.path / "run.json") as file:
        file.write(json.dumps(run.about, indent=2).encode())


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """The right to write; the system takes it back when the process ends, however it ends."""
    with disk_errors(path):
        file = (path / ".lock").open("a+b", buffering=0)  # so that nothing is left to write when it is closed
    with file:
        with disk_errors(path):
            _claim(file, path)
        yield


def _claim(file: FileIO, path: Path) -> None:
    if not try_lock(file):
        file.seek(0)
        holder = file.read().decode(errors="replace").strip() or "another process"
        remedy = "wait for it, stop it, or choose another directory"
        raise InputError(f"out must not be in use, got {str(path)!r}, written by {holder}: {remedy}")
    file.truncate(0)
    file.write(f"process {os.getpid()} on {socket.gethostname()}".encode())


def disk_errors(path: Path) -> AbstractContextManager[None]:
    """Turn errors of the disk into one clear line."""
    return files.disk_errors("out", path, "be a directory that can be written", "choose another directory, or change its rights")
