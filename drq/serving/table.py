"""The table that a job fills: a row at a time, each in one piece, so that it goes on wherever it was stopped."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import IO, Any

from drq.errors import InputError, require
from drq.serving.formats import FORMATS, Format
from drq.serving.rows import Row
from drq.system import files
from drq.system.files import atomic_write, try_lock

SETTINGS = ".settings.json"  # behind the name of the table: on what its answers depend
NOT_COMPARED = ("drq",)  # the version is noted
LONGEST = 2**20  # bytes of a row: more without an end are no row that was cut off
KEY_BYTES = 16
SHORT, FEW = 60, 3  # characters of a setting that are shown; settings that are
ANEW = "--restart begins anew, another name keeps it"


@dataclass
class Totals:
    """What the rows of a table say together."""

    rows: int = 0
    before: int = 0  # rows that were there when this call began
    twice: int = 0  # pictures that were named more than once, which have a row once
    abstained: int = 0
    refused: int = 0  # pictures that could not be read
    passes: int = 0
    seconds: float = 0.0

    def add(self, row: Row) -> None:
        """Count a row."""
        self.rows += 1
        self.abstained += bool(row["abstains"])
        self.refused += row["error"] is not None
        self.passes += row["passes"] or 0
        self.seconds += row["seconds"] or 0.0


class Table:
    """A table that is open for writing; nobody else writes to it."""

    def __init__(self, path: Path, file: FileIO, form: Format) -> None:
        self.path, self.file, self.form = path, file, form
        self.totals, self.done = Totals(), bytearray()  # the keys of its rows, one behind the other

    def read(self) -> int:
        """Note all rows that are there; return where the last whole one ends."""
        end, header = 0, self.form.header
        with self.path.open("rb") as file:
            for record, end in self._records(file):
                if end > len(header) or record != header:
                    self._note(record, end)
        self.totals.before = self.totals.rows
        return end

    def _note(self, record: bytes, end: int) -> None:
        try:
            row = self.form.row(record)
            self.totals.add(row)
            self.done += key(row["file"])
        except (ValueError, TypeError, AttributeError) as error:
            got = f"{str(self.path)!r} with something else before byte {end:,}"
            raise InputError(f"--out must hold rows of drq predict, got {got}: {ANEW}") from error

    def _records(self, file: IO[bytes]) -> Iterator[tuple[bytes, int]]:
        """Every whole record, the header among them, and where it ends. What comes behind the last of them was cut off."""
        record, end, inside = bytearray(), 0, False
        while line := file.readline(LONGEST):
            record += line
            inside ^= self.form.quotes and line.count(b'"') % 2 == 1
            got = f"{str(self.path)!r} with a damaged one behind byte {end:,}"
            require(len(record) < LONGEST, "--out", "hold rows of drq predict", got, ANEW)
            if line.endswith(b"\n") and not inside:
                end += len(record)
                yield bytes(record), end
                record.clear()

    def put(self, row: Row) -> None:
        """Append a row: whole, or not at all as far as the next call sees."""
        row = row | {"file": text(row["file"])}
        with disk_errors(self.path):
            line = memoryview(self.form.line(row))
            while line:  # once, unless the disk is full
                line = line[self.file.write(line) :]
        self.totals.add(row)

    def begin(self, end: int) -> None:
        """Take off what was cut off, and have a header."""
        with disk_errors(self.path):
            self.file.truncate(end)
            if end == 0:
                self.file.write(self.form.header)


def text(name: str) -> str:
    """A name as it stands in the table, which is text; bytes in it that are none are written as such."""
    return name.encode(errors="backslashreplace").decode()


def key(name: str) -> bytes:
    """What stands for a name where millions are held."""
    return hashlib.blake2b(name.encode(errors="backslashreplace"), digest_size=KEY_BYTES).digest()


def table_path(name: str) -> Path:
    """The path of a table, checked before anything is computed."""
    path, rule = Path(name), "name a file that can be written"
    require(path.suffix.lower() in FORMATS, "--out", f"end in {', '.join(FORMATS)}", repr(name), "for example answers.csv")
    with disk_errors(path):
        require(path.is_file() or not path.exists(), "--out", rule, repr(name), "a folder or a device is none")
    return path


@contextmanager
def open_table(path: Path, settings: Mapping[str, Any], restart: bool = False) -> Iterator[Table]:
    """The table at a path, to go on with or to begin.

    Args:
        path: of it; beside it lies a file with the settings.
        settings: on which answers depend, made of what JSON knows: a table of others is refused.
        restart: whether what is there is thrown away.
    """
    beside = path.with_name(path.name + SETTINGS)
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+b", buffering=0)  # every write reaches the system at once
    with file:
        _claim(file, path)
        table = Table(path, file, FORMATS[path.suffix.lower()]())
        _check_ours(table, beside)
        end = 0 if restart else table.read()
        if table.totals.rows:
            _check_same(path, beside, settings)
        else:
            table.begin(0)  # before the settings change: rows never stand beside others than their own
            with disk_errors(path), atomic_write(beside) as other:
                other.write(json.dumps(settings, indent=2).encode())
        table.begin(end)
        yield table
        with disk_errors(path):
            os.fsync(file.fileno())


def _claim(file: FileIO, path: Path) -> None:
    """The right to write, as long as the file is open."""
    try:
        free = try_lock(file)
    except OSError:  # a file system without locks, as on some clusters
        return
    require(free, "--out", "not be in use", f"{str(path)!r}, which another process writes", "wait for it, or name another file")


def _check_ours(table: Table, beside: Path) -> None:
    """Only what this command wrote is changed: it has its settings beside it, or nothing but a header."""
    header = table.form.header
    with disk_errors(table.path), table.path.open("rb") as file:
        begun = header.startswith(file.read(len(header) + 1))
    rule, remedy = f"have {beside.name} beside it, which says how its rows were made", "name another file, or remove this one"
    require(begun or beside.is_file(), "--out", rule, f"{str(table.path)!r} without it", remedy)


def _check_same(path: Path, beside: Path, settings: Mapping[str, Any]) -> None:
    """Rows of other settings are not continued."""
    try:
        then = json.loads(beside.read_text())
        names = [name for name in {**settings, **then} if name not in NOT_COMPARED]
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"--out must have its settings beside it, got {str(beside)!r}, which cannot be read: {ANEW}") from error
    now = json.loads(json.dumps(settings))
    values = {name: (then.get(name), now.get(name)) for name in names}
    others = [f"{name} {_shown(old)}, not {_shown(new)}" for name, (old, new) in values.items() if old != new]
    more = f" and {len(others) - FEW} more" if len(others) > FEW else ""
    got = f"{str(path)!r} with {'; '.join(others[:FEW])}{more}"
    require(not others, "--out", "hold answers with the same settings", got, ANEW)


def _shown(value: object) -> str:
    found = json.dumps(value)
    return found if len(found) <= SHORT else f"{found[: SHORT // 2]}..."


def disk_errors(path: Path) -> AbstractContextManager[None]:
    """Turn errors of the disk into one clear line."""
    return files.disk_errors("--out", path, "name a file that can be written", "choose another, or change its rights")
