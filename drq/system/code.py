"""Names that run code: ``python:package.module:name`` leads to whatever that module has."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from drq.errors import InputError, one_line, require

PYTHON = "python:"


def behind(name: object) -> str | None:
    """Where a name that runs code leads to, as ``package.module:name``; None for all other names.

    >>> behind("python:package.module:function"), behind("digits")
    ('package.module:function', None)
    """
    return name.removeprefix(PYTHON) if isinstance(name, str) and name.startswith(PYTHON) else None


def thing(place: str) -> Any:
    """What ``package.module:name`` leads to; the module is imported, and with it its code is run.

    >>> thing("fractions:Fraction.from_float")(0.5)
    Fraction(1, 2)
    """
    module, colon, name = place.partition(":")
    fits = bool(colon) and all(part.isidentifier() for part in [*module.split("."), *name.split(".")])
    rule = "have the form python:package.module:factory"
    require(fits, "name", rule, repr(place), "name the module, then the function")
    try:
        found: Any = import_module(module)
    except ImportError as error:
        remedy = "install it, or put its folder in PYTHONPATH"
        raise InputError(f"{module} must be a module that can be imported, got '{one_line(error)}': {remedy}") from error
    for part in name.split("."):
        require(hasattr(found, part), place, f"name something in {module}", f"no {name}", "check its spelling")
        found = getattr(found, part)
    return found
