"""Download files, whole or not at all: resumed where they stopped, verified, and unpacked without trust."""

from __future__ import annotations

import gzip
import os
import tarfile
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path, PurePosixPath
from typing import IO
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from drq.errors import InputError, require
from drq.system.files import digest, try_lock
from drq.system.progress import Tell, silent

TIMEOUT = 30.0  # seconds without an answer
ATTEMPTS = 5  # at a connection that drops
PAUSE = 1.0  # seconds before the second attempt, doubled before each further one
WAIT = 0.5  # seconds between two looks at a file that another process writes
CHUNK = 2**18  # bytes
FOLDERS = "DRQ_DATA (for data) or DRQ_MODELS (for weights)"
ALGORITHMS = {32: "md5", 64: "sha256"}  # by the number of digits


@dataclass(frozen=True)
class RemoteFile:
    """A file on the network, with its checksum.

    >>> RemoteFile("https://example.org/files/a.tar?download=1", "0" * 32).file_name
    'a.tar'
    """

    url: str
    checksum: str  # its md5 or its sha256, in hexadecimal digits
    size: int | None = None  # bytes, to tell how far it is where the server does not say

    @property
    def file_name(self) -> str:
        """The name of the file."""
        return PurePosixPath(urlsplit(self.url).path).name

    @property
    def algorithm(self) -> str:
        """How the checksum is computed."""
        return ALGORITHMS[len(self.checksum)]

    def matches(self, path: Path) -> bool:
        """Whether a file is this one."""
        return digest(path, self.algorithm) == self.checksum


def fetch(remote: RemoteFile, path: Path, tell: Tell = silent) -> Path:
    """The file at ``path``; downloaded unless it lies there already.

    It grows as ``<path>.part``, which a later call resumes, and gets its name once its checksum is right.
    """
    part = path.with_name(f"{path.name}.part")
    with locked(path, tell):
        if path.exists():
            rule, remedy = f"have the {remote.algorithm} {remote.checksum}", "remove it to download it anew"
            require(remote.matches(path), str(path), rule, "another", remedy)
            return path
        inherited = part.exists()
        _download(remote, path, part, tell)
        if inherited and not remote.matches(part):  # it began as another version of the file
            part.unlink()
            _download(remote, path, part, tell)
        if not remote.matches(part):
            part.unlink()
            raise _failure(remote, path, f"what came has another {remote.algorithm} than {remote.checksum}, and was removed")
        with disk_errors(path):
            part.replace(path)
    return path


def _failure(remote: RemoteFile, path: Path, reason: object) -> InputError:
    by_hand = f"try again later, or put {remote.file_name} at {path} by hand, or set {FOLDERS} to a folder that has it"
    return InputError(f"{remote.url} could not be downloaded ({' '.join(str(reason).split())}): {by_hand}")


def _download(remote: RemoteFile, path: Path, part: Path, tell: Tell) -> None:
    """Fill the part, with as many connections as it takes; a failure keeps it."""
    reason: object = None
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(PAUSE * 2 ** (attempt - 1))
        try:
            _stream(remote, part, tell)
            return
        except HTTPError as error:
            error.close()
            if error.code == 416 and part.exists():  # the part has all there is; the checksum will tell
                return
            if error.code < 500 and error.code != 429:  # only an overloaded server is worth asking again
                raise _failure(remote, path, error) from error
            reason = error
        except URLError as error:  # nobody answers
            if not attempt:
                raise _failure(remote, path, error.reason) from error
            reason = error.reason
        except (OSError, HTTPException) as error:
            reason = repr(error) if not str(error) else error
    raise _failure(remote, path, f"the connection dropped {ATTEMPTS} times, last by: {reason}")


