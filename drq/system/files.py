"""Folders of the package, checksums, locks, and atomic writes."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

from drq.errors import InputError

try:
    import fcntl
except ModuleNotFoundError:  # Windows: there, processes are not told apart
    fcntl = None  # type: ignore[assignment]


FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextmanager
def disk_errors(argument: str, path: Path, rule: str, remedy: str) -> Iterator[None]:
    """Turn errors of the disk into one clear line: what was written before is safe.

    Args:
        argument: what named the path.
        path: what is written.
        rule: what the path must do.
        remedy: for errors of its name or rights; a full disk has its own.
    """
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            rule, remedy = "have room", "free some, and the same command goes on; all rows so far are safe"
        raise InputError(f"{argument} must {rule}, got {str(path)!r} ({error.strerror}): {remedy}") from error


def cache_folder() -> Path:
    """The folder for what the package makes itself: DRQ_CACHE, else drq in XDG_CACHE_HOME, else ~/.cache/drq."""
    if chosen := os.environ.get("DRQ_CACHE"):
        return Path(chosen)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "drq"
    except RuntimeError as error:  # as in containers that run as an unknown user
        raise InputError("DRQ_CACHE must be set where there is no home folder, got nothing: name a folder in it") from error


def models_folder() -> Path:
    """The folder in which weights are looked for by name: DRQ_MODELS, else models in the cache."""
    return Path(os.environ.get("DRQ_MODELS") or cache_folder() / "models")


def data_folder() -> Path:
    """The folder in which data sets are looked for by name: DRQ_DATA, else data in the cache."""
    return Path(os.environ.get("DRQ_DATA") or cache_folder() / "data")


def try_lock(file: IO[Any]) -> bool:
    """Lock an open file for this process, until it is closed or the process ends; False where another process has it.

    Raises:
        OSError: the file system knows no locks, as on some clusters.
    """
    if fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def digest(path: Path, algorithm: str = "sha256") -> str:
    """The checksum of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


@contextmanager
def atomic_write(path: Path) -> Iterator[IO[bytes]]:
    """A file to write ``path`` with: whoever reads meanwhile sees the old one, and a failure leaves the old one."""
    path = path.resolve()  # a link stays one
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{uuid4().hex}")  # opened as any other file, so that others may read it
    try:
        with draft.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())  # or a power cut could leave a name without its content
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
