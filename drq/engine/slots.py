"""Searches on a fixed number of slots: problems that are solved leave, and waiting ones take their place.

A compiled model and a CUDA graph are fast because nothing changes between two runs, least of all the shape of the batch. Searches
do change it: classes are pruned, and the last block is small. So rows of a batch become slots, as in servers of language models:
each holds one problem with its own step and state, whatever its sample, class and phase, and the batch is stepped as a whole by
:func:`drq.search.loop.advance`, which is what the readable loop does too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import count as numbers
from threading import Lock

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from drq.engine.compiled import alone, any_batch
from drq.norms import Ball
from drq.objectives import Objective
from drq.rows import Rows
from drq.search.loop import Count, Observation, Problems, Progress, Search, Update, advance, update

Places = npt.NDArray[np.int64]

BATCHES = (16, 32, 64, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072)  # for few images, and for the end of a call
FEW = 64  # fewer than this share of the slots, and they leave together with later ones
JOB, ROW, LEFT, MAY_LEAVE = range(4)
RECORDING = Lock()  # a process records one CUDA graph at a time


@dataclass(frozen=True)
class Contents(Rows):
    """The contents of the slots, one problem each."""

    given: tuple[Tensor, ...]  # of the objective
    center: Tensor
    radius: Tensor
    progress: Progress
    count: Tensor  # (S,) observations made
    stop_below: Tensor  # (S,) -inf where there is no such value

    @classmethod
    def of(cls, problems: Problems) -> Contents:
        """The contents that these problems make."""
        radius = problems.ball.radius
        count = torch.full_like(radius, problems.observations.start, dtype=torch.long)
        stop_below = torch.full_like(radius, -torch.inf) if problems.stop_below is None else problems.stop_below
        return cls(problems.objective.given, problems.ball.center, radius, problems.progress, count, stop_below)


def write_rows(mine: Rows, places: Tensor, others: Rows) -> None:
    """Write the rows of ``others`` to ``places``."""
    for to, what in zip(mine.tensors(), others.tensors(), strict=True):
        to.index_copy_(0, places, what.to(to.dtype))


def only_last_remains(problems: Problems) -> bool:
    """Whether only the observation after the last step remains."""
    return problems.observations.start == problems.method.steps


class Job:
    """Problems that wait for slots together, and their solutions so far."""

    _numbers = numbers(1)

    def __init__(self, problems: Problems, owner: int, requested: range) -> None:
        self.requested = requested  # observations; those of the problems may be only the first of them
        self.number, self.owner, self.problems = next(self._numbers), owner, problems
        self.contents, self.may_leave = Contents.of(problems), problems.stop_below is not None
        self.result = problems.progress.copy()
        self.started, self.missing = 0, len(problems)

    @property
    def waiting(self) -> int:
        """Problems that no slot has taken yet."""
        return len(self.contents.count) - self.started


class GraphRecorder:
    """Records CUDA graphs on one stream and in one pool of memory, so that they share its buffers."""

    def __init__(self, device: torch.device) -> None:
        self.pool = torch.cuda.graph_pool_handle()
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def record(self, work: Callable[[], None]) -> torch.cuda.CUDAGraph:
        """The kernels of ``work`` as a graph."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            for _ in range(3):  # compiles, and chooses kernels
                work()
        torch.cuda.current_stream().wait_stream(self.stream)
        graph = torch.cuda.CUDAGraph()
        with RECORDING, torch.cuda.graph(graph, pool=self.pool, stream=self.stream, capture_error_mode="thread_local"):
            work()
        return graph


