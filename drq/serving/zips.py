"""Read the members of a zip one after the other; its directory, which may name millions, is never held."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from drq.errors import InputError, require
from drq.images import BYTES
from drq.serving.picture import Place, Unreadable

ENDING = ".zip"
END, FAR_END, ENTRY, MEMBER = b"PK\5\6", b"PK\6\6", b"PK\1\2", b"PK\3\4"  # what its records begin with
END_SIZE, FAR_END_SIZE, LOCATOR_SIZE, ENTRY_SIZE, MEMBER_SIZE = 22, 56, 20, 46, 30
LONGEST_COMMENT, FULL = 2**16 - 1, 2**32 - 1  # a number that is full stands elsewhere, with more digits
ENCRYPTED, IN_UTF8 = 1, 2**11  # flags
STORED, DEFLATED = 0, 8
AGAIN = "pack it again"


class Zipped(NamedTuple):
    """A member of a zip."""

    path: str  # of the zip
    offset: int  # of its own header
    packed: int  # bytes
    size: int
    method: int
    checksum: int

    def content(self) -> bytes:
        """The member, unpacked: no more of it than its size says."""
        with Path(self.path).open("rb") as file:
            file.seek(self.offset)
            header = _exactly(file, MEMBER_SIZE)
            require(header.startswith(MEMBER), "a zip", "have its members where it says", "something else", AGAIN)
            file.seek(sum(struct.unpack_from("<2H", header, 26)), os.SEEK_CUR)  # its name once more, and notes
            data = _exactly(file, self.packed)
        if self.method == DEFLATED:
            try:
                data = zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, self.size + 1)
            except zlib.error as error:
                raise InputError(f"a zip must have whole members, got one that is not ({error}): {AGAIN}") from error
        whole = len(data) == self.size and zlib.crc32(data) == self.checksum
        require(whole, "a zip", "have whole members", "one of another size or checksum than it says", AGAIN)
        return data


def members(path: str) -> Iterator[tuple[str, Place]]:
    """The names of all members in the order of the directory, and where their bytes are."""
    with Path(path).open("rb") as file:
        start, stop, before = _directory(file)
        file.seek(start)
        while file.tell() < stop:
            entry = _exactly(file, ENTRY_SIZE)
            require(entry.startswith(ENTRY), "a zip", "have a directory", "something else in it", AGAIN)
            flags, method, checksum, *sizes = struct.unpack_from("<2H4xI2I", entry, 8)
            of_name, of_notes, of_comment, offset = struct.unpack_from("<3H8xI", entry, 28)
            name, notes = _exactly(file, of_name), _exactly(file, of_notes)
            file.seek(of_comment, os.SEEK_CUR)
            size, packed, offset = _full_numbers(notes, [sizes[1], sizes[0], offset])
            readable = name.decode("utf-8" if flags & IN_UTF8 else "cp437", errors="backslashreplace")
            fault = _fault(readable, flags, method, max(size, packed))
            yield readable, Unreadable(fault) if fault else Zipped(path, offset + before, packed, size, method, checksum)


def _fault(name: str, flags: int, method: int, size: int) -> str:
    """Why a member cannot be read, in one line; nothing where it can."""
    if flags & ENCRYPTED:
        return f"a zip must not be encrypted, got {name!r}, which is: {AGAIN}"
    if method not in (STORED, DEFLATED):
        return f"a zip must have members that are stored or deflated, got {name!r} with method {method}: {AGAIN}"
    if size > BYTES:
        return f"path must name a file of at most {BYTES:,} bytes, got {name!r} of {size:,}: make it smaller first"
    return ""


def _directory(file: IO[bytes]) -> tuple[int, int, int]:
    """Where the directory starts and stops, and how many bytes stand before the zip, as in those that unpack themselves."""
    length = file.seek(0, os.SEEK_END)
    file.seek(max(0, length - END_SIZE - LONGEST_COMMENT - LOCATOR_SIZE - FAR_END_SIZE))
    tail = file.read()
    place = tail.rfind(END)
    there = 0 <= place <= len(tail) - END_SIZE
    require(there, "a zip", "end with the place of its directory", "none", AGAIN)
    size, offset = struct.unpack_from("<2I", tail, place + 12)
    far = place - LOCATOR_SIZE - FAR_END_SIZE
    if far >= 0 and tail.startswith(FAR_END, far):
        size, offset = struct.unpack_from("<2Q", tail, far + 40)
        place = far
    stop = length - len(tail) + place
    before = stop - size - offset
    require(before >= 0, "a zip", "have its directory where it says", f"one that begins {-before} bytes too early", AGAIN)
    return stop - size, stop, before


def _full_numbers(notes: bytes, numbers: list[int]) -> list[int]:
    """Size, packed size and offset, each from the notes where there was no room for it."""
    while FULL in numbers and len(notes) >= 4:
        kind, length = struct.unpack_from("<2H", notes)
        if kind == 1:
            values = iter(struct.unpack_from(f"<{min(length, len(notes) - 4) // 8}Q", notes, 4))
            return [next(values, each) if each == FULL else each for each in numbers]
        notes = notes[4 + length :]
    return numbers


def _exactly(file: IO[bytes], size: int) -> bytes:
    data = file.read(size)
    require(len(data) == size, "a zip", "be whole", "one that ends early", AGAIN)
    return data
