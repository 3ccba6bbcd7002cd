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
from drq.search.loop import Count, Follow, Going, Look, Problems, Search, advance, follow

Places = npt.NDArray[np.int64]

BATCHES = (16, 32, 64, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072)  # for few images, and for the end of a call
FEW = 64  # fewer than this share of the slots, and they leave together with later ones
TICKET, ROW, LEFT, MAY_LEAVE = range(4)
RECORDING = Lock()  # a process records one CUDA graph at a time


@dataclass(frozen=True)
class Held(Rows):
    """What the slots hold, one problem each."""

    given: tuple[Tensor, ...]  # of the objective
    center: Tensor
    radius: Tensor
    going: Going
    count: Tensor  # (S,) looks taken
    enough: Tensor  # (S,) -inf where there is no such value

    @classmethod
    def of(cls, problems: Problems) -> Held:
        """The problems as they are to be held."""
        radius = problems.ball.radius
        count = torch.full_like(radius, problems.looks.start, dtype=torch.long)
        enough = torch.full_like(radius, -torch.inf) if problems.enough is None else problems.enough
        return cls(problems.objective.given, problems.ball.center, radius, problems.going, count, enough)


def put(mine: Rows, places: Tensor, others: Rows) -> None:
    """Write the rows of ``others`` to ``places``."""
    for to, what in zip(mine.tensors(), others.tensors(), strict=True):
        to.index_copy_(0, places, what.to(to.dtype))


def is_last(problems: Problems) -> bool:
    """Whether only the look after the last step is due."""
    return problems.looks.start == problems.method.steps


class Ticket:
    """Problems that were handed in together, and what became of them so far."""

    _numbers = numbers(1)

    def __init__(self, problems: Problems, owner: int, asked: range) -> None:
        self.asked = asked  # looks, of which those of the problems may be the first ones only
        self.number, self.owner, self.problems = next(self._numbers), owner, problems
        self.held, self.may_leave = Held.of(problems), problems.enough is not None
        self.result = problems.going.copy()
        self.handed, self.missing = 0, len(problems)

    @property
    def waiting(self) -> int:
        """Problems that no slot has taken yet."""
        return len(self.held.count) - self.handed


class Studio:
    """Where CUDA graphs are recorded: on one stream and in one pool of memory, so that one uses what another has left."""

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


