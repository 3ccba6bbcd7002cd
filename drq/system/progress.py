"""Progress of long work, with the time left, for machines with nothing but torch."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from drq.errors import require

Tell = Callable[[float, str], None]  # told the share of the work that is done, and what is done next
ProgressOption = (
    bool | Callable[[int, int], None]
)  # True shows a bar; what can be called is told passes that are done, and in all

PATIENCE, OFTEN = 5.0, 0.1  # seconds until a short piece of work counts as a long one; between two lines on a terminal


def silent(done: float, what: str) -> None:
    """Tells nobody."""


class Bar:
    """A :data:`Tell` that writes one line to standard error: it is rewritten on a terminal, and rare elsewhere.

    Args:
        title: what is going on.
        seconds: between two lines where standard error is no terminal.
        patience: seconds in which nothing is shown: work that is done by then needs no line.
        before: the share of the work that was done before: it tells nothing of the pace.
    """

    def __init__(self, title: str, seconds: float = 30.0, patience: float = 0.0, before: float = 0.0) -> None:
        self.title, self.seconds, self.patience, self.before = title, seconds, patience, before
        self.began = time.monotonic()
        self.told: float | None = None  # when the last line was written

    def __call__(self, done: float, what: str) -> None:
        """Show how far the work is."""
        now, terminal = time.monotonic(), sys.stderr.isatty()
        if not self._is_due(done, now, OFTEN if terminal else self.seconds):
            return
        self.told = now
        here = done - self.before
        left = "" if here <= 0 else f", {clock((now - self.began) * (1 - done) / here)} left"
        line = f"{self.title} {100 * done:3.0f} %{left}  {what}"
        print(f"\r{line[:100]:100}" if terminal else line, end="" if terminal and done < 1 else "\n", file=sys.stderr, flush=True)

    def _is_due(self, done: float, now: float, pause: float) -> bool:
        """Whether it is time for a line. The last one comes at once, but after patience alone nobody waits for it."""
        if self.told is not None:
            return done >= 1 or now - self.told >= pause
        if self.patience:
            return done < 1 and now - self.began >= self.patience
        return done >= 1 or pause == OFTEN or now - self.began >= pause


class Meter:
    """The progress of a call, in passes of the model. Their total is a bound, which falls when passes turn out not to be needed.

    What it tells never goes back, and says that all is done once, in the end.

    Args:
        tell: is told how many passes are done, and how many there will be at most.
        total: how many there will be at most.

    >>> meter = Meter(lambda done, total: print(done, "of", total), 40)
    >>> meter.count(10)
    10 of 40
    >>> meter.spare(20)
    10 of 20
    >>> meter.count(10)
    >>> meter.end()
    20 of 20
    """

    def __init__(self, tell: Callable[[int, int], None], total: int) -> None:
        self.tell, self.total = tell, total
        self.done, self.share = 0, 0.0  # the share is the one that was told

    def expect(self, passes: int) -> None:
        """So many more will be needed, at most."""
        self.total += passes

    def count(self, passes: int) -> None:
        """So many more are done."""
        self.done += passes
        self._say()

    def spare(self, passes: int) -> None:
        """So many turned out not to be needed."""
        self.total -= passes
        self._say()

    def end(self) -> None:
        """All is done."""
        if self.done:
            self.tell(self.done, self.done)

    def _say(self) -> None:
        if self.done < self.total and (share := self.done / self.total) > self.share:
            self.share = share
            self.tell(self.done, self.total)


class Listener:
    """Tells a function or a bar how far calls are. Copies tell the same function; what was pickled can only show a bar.

    Args:
        progress: see :data:`ProgressOption`.
    """

    def __init__(self, progress: ProgressOption) -> None:
        rule, remedy = "be True, False or a function of passes done and in all", "True shows a bar"
        require(isinstance(progress, bool) or callable(progress), "progress", rule, repr(progress), remedy)
        self.progress = progress

    def meter(self, title: str, passes: int) -> Meter:
        """For one call of so many passes, at most."""
        if not isinstance(self.progress, bool):
            return Meter(self.progress, passes)
        bar = Bar(title, patience=PATIENCE)
        return Meter(lambda done, total: bar(done / total, f"{done:,} of at most {total:,} passes of the model"), passes)

    def __deepcopy__(self, memo: object) -> Listener:
        return self

    def __reduce__(self) -> tuple[type[Listener], tuple[bool]]:
        return Listener, (self.progress is True,)


def duration(seconds: float) -> str:
    """Return a time in words, for estimates.

    >>> [duration(each) for each in (20, 1500, 9000)]
    ['20 seconds', '25 minutes', '2.5 hours']
    """
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:,.1f} hours"


def clock(seconds: float) -> str:
    """Minutes and seconds.

    >>> clock(125)
    '2:05'
    """
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
