"""A picture by its name and the place of its bytes: a file, a part of an archive, or memory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from drq import images
from drq.data.folders import ENDINGS
from drq.errors import InputError

if TYPE_CHECKING:
    from PIL.Image import Image


class Place(Protocol):
    """Where the bytes of a picture are, if it is no file of its own. It can be sent to another process."""

    def content(self) -> bytes:
        """All of them, no more than a picture may have."""


class Held(NamedTuple):
    """Bytes that are in memory, since what they came from cannot be read twice."""

    data: bytes

    def content(self) -> bytes:
        """The bytes."""
        return self.data


class Unreadable(NamedTuple):
    """No bytes: what is wrong was seen before they were read."""

    error: str

    def content(self) -> bytes:
        """Refuse."""
        raise InputError(self.error)


class Picture(NamedTuple):
    """A picture that somebody asks about."""

    name: str  # as the user knows it: its path, behind that of its archive where it lies in one
    place: str | Place  # the path of a file, or where else its bytes are

    def image(self) -> Image:
        """It as 8-bit RGB, upright; refused in one line where it cannot be read."""
        if not isinstance(self.place, str):
            return images.read(self._content(self.place), self.name)
        try:
            return images.read(self.place, self.name)
        except InputError as error:
            raise (InputError(_no_pictures(self.place, self.name)) if is_folder(self.place) else error) from error

    def _content(self, place: Place) -> bytes:
        try:
            return place.content()
        except OSError as error:
            rule, remedy = "name a file that can be read", "check the archive"
            raise InputError(f"path must {rule}, got {self.name!r} ({error.strerror}): {remedy}") from error


def _no_pictures(folder: str, name: str) -> str:
    """Why a folder stands where a picture should: otherwise those in it would."""
    if not os.access(folder, os.R_OK | os.X_OK):
        return f"a folder must be one that can be read, got {name!r}: check its rights"
    remedy = f"those that end in {', '.join(sorted(ENDINGS))} and are not hidden are found, others must be named"
    return f"a folder must have pictures in it, got none in {name!r}: {remedy}"


def is_folder(path: str) -> bool:
    """Whether there is a folder of this name."""
    try:
        return Path(path).is_dir()
    except OSError:  # a name that is too long, or behind a closed door: whoever reads it says more
        return False


def is_shown(name: str) -> bool:
    """Whether a name, or a path in an archive, is that of a picture, and hidden nowhere.

    >>> [is_shown(each) for each in ("a/b.PNG", "../b.png", "a/.b.png", "__MACOSX/._b.png", "b.txt", "folder.png/")]
    [True, True, False, False, False, False]
    """
    hidden = "/." in f"/{name}" and any(part.startswith(".") and part not in (".", "..") for part in name.split("/"))
    return not hidden and name[name.rfind(".") :].lower() in ENDINGS