class Lane:
    """Slots for problems of one kind: the same method, measure, model and space.

    Args:
        problems: an example.
        size: number of slots.
        sizes: of the batches that are recorded as CUDA graphs, from small to large; others are run as they are.
        studio: where the graphs are recorded.
        follow: what takes in a look; None for what it is in the readable loop.
    """

    def __init__(
        self,
        problems: Problems,
        size: int,
        sizes: list[int],
        studio: Studio | None = None,
        follow: Follow | None = None,
    ) -> None:
        self.method, self.measure, self.model = problems.method, problems.objective.measure, problems.objective.model
        self.last, self.follow = is_last(problems), follow
        self.sizes, self.studio, self.device = sizes, studio, problems.ball.center.device
        self.held = Held.of(problems[self._index(np.zeros(size, dtype=np.int64))]).copy()
        self.ball = replace(problems.ball, center=self.held.center, radius=self.held.radius)
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self.clear()

    def clear(self) -> None:
        """Forget all problems."""
        size = len(self.held.count)
        self.queue: deque[Ticket] = deque()
        self.tickets: dict[int, Ticket] = {}
        self.slots = np.zeros((size, 4), dtype=np.int64)  # of every slot: ticket (0 for none), row in it, looks left, may leave
        self.live = 0  # the first so many slots are taken
        self.asked: _Answer | None = None

    @property
    def waiting(self) -> int:
        """Problems in the queue."""
        return sum(ticket.waiting for ticket in self.queue)

    @property
    def load(self) -> int:
        """Problems in slots and in the queue."""
        return int((self.slots[:, TICKET] > 0).sum()) + self.waiting

    def step(self) -> list[Ticket]:
        """Fill free slots, take one look in all that are taken, and return the tickets that are solved."""
        with torch.cuda.device(self.device) if self.device.type == "cuda" else nullcontext():
            return self._step()

    def _step(self) -> list[Ticket]:
        self._fill()
        self._look(self._batch())
        taken = self.slots[: self.live]
        taken[:, LEFT] -= 1
        leaving = (taken[:, LEFT] == 0) | self._early()
        few = leaving.sum() < self.live // FEW and (taken[leaving, LEFT] > 0).all()
        return [] if few or not leaving.any() else self._hand_back(np.flatnonzero(leaving))

    def _early(self) -> npt.NDArray[np.bool_]:
        """Which slots hold a problem whose value is low enough; on a GPU as it was a look ago, so that nothing waits for it."""
        taken = self.slots[: self.live]
        if not taken[:, MAY_LEAVE].any():
            self.asked = None
            return np.zeros(self.live, dtype=np.bool_)
        answer = (self.held.going.found.value < self.held.enough)[: self.live]
        if not answer.is_cuda:
            return answer.numpy()
        before, self.asked = self.asked, _Answer(answer, taken[:, : ROW + 1].copy())
        leaving = np.zeros(self.live, dtype=np.bool_)
        if before is not None:
            known = min(self.live, len(before.slots))
            same = (before.slots[:known] == taken[:known, : ROW + 1]).all(1)
            leaving[:known] = before.arrived()[:known] & same
        return leaving

    def _batch(self) -> int:
        as_they_are = min(len(self.slots), max(BATCHES[0], self.live))  # PyTorch compiles smaller batches anew
        return next((size for size in self.sizes if size >= self.live), as_they_are)

    def _look(self, batch: int) -> None:
        """Take a look in the first slots."""
        if batch not in self.sizes:
            self._advance(batch)
            return
        if batch not in self.graphs:
            self.graphs[batch] = self._recorded(batch)
        self.graphs[batch].replay()

    def _advance(self, batch: int) -> None:
        held, ball = self.held[:batch], self.ball[:batch]
        count = self.method.steps if self.last else held.count
        objective = Objective(self.model, self.measure, held.given)
        going = advance(self.method, objective, ball, held.going, count, self.follow)
        for mine, new in zip(held.going.tensors(), going.tensors(), strict=True):
            mine.copy_(new)
        held.count.add_(1)

    def _recorded(self, batch: int) -> torch.cuda.CUDAGraph:
        """The kernels of one look as a CUDA graph, launched as one; what is in the slots stays as it is."""
        assert self.studio is not None
        held = self.held[:batch]
        before = held.copy()
        graph = self.studio.record(lambda: self._advance(batch))
        for now, then in zip(held.tensors(), before.tensors(), strict=True):
            now.copy_(then)
        return graph

    def _hand_back(self, places: Places) -> list[Ticket]:
        """Give what is in these slots back to its tickets; return those that have all."""
        going, solved = self.held.going[self._index(places)], []
        for number in np.unique(self.slots[places, TICKET]):
            ticket, mine = self.tickets[number], self.slots[places, TICKET] == number
            rows = self.slots[places[mine], ROW]
            put(ticket.result, self._index(rows), going if mine.all() else going[self._index(np.flatnonzero(mine))])
            ticket.missing -= len(rows)
            if not ticket.missing:
                solved.append(self.tickets.pop(number))
        self.slots[places] = 0
        return solved

    def _fill(self) -> None:
        """Put waiting problems in free slots; where there are too few, move the last ones up, so that the first are taken."""
        free = np.flatnonzero(self.slots[:, TICKET] == 0)
        while len(free) and self.queue:
            ticket = self.queue[0]
            count = min(len(free), ticket.waiting)
            places, first = free[:count], ticket.handed
            put(self.held, self._index(places), ticket.held[first : first + count])
            self.tickets[ticket.number] = ticket
            self.slots[places] = ticket.number, 0, len(ticket.problems.looks), ticket.may_leave
            self.slots[places, ROW] = np.arange(first, first + count)
            ticket.handed, free = first + count, free[count:]
            if not ticket.waiting:
                self.queue.popleft()
        self.live = len(self.slots) - len(free)
        holes, last = free[free < self.live], self.live + np.flatnonzero(self.slots[self.live :, TICKET])
        if len(holes):
            put(self.held, self._index(holes), self.held[self._index(last)])
            self.slots[holes], self.slots[last] = self.slots[last], 0

    def _index(self, places: Places) -> Tensor:
        index = torch.from_numpy(places)
        return index.pin_memory().to(self.device, non_blocking=True) if self.device.type == "cuda" else index


def fused() -> Follow:
    """:func:`drq.search.loop.follow` compiled: some twenty kernels that each read and write all points become two."""
    compiled = alone(follow)

    def followed(method: Search, look: Look, ball: Ball, going: Going, count: Count) -> Going:
        seen = look.score if look.gradient is None else (*look.score, look.gradient)
        any_batch((*seen, ball.center, ball.radius, *going.tensors(), *([count] if isinstance(count, Tensor) else [])))
        result: Going = compiled(method, look, ball, going, count)
        return result

    return followed


class _Answer:
    """Booleans on their way from a GPU, and which problems were in the slots when they left."""

    def __init__(self, answer: Tensor, slots: Places) -> None:
        self.slots = slots
        self.values = torch.empty(answer.shape, dtype=answer.dtype, pin_memory=True).copy_(answer, non_blocking=True)
        self.sent = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self.sent.record()

    def arrived(self) -> npt.NDArray[np.bool_]:
        self.sent.synchronize()
        return self.values.numpy()
