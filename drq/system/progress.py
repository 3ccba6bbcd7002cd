"""Progress of long work, with the time left, for machines with nothing but torch."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

Tell = Callable[[float, str], None]  # told the share of the work that is done, and what is done next


def silent(done: float, what: str) -> None:
    """Tells nobody."""


class Bar:
    """A :data:`Tell` that writes one line to standard error: it is rewritten on a terminal, and rare elsewhere.

    Args:
        title: what is going on.
        seconds: between two lines where standard error is no terminal.
    """

    def __init__(self, title: str, seconds: float = 30.0) -> None:
        self.title, self.seconds = title, seconds
        self.began = self.told = time.monotonic()

    def __call__(self, done: float, what: str) -> None:
        """Show how far the work is."""
        now, terminal = time.monotonic(), sys.stderr.isatty()
        if not terminal and done < 1 and now - self.told < self.seconds:
            return
        self.told = now
        left = "" if done <= 0 else f", {clock((now - self.began) * (1 - done) / done)} left"
        line = f"{self.title} {100 * done:3.0f} %{left}  {what}"
        print(f"\r{line[:100]:100}" if terminal else line, end="" if terminal and done < 1 else "\n", file=sys.stderr, flush=True)


def clock(seconds: float) -> str:
    """Minutes and seconds.

    >>> clock(125)
    '2:05'
    """
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
