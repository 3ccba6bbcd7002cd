"""Find the pictures that paths stand for: folders, archives and lists stand for what is in them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from drq.errors import InputError, require
from drq.serving.archives import is_archive, members
from drq.serving.picture import Picture, is_folder, is_shown

LIST = "@"  # before the name of a file with a path in each line


def listed(paths: Iterable[str]) -> list[str]:
    """The names of all pictures."""
    return [each.name for each in pictures(paths)]


def pictures(paths: Iterable[str], read: bool = False) -> Iterator[Picture]:
    """Every picture that paths stand for, one after the other: nothing is held of those that have passed.

    Args:
        paths: files as they are; a folder or an archive stands for the pictures in it, and for itself where there is none;
            ``@FILE`` for the paths in the lines of that file.
        read: whether bytes that can be read only as they pass, those of packed tars, are; else such pictures have none.
    """
    here = _before(str(Path.cwd()))  # who reads a picture may run elsewhere
    for path in paths:
        if path.startswith(LIST) and not is_folder(path):
            yield from pictures(map(_plain, _lines(path[len(LIST) :])), read)
        elif is_archive(path):
            yield from members(path, _below(here, path), read)
        else:
            yield from (Picture(each, _below(here, each)) for each in _files(path))


def _files(path: str) -> Iterator[str]:
    """The path, or what is below it. A folder without pictures stays: who tries to read it as a picture says what is wrong."""
    inside = _walk(path) if is_folder(path) else iter(())
    yield next(inside, path)
    yield from inside


def _before(folder: str) -> str:
    """What stands before the names of what is in a folder."""
    plain = str(Path(folder)).rstrip("/")
    return "" if plain == "." else f"{plain}/"


def _below(before: str, path: str) -> str:
    """A path, where it is not a whole one already; for millions of them, pathlib would take most of the time."""
    return path if path.startswith("/") else before + path


def _plain(line: str) -> str:
    """A line of a list, which is never a list itself: they could go round."""
    return f"./{line}" if line.startswith(LIST) else line


def _lines(path: str) -> Iterator[str]:
    """The lines of a file that are not empty."""
    rule, remedy = "name a file with a path in each line", f"./{LIST}{path} is a picture of that name"
    try:
        require(Path(path).is_file(), LIST, rule, repr(path), remedy)
        found = False
        with Path(path).open("rb") as file:
            for line in file:
                if each := line.rstrip(b"\r\n"):
                    found = True
                    yield os.fsdecode(each)
        require(found, LIST, rule, f"{path!r} without any", remedy)
    except OSError as error:
        raise InputError(f"{LIST} must {rule}, got {path!r} ({error.strerror}): {remedy}") from error


def _walk(folder: str) -> Iterator[str]:
    """Every picture below a folder, in the order of the names; no hidden ones, and no links to folders, which may go round."""
    ahead = [_entries(folder)]
    while ahead:
        path, enters = next(ahead[-1], (None, False))
        if path is None:
            ahead.pop()
        elif enters:
            ahead.append(_entries(path))
        else:
            yield path


def _entries(folder: str) -> Iterator[tuple[str, bool]]:
    """The pictures and folders in a folder, and which of them are folders to enter.

    A folder that cannot be read is kept: whoever tries to read it as a picture says so.
    """
    names, folders = [], set()
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                inside = entry.is_dir()
                if inside and not entry.name.startswith(".") and not entry.is_symlink():
                    folders.add(entry.name)
                    names.append(entry.name)
                elif not inside and is_shown(entry.name):
                    names.append(entry.name)
    except OSError:
        yield folder, False
        return
    together, before = "/".join(sorted(names)), _before(folder)  # one string: a million of them take five times the memory
    del names
    for found in re.finditer("[^/]+", together):
        yield before + found[0], found[0] in folders
