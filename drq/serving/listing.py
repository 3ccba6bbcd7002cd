"""Find the pictures that paths stand for: a folder stands for those below it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from drq.data.folders import ENDINGS


def listed(paths: Iterable[str]) -> list[str]:
    """Files as they are given; a folder stands for the pictures below it, and for itself where there is none."""
    return [each for path in paths for each in (_below(path) or [path] if is_folder(path) else [path])]


def _below(folder: str) -> list[str]:
    """Every picture below a folder, in the order of the names; no hidden ones, and no links to folders, which may go round.

    A folder that cannot be read is kept: whoever tries to read it as a picture says so.
    """
    closed: list[str] = []
    found = [
        Path(place, name)
        for place, folders, names in os.walk(folder, onerror=lambda error: closed.append(error.filename))
        for name in _shown(folders, names)
        if Path(name).suffix.lower() in ENDINGS
    ]
    return [str(each) for each in sorted([*found, *map(Path, closed)])]


def _shown(folders: list[str], names: list[str]) -> list[str]:
    """The names that are not hidden. Hidden folders are taken off the list, so that the walk does not enter them."""
    folders[:] = [each for each in folders if not each.startswith(".")]
    return [each for each in names if not each.startswith(".")]


def is_folder(path: str) -> bool:
    """Whether there is a folder of this name."""
    try:
        return Path(path).is_dir()
    except OSError:  # a name that is too long, or behind a closed door: whoever reads it says more
        return False