def _stream(remote: RemoteFile, part: Path, tell: Tell) -> None:
    """One connection: ask for what is missing of the part, and append it."""
    done = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "drq", "Accept-Encoding": "identity"} | ({"Range": f"bytes={done}-"} if done else {})
    with urlopen(Request(remote.url, headers=headers), timeout=TIMEOUT) as reply:
        done = _start(reply, part, done)
        length = reply.headers.get("Content-Length", "")
        promised = done + int(length) if length.isdecimal() else None
        while chunk := reply.read(CHUNK):
            with disk_errors(part), part.open("ab") as file:  # not around the reading, whose errors are the network's
                file.write(chunk)
            done += len(chunk)
            total = promised or remote.size
            of = f" of {total / 1e6:.1f}" if total else ""
            tell(min(done / total, 1.0) if total else 0.0, f"{done / 1e6:.1f}{of} MB from {urlsplit(remote.url).netloc}")
    if promised is not None and done < promised:
        raise ConnectionError(f"it ended after {done} of {promised} bytes")


def _start(reply: HTTPResponse, part: Path, done: int) -> int:
    """From which byte the reply goes on: 0 where the server sends everything again."""
    if reply.status != 206:
        with disk_errors(part):
            part.write_bytes(b"")
        return 0
    if not reply.headers.get("Content-Range", "").startswith(f"bytes {done}-"):
        part.unlink(missing_ok=True)
        raise ConnectionError("it sent other bytes than it was asked for")
    return done


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn errors of the disk into one clear line."""
    try:
        yield
    except OSError as error:
        remedy = f"make room or give leave to write there, or set {FOLDERS} to another folder"
        raise InputError(f"{path} must be a place that can be written, got {error.strerror or error}: {remedy}") from error


@contextmanager
def locked(path: Path, tell: Tell) -> Iterator[None]:
    """Whoever else wants to write ``path`` waits meanwhile. The lock goes with the process that holds it, however that ends."""
    lock = path.with_name(f".{path.name}.lock")
    with disk_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = None
        while file is None:
            file = _locked(lock, tell)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        file.close()


def _locked(lock: Path, tell: Tell) -> IO[str] | None:
    """The file, locked; None where another process has it, or has just removed it."""
    file = lock.open("a")
    try:
        if not try_lock(file):
            tell(0.0, "another process is at it: waiting")
            time.sleep(WAIT)
        elif os.path.samestat(os.fstat(file.fileno()), lock.stat()):
            return file
    except FileNotFoundError:
        pass
    except OSError:  # file systems without locks, as on some clusters
        return file
    file.close()
    return None


def fetch_archive(remote: RemoteFile, folder: Path, needed: Sequence[str], tell: Tell = silent) -> None:
    """Fill ``folder`` from an archive that holds it, unless it has all the ``needed`` files already.

    The archive is fetched beside it and removed in the end; one that was put there by hand is used, and stays.
    """
    archive = folder.with_name(remote.file_name)
    with locked(folder, tell):
        if all((folder / name).exists() for name in needed):
            return
        by_hand = archive.exists()
        fetch(remote, archive, tell)
        tell(1.0, f"unpacking {archive.name}")
        unpack(archive, folder)
        if not by_hand:
            archive.unlink()


def unpack(archive: Path, folder: Path) -> None:
    """Fill ``folder`` with what the tar has below that name; files that lie there already stay."""
    with disk_errors(folder), tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as room:
        try:
            with tarfile.open(archive) as tar:
                for member in tar:
                    if _belongs(member, folder.name, archive):
                        tar.extract(member, room, filter="data")
        except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(":")
            raise InputError(f"{archive} must be a whole tar, got a damaged one ({reason}): remove it") from error
        made = Path(room) / folder.name
        require(made.is_dir(), str(archive), f"hold the folder {folder.name}", "none", "remove it")
        if not folder.exists():
            made.replace(folder)
            return
        for file in (each for each in made.rglob("*") if each.is_file()):
            target = folder / file.relative_to(made)
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                file.replace(target)


def _belongs(member: tarfile.TarInfo, folder: str, archive: Path) -> bool:
    """Whether a member lies in the folder; one that could be written elsewhere is an error."""
    place = PurePosixPath(member.name)
    harmless = (member.isreg() or member.isdir()) and not place.is_absolute() and ".." not in place.parts
    rule, remedy = "hold plain files and folders only, none of them outside", "it was tampered with: remove it"
    require(harmless, str(archive), rule, f"the member {member.name!r}", remedy)
    return place.parts[:1] == (folder,)
