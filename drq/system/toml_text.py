"""Write values as TOML that people read and edit, and read it without trust.

Python reads TOML and writes none. What is written here is read back as the same values, numbers to the last bit.
"""

from __future__ import annotations

import json
import re
import textwrap
import tomllib
from collections.abc import Mapping
from datetime import date, time
from pathlib import Path
from typing import Any

from drq.errors import InputError, one_line, require

WIDTH = 110  # of a line; long rows of numbers are broken
BARE = re.compile(r"[A-Za-z0-9_-]+")
LONGEST, DEEPEST = 4 * 2**20, 50  # bytes of a file that is read, and levels of tables and lists in it


def read(path: Path, what: str, remedy: str) -> dict[str, Any]:
    """The table in a file, which may be anybody's: no larger, and no deeper nested, than people write it.

    Args:
        path: of the file.
        what: it is, for errors.
        remedy: where there is no such file.
    """
    try:
        with path.open("rb") as file:
            data = file.read(LONGEST + 1)
        require(len(data) <= LONGEST, str(path), f"have at most {LONGEST:,} bytes", "more", "leave out what is not needed")
        table = tomllib.loads(data.decode())
    except OSError as error:
        raise InputError(f"{what} must be a file that can be read, got {str(path)!r} ({error.strerror}): {remedy}") from error
    except InputError:
        raise
    except (ValueError, RecursionError) as error:  # of its encoding or syntax, of numbers or lists without end
        raise InputError(f"{what} must be a TOML file, got {str(path)!r} ({one_line(error)}): correct it") from error
    require(not _is_deep(table), what, f"be nested at most {DEEPEST} deep", repr(str(path)), "leave out what is not needed")
    return table


def _is_deep(value: object) -> bool:
    """Whether values lie inside each other more than :data:`DEEPEST` times; without recursion, which they would exhaust."""
    level = [value]
    for _ in range(DEEPEST):
        tables = [list(each.values()) if isinstance(each, dict) else each for each in level]
        level = [each for one in tables if isinstance(one, list) for each in one]
    return bool(level)


def section(name: str, entries: Mapping[str, Any], comments: Mapping[str, str], above: str = "") -> str:
    """A table with a heading.

    Args:
        name: in the heading; "" for none, which suits the beginning of a file.
        entries: keys and values; tables among these are written in braces.
        comments: by key, put behind its value where there is room, else above it.
        above: a comment above the heading, of any length.
    """
    lines = [*_comment(above), *([f"[{name}]"] if name else [])]
    for key, value in entries.items():
        line, said = f"{_key(key)} = {written(value)}", comments.get(key, "")
        fits = "\n" not in line and len(line) + len(said) + 4 <= WIDTH
        lines += [f"{line}  # {said}" if said else line] if fits else [*_comment(said), line]
    return "\n".join(lines) + "\n"


def written(value: object) -> str:
    """A value as TOML has it.

    >>> print(written({"radius": 0.1, "views": "Mirror()", "mean": (1, 2.0)}))
    { radius = 0.1, views = "Mirror()", mean = [1, 2.0] }
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return repr(float(value))  # inf and nan are words of TOML as well
    if isinstance(value, str):
        text = value.encode(errors="backslashreplace").decode()  # names of files may hold bytes that are not text
        return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{_key(key)} = {written(each)}' for key, each in value.items())} }}" if value else "{}"
    listed = isinstance(value, list | tuple)
    require(listed, "a value", "be text, a number, true or false, a list or a table", type(value).__name__, "write it as text")
    assert isinstance(value, list | tuple)
    return _listed([written(each) for each in value])


def _listed(items: list[str]) -> str:
    """A list on one line, or on as many as it takes."""
    rows = [""]
    for item in items:
        longer = f"{rows[-1]}{item}, "
        rows[-1:] = [longer] if len(longer) <= WIDTH or not rows[-1] else [rows[-1], f"{item}, "]
    text = "\n".join(row.rstrip() for row in rows)
    return f"[{text.removesuffix(',')}]" if "\n" not in text else f"[\n{text}\n]"


def _key(name: object) -> str:
    return str(name) if BARE.fullmatch(str(name)) else written(str(name))


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="# ", subsequent_indent="# ")
