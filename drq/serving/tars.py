"""Read the members of a tar one after the other; it may be packed, and is then read once from its beginning to its end."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, NamedTuple, Protocol

from drq.errors import InputError, one_line, require
from drq.images import BYTES
from drq.serving.picture import Held, Place, Unreadable, is_shown

CHUNK = 2**18  # bytes
HEADER = 2**18  # bytes of one header at most: it may claim any length
CUT = "path must be whole, got {!r}, where its tar ends: copy it again"
DICTIONARY = 2**27  # bytes that unpacking may hold of an xz: the strongest setting of xz takes half of it


class Slice(NamedTuple):
    """A member of a tar that is not packed."""

    path: str  # of the tar
    offset: int
    size: int

    def content(self) -> bytes:
        """The member."""
        with Path(self.path).open("rb") as file:
            file.seek(self.offset)
            data = file.read(self.size)
        require(len(data) == self.size, "a tar", "be whole", "one that ends early", "copy it again")
        return data


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class _Xz(io.RawIOBase):
    """An xz, unpacked in bounded memory, whatever it claims to need."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.decoder, self.rest = file, self._new(), b""

    @staticmethod
    def _new() -> lzma.LZMADecompressor:
        return lzma.LZMADecompressor(memlimit=DICTIONARY)

    def read(self, size: int = -1) -> bytes:
        """At most so many bytes; none at the end."""
        while True:
            if self.decoder.eof:  # several may follow each other, with zeros between them
                self.rest = (self.decoder.unused_data or self.file.read(CHUNK)).lstrip(b"\0")
                if not self.rest:
                    return b""
                self.decoder = self._new()
            packed = (self.rest or self.file.read(CHUNK)) if self.decoder.needs_input else b""
            if not packed and self.decoder.needs_input:
                raise EOFError("it ends early")
            self.rest = b""
            if data := self.decoder.decompress(packed, size):
                return data


UNPACKED: dict[str, Callable[[IO[bytes]], _Readable] | None] = {
    ".tar": None,
    **dict.fromkeys((".tar.gz", ".tgz"), lambda file: gzip.GzipFile(fileobj=file)),
    **dict.fromkeys((".tar.bz2", ".tbz2"), bz2.BZ2File),
    **dict.fromkeys((".tar.xz", ".txz"), _Xz),
}


class _Forward:
    """A file that is read from its beginning to its end, as tarfile asks for it: never much at once, and never back."""

    def __init__(self, file: _Readable) -> None:
        self.file, self.place = file, 0

    def tell(self) -> int:
        return self.place

    def seek(self, place: int) -> None:
        assert place >= self.place
        while self.place < place and self._next(min(CHUNK, place - self.place)):
            pass

    def read(self, size: int, most: int = HEADER) -> bytes:
        """So many bytes, or as many as there are."""
        require(size <= most, "a tar", f"have headers of at most {most:,} bytes", f"one of {size:,}", "pack it again")
        parts = []
        while size > 0 and (part := self._next(size)):
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _next(self, size: int) -> bytes:
        data = self.file.read(size)
        self.place += len(data)
        return data


class _Seeking(_Forward):
    """The same for a file in which one can go on without reading."""

    file: IO[bytes]

    def seek(self, place: int) -> None:
        self.place = self.file.seek(place)


def members(path: str, read: bool) -> Iterator[tuple[str, Place]]:
    """The names of all members but folders in their order, and where their bytes are.

    Args:
        path: of the tar.
        read: whether the bytes of pictures in a packed tar are read; else they only pass.
    """
    unpacked = UNPACKED[next(each for each in UNPACKED if path.lower().endswith(each))]
    with Path(path).open("rb") as file:
        forward = _Seeking(file) if unpacked is None else _Forward(unpacked(file))
        try:
            with tarfile.TarFile(fileobj=forward) as tar:  # type: ignore[arg-type]  # it needs no more of a file than this
                yield from _members(path, tar, None if unpacked is None else forward, read)
        except (OSError, InputError):
            raise
        except Exception as error:  # a damaged or hostile file makes decoders raise anything
            raise InputError(one_line(error)) from error


def _members(path: str, tar: tarfile.TarFile, packed: _Forward | None, read: bool) -> Iterator[tuple[str, Place]]:
    while (member := tar.next()) is not None:
        tar.members.clear()  # type: ignore[attr-defined]  # it would keep all of them
        tar.pax_headers = {}
        if member.isdir():
            continue
        try:
            place = _place(path, member, packed, read and is_shown(member.name))
        except Exception:
            yield member.name, Unreadable(CUT.format(member.name))
            raise
        yield member.name, place


def _place(path: str, member: tarfile.TarInfo, packed: _Forward | None, read: bool) -> Place:
    """Where the bytes of a member are. Those of a packed tar pass now: whether they are read or not, it is seen if they end."""
    if not member.isreg() or member.issparse():
        return Unreadable(f"a picture in a tar must be a plain file, got {member.name!r}, a link or device: pack it again")
    if member.size > BYTES:
        got = f"{member.name!r} of {member.size:,}"
        return Unreadable(f"path must name a file of at most {BYTES:,} bytes, got {got}: make it smaller first")
    if packed is None:
        return Slice(path, member.offset_data, member.size)
    end = packed.tell() + member.size
    data = packed.read(member.size, BYTES) if read else b""
    packed.seek(end)
    require(packed.tell() == end, "a tar", "be whole", "one that ends early", "copy it again")
    return Held(data)
