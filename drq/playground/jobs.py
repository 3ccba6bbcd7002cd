"""Run long computations as jobs that report progress and can be stopped at any pass of the model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

from torch import Tensor, nn

from drq.method.adapters import Wrapper

T = TypeVar("T")
INTERVAL = 0.2  # seconds between two reports of progress


class JobStopped(Exception):  # noqa: N818  # not an error
    """Raised to end a job that was stopped. It is not an InputError, so that no handler of mistakes catches it."""


class Job:
    """The progress of one computation, counted in passes of the model, and whether it was told to stop."""

    def __init__(self) -> None:
        self.passes = 0
        self.expected = 1  # expected passes of the current part
        self.part = ""
        self._stopped = threading.Event()

    def begin(self, part: str, expected: int) -> None:
        """Begin another part, which takes about this many passes."""
        self.passes, self.expected, self.part = 0, max(1, expected), part

    def stop(self) -> None:
        """Make the job end at its next pass."""
        self._stopped.set()

    @property
    def stopped(self) -> bool:
        """Whether the job was told to stop."""
        return self._stopped.is_set()

    @property
    def done(self) -> float:
        """The share of the current part that is done; below 1 even where more passes are made than expected."""
        return min(self.passes / self.expected, 0.99)

    def count(self, rows: int) -> None:
        """Count the rows of a batch, just before the model evaluates them."""
        if self.stopped:
            raise JobStopped
        self.passes += rows


class CountedModel(Wrapper):
    """A model whose passes are counted by a job, and which ends when the job is stopped."""

    def __init__(self, model: nn.Module, job: Job) -> None:
        super().__init__(model)
        self.job = job

    def forward(self, x: Tensor) -> Tensor:
        """Count the batch and return the model's logits."""
        self.job.count(len(x))
        logits: Tensor = self.model(x)
        return logits


def run_in_thread(work: Callable[[], T], job: Job) -> Generator[Job, None, T | None]:
    """Run the work in its own thread and yield the job regularly; return the work's result, or None where it was stopped.

    Closing the generator stops the work.
    """
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(work)
        try:
            while not future.done():
                yield job
                wait([future], INTERVAL)
        finally:
            if not future.done():
                job.stop()
        try:
            return future.result()
        except JobStopped:
            return None


class Jobs:
    """The running job of each session: a session stops only its own, and a new job stops its old one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[str, Job] = {}

    def start(self, session: str) -> Job:
        """Start a job for this session, and stop its old one."""
        job = Job()
        with self._lock:
            old, self._jobs[session] = self._jobs.get(session), job
        if old is not None:
            old.stop()
        return job

    def stop(self, session: str) -> bool:
        """Stop the job of this session; return whether there was one."""
        with self._lock:
            job = self._jobs.pop(session, None)
        if job is not None:
            job.stop()
        return job is not None

    def finish(self, session: str, job: Job) -> None:
        """Remove a job that is done, unless the session has started another since."""
        with self._lock:
            if self._jobs.get(session) is job:
                del self._jobs[session]
