"""Names that run code: ``python:package.module:name`` is an object of that module. In files they need permission."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from drq.errors import InputError, one_line, require

PYTHON = "python:"
RUNS = re.compile(rf"(\w+:)*{PYTHON}")  # also behind names that go before others, as in denoised:python:package.module:function
VIEWS = re.compile(r"(^|\.)views(\[\d+\])*$")  # where views stand, whose text joins names with others
MODULES = re.compile(rf"{PYTHON}([^\W\d]\w*)[\w.]*:")  # wherever they stand in a text
SHOWN = 120  # characters of a name, and of where it stands, at most


def code_place(name: object) -> str | None:
    """The place ``package.module:name`` in a name that runs code; None for all other names.

    >>> code_place("python:package.module:function"), code_place("digits")
    ('package.module:function', None)
    """
    return name.removeprefix(PYTHON) if isinstance(name, str) and name.startswith(PYTHON) else None


def load_object(place: str) -> Any:
    """The object at ``package.module:name``; the module is imported, and with it its code is run.

    >>> load_object("fractions:Fraction.from_float")(0.5)
    Fraction(1, 2)
    """
    module, colon, name = place.partition(":")
    fits = bool(colon) and all(part.isidentifier() for part in [*module.split("."), *name.split(".")])
    rule = "have the form python:package.module:factory"
    require(fits, "name", rule, repr(place), "name the module, then the function")
    try:
        found: Any = import_module(module)
    except ImportError as error:
        here = error.name == module.partition(".")[0] and _lies_in(module, Path())
        remedy = "it lies in this folder: start with PYTHONPATH=." if here else "install it, or put its folder in PYTHONPATH"
        raise InputError(f"{module} must be a module that can be imported, got '{one_line(error)}': {remedy}") from error
    for part in name.split("."):
        require(hasattr(found, part), place, f"name something in {module}", f"no {name}", "check its spelling")
        found = getattr(found, part)
    return found


def refuse_code(contents: object, file: str | Path, allow_code: bool) -> None:
    """Refuse the contents of a file that names code to run, at any depth, unless the caller allowed it.

    >>> refuse_code({"models": ["digits"]}, "mine.toml", allow_code=False)
    >>> refuse_code({"models": ["python:os:system?command=ls"]}, "theirs.toml", allow_code=False)
    Traceback (most recent call last):
    drq.errors.InputError: theirs.toml must not run code unasked, got models[0] = 'python:os:system?command=ls': read what it \
    would run, then pass --allow-code (allow_code=True in Python)
    """
    if allow_code:
        return
    for where, name in _texts(contents):
        got = f"{_short(where)} = {_short(name)!r}"
        remedy = "read what it would run, then pass --allow-code (allow_code=True in Python)"
        runs = RUNS.match(name) is not None or (PYTHON in name and VIEWS.search(where) is not None)
        require(not runs, str(file), "not run code unasked", got, remedy)


def check_beside(contents: object, file: Path) -> None:
    """No module that the contents of a file name lies beside that file, where Python does not look."""
    modules = (module for _, text in _texts(contents) for module in MODULES.findall(text))
    lost = next((each for each in modules if _lies_in(each, file.parent) and find_spec(each) is None), None)
    got = f"one beside {file.name}, where Python does not look"
    require(lost is None, str(lost), "be a module that can be imported", got, f"start with PYTHONPATH={file.parent.resolve()}")


def _lies_in(module: str, folder: Path) -> bool:
    """Whether a folder has that module, or the package that it is in."""
    place = folder / module.partition(".")[0]
    return place.with_suffix(".py").is_file() or place.is_dir()


def _texts(contents: object) -> Iterator[tuple[str, str]]:
    """Every text in what a file says, keys as well, and where it stands; without recursion, which a deep file would exhaust."""
    waiting = [("", contents)]
    while waiting:
        where, value = waiting.pop()
        if isinstance(value, str):
            yield where, value
        elif isinstance(value, Mapping):
            inside = [(f"{where}.{key}" if where else str(key), each) for key, each in value.items()]
            yield from ((f"a key in {where}" if where else "a key", key) for key in value if isinstance(key, str))
            waiting += reversed(inside)
        elif isinstance(value, list | tuple):
            waiting += [(f"{where}[{number}]", each) for number, each in reversed([*enumerate(value)])]


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
