"""The sha256 of every file of a run: ``sha256sum -c sha256sums`` in its directory checks them without this package.

A line is added after its file was written. A file without one was left by a crash in between, or written before there were
checksums: it gets one when it was read whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from drq.system.files import atomic_write, digest

NAME = "sha256sums"
LINE = re.compile(r"([0-9a-f]{64}) [ *]((?:parts|records)/[0-9-]+\.(?:npz|parquet))")  # as coreutils write it


def known(run: Path) -> dict[str, str]:
    """The sha256 of every file that has a line. Of two lines the last counts; one that a crash cut off is none."""
    try:
        text = (run / NAME).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return {}
    found = (LINE.fullmatch(line) for line in text.splitlines())
    return {line[2]: line[1] for line in found if line is not None}


def name(path: Path) -> str:
    """The name of a file in the list."""
    return f"{path.parent.name}/{path.name}"


def add(run: Path, path: Path) -> None:
    """Add the checksum of a file that was just written."""
    with (run / NAME).open("a+b") as file:
        file.seek(max(0, file.tell() - 1))
        start = b"" if file.read() in (b"", b"\n") else b"\n"  # a crash may have cut off the last line
        file.write(start + _line(name(path), digest(path)))


def rewrite(run: Path, files: Iterable[Path]) -> None:
    """Write the list anew, in one piece: known checksums of these files, and those of files without one as they are now."""
    names, sums = {name(path): path for path in files}, known(run)
    kept = {each: sums[each] for each in sums if each in names}
    whole = kept | {each: digest(path) for each, path in names.items() if each not in kept}
    content = b"".join(_line(each, content) for each, content in whole.items())
    if content != ((run / NAME).read_bytes() if (run / NAME).exists() else b""):
        with atomic_write(run / NAME) as file:
            file.write(content)


def _line(each: str, content: str) -> bytes:
    return f"{content}  {each}\n".encode()
