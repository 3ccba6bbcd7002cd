"""The one exception for a caller's mistake, so that the command line can tell it from a bug."""

from __future__ import annotations


class InputError(ValueError):
    """An argument breaks a rule. The message names the argument, the rule, the value and the remedy."""


def require(condition: bool, argument: str, rule: str, value: object, remedy: str) -> None:
    """Raise :class:`InputError` unless ``condition`` holds.

    >>> require(-1 >= 0, "radius", "be at least 0", -1, "use 0 for the undefended classifier")
    Traceback (most recent call last):
    drq.errors.InputError: radius must be at least 0, got -1: use 0 for the undefended classifier
    """
    if not condition:
        raise InputError(f"{argument} must {rule}, got {value}: {remedy}")
