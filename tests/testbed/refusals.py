"""What a caller's mistake must look like."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from drq import InputError


def refused(call: Callable[..., Any], *arguments: Any, words: Iterable[str] = (), **options: Any) -> str:
    """The message of the refusal: one line, with these words."""
    with pytest.raises(InputError) as caught:
        call(*arguments, **options)
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message, message
    return message
