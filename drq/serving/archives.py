"""Find the pictures in archives, one after the other; nothing is ever written, so that names may be any."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from drq.errors import InputError, one_line
from drq.serving import tars, zips
from drq.serving.picture import Picture, Unreadable, is_shown

NONE = "an archive must have pictures in it, got none in {!r}: those that end as pictures do and are not hidden are found"
DAMAGED = "an archive must be whole, got {!r} ({}): copy or pack it again; what was found before that is answered"
CLOSED = "an archive must be a file that can be read, got {!r} ({}): check its rights"


def is_archive(path: str) -> bool:
    """Whether a file is one, by its ending."""
    return path.lower().endswith((zips.ENDING, *tars.UNPACKED)) and Path(path).is_file()


def members(path: str, place: str, read: bool) -> Iterator[Picture]:
    """The pictures in an archive, in its order. What is wrong with it is the last of them, which says so when it is read.

    Args:
        path: of the archive, as the user knows it.
        place: the whole path.
        read: whether the bytes of members are read that can be read only as they pass.
    """
    found = zips.members(place) if path.lower().endswith(zips.ENDING) else tars.members(place, read)
    several = False
    try:
        for name, where in found:
            if is_shown(name):
                several = True
                yield Picture(f"{path}/{name}", where)
    except InputError as error:
        yield Picture(path, Unreadable(DAMAGED.format(path, one_line(error))))
    except OSError as error:
        yield Picture(path, Unreadable((DAMAGED if error.strerror is None else CLOSED).format(path, one_line(error))))
    else:
        if not several:
            yield Picture(path, Unreadable(NONE.format(path)))
