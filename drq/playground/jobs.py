"""Long work that can be watched and stopped: every pass of the model is counted, and none begins once it shall stop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

from torch import Tensor, nn

from drq.method.adapters import Wrapper

T = TypeVar("T")
OFTEN = 0.2  # seconds between two looks at how far it is


class Stopped(Exception):  # noqa: N818  # it is no error
    """The work shall not go on. No error of a model: nothing that catches those may catch this."""


class Watch:
    """Of one piece of work: how many passes of the model it has taken, and whether it shall stop."""

    def __init__(self) -> None:
        self.passes = 0
        self.expected = 1  # passes that the present part takes, about
        self.what = ""
        self._stopped = threading.Event()

    def begin(self, what: str, expected: int) -> None:
        """Another part of the work begins."""
        self.passes, self.expected, self.what = 0, max(1, expected), what

    def stop(self) -> None:
        """Let the work end at its next pass."""
        self._stopped.set()

    @property
    def stopped(self) -> bool:
        """Whether it shall end."""
        return self._stopped.is_set()

    @property
    def done(self) -> float:
        """The share of the present part; what is expected may be too low, and then it stays just below 1."""
        return min(self.passes / self.expected, 0.99)

    def count(self, rows: int) -> None:
        """So many rows are about to pass."""
        if self.stopped:
            raise Stopped
        self.passes += rows


class Watched(Wrapper):
    """A model whose passes are counted."""

    def __init__(self, model: nn.Module, watch: Watch) -> None:
        super().__init__(model)
        self.watch = watch

    def forward(self, x: Tensor) -> Tensor:
        """As the model."""
        self.watch.count(len(x))
        logits: Tensor = self.model(x)
        return logits


def followed(work: Callable[[], T], watch: Watch) -> Generator[Watch, None, T | None]:
    """Do the work in a thread of its own and come back now and then; ends with its result, None where it was stopped.

    Who closes the generator stops the work.
    """
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(work)
        try:
            while not future.done():
                yield watch
                wait([future], OFTEN)
        finally:
            if not future.done():
                watch.stop()
        try:
            return future.result()
        except Stopped:
            return None


class Desk:
    """The work under way, by whose it is: everybody stops only their own, and new work ends the old."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watches: dict[str, Watch] = {}

    def take(self, owner: str) -> Watch:
        """A watch for new work."""
        watch = Watch()
        with self._lock:
            old, self._watches[owner] = self._watches.get(owner), watch
        if old is not None:
            old.stop()
        return watch

    def stop(self, owner: str) -> bool:
        """Stop the work of this owner; whether there was any."""
        with self._lock:
            watch = self._watches.pop(owner, None)
        if watch is not None:
            watch.stop()
        return watch is not None

    def leave(self, owner: str, watch: Watch) -> None:
        """The work is done."""
        with self._lock:
            if self._watches.get(owner) is watch:
                del self._watches[owner]
