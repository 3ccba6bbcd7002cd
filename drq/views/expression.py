"""Read views from text, as str(views) writes it: parsed, and never evaluated."""

from __future__ import annotations

import ast
import re
from typing import Any

from drq.errors import InputError, nearest, one_line, require
from drq.registry import VIEWS
from drq.system.code import PYTHON, load_object
from drq.views.view import Given, Own, Views, combined

LONGEST, SHOWN = 2000, 80  # characters of a text, and of one in an error
EXAMPLE = "write it as in 'Rotation(90, 13) + Mirror() * Detail()'"
FUNCTION = re.compile(rf"{PYTHON}[\w.]+:[\w.]+")


def parse(text: str, *, allow_code: bool = False) -> Views:
    """The views in a text, such as ``"Rotation(90, 13) + Mirror() * Detail()"``.

    ``+`` unites views. ``*`` combines them, the left one made first, beside each alone; ``@`` does so without each alone.

    Args:
        text: names of families with their settings, or ``python:package.module:function`` for a view of your own.
        allow_code: whether it may name such functions, whose modules are imported.

    >>> str(parse("Rotation(60, views=9) + (Mirror() + Blur()) * Contrast()"))
    'Rotation(60, 9) + (Mirror() + Blur()) * Contrast()'
    """
    fits = isinstance(text, str) and len(text) <= LONGEST
    require(fits, "views", f"be text of at most {LONGEST} characters", f"{str(text)[:80]!r}", EXAMPLE)
    functions: list[str] = []

    def kept(found: re.Match[str]) -> str:
        functions.append(found[0])
        return f"own[{len(functions) - 1}]"

    try:
        tree = ast.parse(FUNCTION.sub(kept, text).strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"views must be an expression, got {_shown(text)} ({one_line(error)}): {EXAMPLE}") from error
    if functions and not allow_code:
        remedy = "read what it would run, then pass --allow-code (allow_code=True in Python)"
        require(False, "views", "not run code unasked", functions[0], remedy)
    try:
        return _views(tree, text, functions)
    except RecursionError as error:
        raise InputError(f"views must be nested less deeply, got {_shown(text)}: {EXAMPLE}") from error


def as_views(given: Views | Own | str) -> Views:
    """Views as they are, as text, or as a function of a batch that makes one view of it."""
    return parse(given, allow_code=True) if isinstance(given, str) else combined(given)


def _views(node: ast.expr, text: str, functions: list[str]) -> Views:
    match node:
        case ast.BinOp(left, ast.Add(), right):
            return _views(left, text, functions) + _views(right, text, functions)
        case ast.BinOp(left, ast.Mult(), right):
            return _views(left, text, functions) * _views(right, text, functions)
        case ast.BinOp(left, ast.MatMult(), right):
            return _views(left, text, functions) @ _views(right, text, functions)
        case ast.Call(ast.Name(name), arguments, keywords):
            return _family(name, arguments, keywords, text)
        case ast.Subscript(ast.Name("own"), ast.Constant(int(number))) if number < len(functions):
            own = functions[number]
            function = load_object(own.removeprefix(PYTHON))
            require(callable(function), "views", "name a function", own, "it takes a batch (N, ...) and returns one like it")
            return Given(function, own)
        case ast.Name(name) if name in VIEWS:
            raise InputError(f"views must have parentheses behind names, got {name!r} in {_shown(text)}: {EXAMPLE}")
    raise InputError(f"views must be families joined by +, * and @, got {_shown(text)}: {EXAMPLE}")


def _family(name: str, arguments: list[ast.expr], keywords: list[ast.keyword], text: str) -> Views:
    known = ", ".join(VIEWS)
    require(name in VIEWS, "views", f"be of {known}", _shown(name), nearest(name, VIEWS, EXAMPLE))
    settings = {each.arg: _number(each.value, text) for each in keywords if each.arg is not None}
    require(len(settings) == len(keywords), "views", "have settings by name or in order", _shown(text), EXAMPLE)
    try:
        made: Views = VIEWS[name](*(_number(each, text) for each in arguments), **settings)
    except (TypeError, OverflowError) as error:
        rule = f"views must have settings that {name} knows"
        raise InputError(f"{rule}, got {_shown(text)} ({one_line(error)}): correct them") from error
    return made


def _number(node: ast.expr, text: str) -> Any:
    """A number, with a sign or as a fraction."""
    match node:
        case ast.Constant(int() | float() as value) if not isinstance(value, bool):
            return value
        case ast.UnaryOp(ast.USub(), operand):
            return -_number(operand, text)
        case ast.BinOp(ast.Constant(int() | float() as first), ast.Div(), ast.Constant(int() | float() as second)) if second:
            try:
                return first / second
            except OverflowError as error:
                raise InputError(f"views must have numbers that are not so large, got {_shown(text)}: {EXAMPLE}") from error
    raise InputError(f"views must have numbers as settings, got {_shown(text)}: {EXAMPLE}")


def _shown(text: str) -> str:
    """A text for an error, which is one line."""
    return repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}...")