class SlotGroup:
    """Slots for problems of one kind: the same method, measure, model and space.

    Args:
        problems: an example.
        size: number of slots.
        sizes: of the batches that are recorded as CUDA graphs, from small to large; others are run as they are.
        recorder: records them.
        compiled_update: replaces :func:`drq.search.loop.update`; None for that itself.
    """

    def __init__(
        self,
        problems: Problems,
        size: int,
        sizes: list[int],
        recorder: GraphRecorder | None = None,
        compiled_update: Update | None = None,
    ) -> None:
        self.method, self.measure, self.model = problems.method, problems.objective.measure, problems.objective.model
        self.last, self.compiled_update = only_last_remains(problems), compiled_update
        self.sizes, self.recorder, self.device = sizes, recorder, problems.ball.center.device
        self.contents = Contents.of(problems[self._index(np.zeros(size, dtype=np.int64))]).copy()
        self.ball = replace(problems.ball, center=self.contents.center, radius=self.contents.radius)
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self.clear()

    def clear(self) -> None:
        """Forget all problems."""
        size = len(self.contents.count)
        self.queue: deque[Job] = deque()
        self.jobs: dict[int, Job] = {}
        self.slots = np.zeros((size, 4), dtype=np.int64)  # job (0 for none), row in it, observations left, may leave
        self.live = 0  # the first so many slots are taken
        self.observed = 0  # so many problems were observed in the last step, in one pass of the model each
        self.in_transit: _FlagsInTransit | None = None

    @property
    def waiting(self) -> int:
        """Problems in the queue."""
        return sum(job.waiting for job in self.queue)

    @property
    def load(self) -> int:
        """Problems in slots and in the queue."""
        return int((self.slots[:, JOB] > 0).sum()) + self.waiting

    def step(self) -> list[Job]:
        """Fill free slots, make one observation in all that are taken, and return the jobs that are done."""
        with torch.cuda.device(self.device) if self.device.type == "cuda" else nullcontext():
            return self._step()

    def _step(self) -> list[Job]:
        self._fill()
        self._observe(self._batch())
        self.observed = self.live
        taken = self.slots[: self.live]
        taken[:, LEFT] -= 1
        leaving = (taken[:, LEFT] == 0) | self._early()
        few = leaving.sum() < self.live // FEW and (taken[leaving, LEFT] > 0).all()
        return [] if few or not leaving.any() else self._return_solved(np.flatnonzero(leaving))

    def _early(self) -> npt.NDArray[np.bool_]:
        """Which slots hold a problem that may stop; on a GPU as of one observation ago, so that nothing waits for it."""
        taken = self.slots[: self.live]
        if not taken[:, MAY_LEAVE].any():
            self.in_transit = None
            return np.zeros(self.live, dtype=np.bool_)
        answer = (self.contents.progress.best.value < self.contents.stop_below)[: self.live]
        if not answer.is_cuda:
            return answer.numpy()
        before, self.in_transit = self.in_transit, _FlagsInTransit(answer, taken[:, : ROW + 1].copy())
        leaving = np.zeros(self.live, dtype=np.bool_)
        if before is not None:
            known = min(self.live, len(before.slots))
            same = (before.slots[:known] == taken[:known, : ROW + 1]).all(1)
            leaving[:known] = before.arrived()[:known] & same
        return leaving

    def _batch(self) -> int:
        as_they_are = min(len(self.slots), max(BATCHES[0], self.live))  # PyTorch compiles smaller batches anew
        return next((size for size in self.sizes if size >= self.live), as_they_are)

    def _observe(self, batch: int) -> None:
        """Make one observation in the first slots."""
        if batch not in self.sizes:
            self._advance(batch)
            return
        if batch not in self.graphs:
            self.graphs[batch] = self._recorded(batch)
        self.graphs[batch].replay()

    def _advance(self, batch: int) -> None:
        contents, ball = self.contents[:batch], self.ball[:batch]
        count = self.method.steps if self.last else contents.count
        objective = Objective(self.model, self.measure, contents.given)
        progress = advance(self.method, objective, ball, contents.progress, count, self.compiled_update)
        for mine, new in zip(contents.progress.tensors(), progress.tensors(), strict=True):
            mine.copy_(new)
        contents.count.add_(1)

    def _recorded(self, batch: int) -> torch.cuda.CUDAGraph:
        """The kernels of one observation as a CUDA graph, launched as one; the contents of the slots stay as they are."""
        assert self.recorder is not None
        contents = self.contents[:batch]
        before = contents.copy()
        graph = self.recorder.record(lambda: self._advance(batch))
        for now, then in zip(contents.tensors(), before.tensors(), strict=True):
            now.copy_(then)
        return graph

    def _return_solved(self, places: Places) -> list[Job]:
        """Return the contents of these slots to their jobs; the result is the jobs that are complete."""
        progress, solved = self.contents.progress[self._index(places)], []
        for number in np.unique(self.slots[places, JOB]):
            job, mine = self.jobs[number], self.slots[places, JOB] == number
            rows = self.slots[places[mine], ROW]
            write_rows(job.result, self._index(rows), progress if mine.all() else progress[self._index(np.flatnonzero(mine))])
            job.missing -= len(rows)
            if not job.missing:
                solved.append(self.jobs.pop(number))
        self.slots[places] = 0
        return solved

    def _fill(self) -> None:
        """Put waiting problems in free slots; where there are too few, move the last ones up, so that the first are taken."""
        free = np.flatnonzero(self.slots[:, JOB] == 0)
        while len(free) and self.queue:
            job = self.queue[0]
            count = min(len(free), job.waiting)
            places, first = free[:count], job.started
            write_rows(self.contents, self._index(places), job.contents[first : first + count])
            self.jobs[job.number] = job
            self.slots[places] = job.number, 0, len(job.problems.observations), job.may_leave
            self.slots[places, ROW] = np.arange(first, first + count)
            job.started, free = first + count, free[count:]
            if not job.waiting:
                self.queue.popleft()
        self.live = len(self.slots) - len(free)
        holes, last = free[free < self.live], self.live + np.flatnonzero(self.slots[self.live :, JOB])
        if len(holes):
            write_rows(self.contents, self._index(holes), self.contents[self._index(last)])
            self.slots[holes], self.slots[last] = self.slots[last], 0

    def _index(self, places: Places) -> Tensor:
        index = torch.from_numpy(places)
        return index.pin_memory().to(self.device, non_blocking=True) if self.device.type == "cuda" else index


def fused_update() -> Update:
    """:func:`drq.search.loop.update` compiled: some twenty kernels that each read and write all points become two."""
    compiled = alone(update)

    def updated(method: Search, observation: Observation, ball: Ball, progress: Progress, count: Count) -> Progress:
        tensors = observation.score if observation.gradient is None else (*observation.score, observation.gradient)
        any_batch((*tensors, ball.center, ball.radius, *progress.tensors(), *([count] if isinstance(count, Tensor) else [])))
        result: Progress = compiled(method, observation, ball, progress, count)
        return result

    return updated


class _FlagsInTransit:
    """Booleans on their way from a GPU, and which problems were in the slots when they left."""

    def __init__(self, answer: Tensor, slots: Places) -> None:
        self.slots = slots
        self.values = torch.empty(answer.shape, dtype=answer.dtype, pin_memory=True).copy_(answer, non_blocking=True)
        self.sent = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self.sent.record()

    def arrived(self) -> npt.NDArray[np.bool_]:
        self.sent.synchronize()
        return self.values.numpy()
