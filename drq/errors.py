"""The exception for mistakes of the caller, which the command line tells from bugs, and the wording of usual ones."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from difflib import get_close_matches
from importlib import import_module
from typing import Any

ELSEWHERE = {  # what other libraries call things
    **dict.fromkeys(("eps", "epsilon", "epsilons"), "radius"),
    **dict.fromkeys(("nb_iter", "max_iter", "n_iter", "num_steps", "iterations"), "steps"),
    **dict.fromkeys(("p", "ord"), "norm"),
}


class InputError(ValueError):
    """An argument breaks a rule. The message names the argument, the rule, the value and the remedy."""


class MissingError(InputError):
    """What an argument names exists, but not on this machine: a file of weights, a data set, an optional package."""


def require(condition: bool, argument: str, rule: str, value: object, remedy: str, error: type[InputError] = InputError) -> None:
    """Raise :class:`InputError`, or a kind of it, unless ``condition`` holds.

    >>> require(-1 >= 0, "radius", "be at least 0", -1, "use 0 for the undefended classifier")
    Traceback (most recent call last):
    drq.errors.InputError: radius must be at least 0, got -1: use 0 for the undefended classifier
    """
    if not condition:
        raise error(f"{argument} must {rule}, got {value}: {remedy}")


def one_line(error: BaseException, length: int = 200) -> str:
    """The message of an exception on one line, short enough to be part of another message."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= length else f"{text[:length]}..."


def imported(name: str, purpose: str, remedy: str) -> Any:
    """A module of an optional package; an error that names the remedy where it is missing."""
    package = name.partition(".")[0]
    try:
        with warnings.catch_warnings():  # what these libraries use of each other is not the caller's business
            warnings.simplefilter("ignore")
            import_module(package)  # first: a part may be loaded though the whole is blocked
            return import_module(name)
    except Exception as error:  # beside another torch than it was built for, torchvision raises a RuntimeError
        raise MissingError(f"{package} must be installed for {purpose}, got '{one_line(error)}': {remedy}") from error


def nearest(name: str, names: Iterable[str], otherwise: str) -> str:
    """A remedy for a name that nobody knows.

    >>> nearest("resnet5", ["resnet50"], "check its spelling")
    'did you mean resnet50?'
    >>> nearest("eps", ["norm", "radius"], "there is a norm and a radius")
    'did you mean radius?'
    """
    known = [*names]
    near = [each for each in (ELSEWHERE.get(name.lower()),) if each in known] or get_close_matches(name, known, 1)
    return f"did you mean {near[0]}?" if near else otherwise
