"""The engine: compiles the model once, and searches several blocks of samples at a time on slots."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Iterator
from dataclasses import replace
from threading import Lock
from typing import TypeVar

import torch
from torch import Tensor

from drq.engine.compiled import Compiled
from drq.engine.slots import BATCHES, GraphRecorder, Job, SlotGroup, fused_update, only_last_remains
from drq.method.execution import Execution, InPrecision
from drq.method.regions import Procedure
from drq.objectives import Model
from drq.search.loop import Problems, Progress

T = TypeVar("T")

logger = logging.getLogger("drq")

MOST_BLOCKS = 6  # under way at a time, which bounds memory and keeps the slots taken
MOST_SLOTS = 4096  # more do not make a GPU faster
TOGETHER = 2  # times the slots that a block of samples may fill: larger blocks are handed in and taken back less often


class Engine:
    """Carries out procedures on slots: several at a time, so that all slots are taken until the last problems.

    All that search the same model may share one, and with it what is compiled; they take turns.
    """

    def __init__(self) -> None:
        self.groups: dict[object, SlotGroup] = {}
        self.models: dict[torch.dtype | None, Compiled] = {}
        self.exact: InPrecision | None = None
        self.lock = Lock()

    def __deepcopy__(self, memo: object) -> Engine:
        return Engine()  # what is compiled belongs to one model on one device

    def __reduce__(self) -> tuple[type[Engine], tuple[()]]:
        return Engine, ()

    def prepare(self, execution: Execution, chunk: int | None, on_gpu: bool) -> Execution:
        """The execution with the compiled model, and with as many rows as there are slots."""
        assert isinstance(execution.model, InPrecision)
        compiled = self.compiled(execution.model)
        assert self.exact is not None
        chunk = chunk or _power_of_2(min(execution.chunk, MOST_SLOTS))
        spare = BATCHES[0] if on_gpu else 0  # graphs of the smallest batch take as long with fewer rows
        return replace(execution, searched=compiled, exact=self.exact, chunk=chunk, together=TOGETHER, spare=spare)

    def compiled(self, eager: InPrecision) -> Compiled:
        """The model compiled in its precision, with the weights that it has now."""
        model, dtype = eager.model, eager.dtype
        with self.lock:  # another thread may be at work on the slots
            if self.exact is None or not all(each.follows(model) for each in self.models.values()):
                self.groups, self.models, self.exact = {}, {}, InPrecision(model, None)
            if dtype not in self.models:
                logger.warning(
                    "drq: the model is compiled for this and later calls of any batch size, which takes up to a minute"
                )
                self.models[dtype] = Compiled(model, dtype)
            self.models[dtype].refresh()
            return self.models[dtype]

    def drive(self, execution: Execution, procedures: Iterable[Procedure[T]], most: float = MOST_BLOCKS) -> Generator[T]:
        """The results of the procedures, in their order; at most ``most`` of them are under way at a time."""
        with self.lock:
            try:
                yield from self._drive(enumerate(procedures), execution, most)
            finally:
                for group in self.groups.values():
                    group.clear()

    def _drive(self, numbered: Iterator[tuple[int, Procedure[T]]], execution: Execution, most: float) -> Iterator[T]:
        running: dict[int, Procedure[T]] = {}
        ended: dict[int, T] = {}
        upcoming = 0

        def resume(owner: int, progress: Progress | None) -> None:
            """Enqueue the problems that a procedure yields next."""
            try:
                problems = next(running[owner]) if progress is None else running[owner].send(progress)
                while problems.method.in_step or not len(problems):
                    problems = running[owner].send(execution.solve(problems))
            except StopIteration as stop:
                ended[owner] = stop.value
                del running[owner]
            else:
                self._enqueue(problems, owner, execution)

        while True:
            while len(running) < most and sum(group.waiting for group in self.groups.values()) < execution.chunk:
                if (started := next(numbered, None)) is None:
                    break
                running[started[0]] = started[1]
                resume(started[0], None)
            while upcoming in ended:
                yield ended.pop(upcoming)
                upcoming += 1
            if not running:
                return
            fullest = max(self.groups.values(), key=lambda group: group.load)
            assert fullest.load, "a problem was lost"
            solved = fullest.step()
            if execution.meter is not None:
                execution.meter.count(fullest.observed)
            for job in solved:
                if job.problems.observations.stop == job.requested.stop:
                    resume(job.owner, job.result)
                else:
                    rest = range(job.problems.observations.stop, job.requested.stop)
                    self._enqueue(job.problems.continued_from(job.result).limited_to(rest), job.owner, execution)

    def _enqueue(self, problems: Problems, owner: int, execution: Execution) -> None:
        """Let problems wait for slots; where they are many, their last observations wait for each other, and need no gradient."""
        requested, last = problems.observations, problems.method.steps
        if problems.stop_below is None and requested.start < last < requested.stop and len(problems) > execution.spare:
            problems = problems.limited_to(range(requested.start, last))
        self._group(problems, execution).queue.append(Job(problems, owner, requested))

    def _group(self, problems: Problems, execution: Execution) -> SlotGroup:
        """The slots for problems of this kind; whatever a recorded graph would not see change is part of the kind."""
        size = execution.chunk
        objective, center = problems.objective, problems.ball.center
        norm, limits, frozen = execution.space
        bounds = tuple(id(each) if isinstance(each, Tensor) else each for each in limits or ())
        space = (center.shape[1:], center.dtype, center.device, center.stride()[1:], norm, bounds, id(frozen))
        kind = (problems.method, only_last_remains(problems), objective.measure, objective.model, space, size, _flags())
        if kind not in self.groups:
            sizes, recorder = self._graphs(objective.model, size, center.device)
            often = bool(sizes) and isinstance(objective.model, Compiled) and not only_last_remains(problems)
            self.groups[kind] = SlotGroup(problems, size, sizes, recorder, fused_update() if often else None)
        return self.groups[kind]

    def _graphs(self, model: Model, size: int, device: torch.device) -> tuple[list[int], GraphRecorder | None]:
        """The batches for which there are CUDA graphs, and where these are recorded."""
        fixed = all(each.holds_tensors for each in self.models.values())  # else weights may move without being seen to
        if device.type != "cuda" or not fixed:
            return [], None
        recorder = next((group.recorder for group in self.groups.values()), None) or GraphRecorder(device)
        if model is self.exact:  # full precision is slow enough to launch larger batches one by one, without empty slots
            return [each for each in BATCHES if each < min(size, 100)], recorder
        return [each for each in BATCHES if each < size] + [size], recorder


def _flags() -> tuple[object, ...]:
    """What of PyTorch's state changes the kernels that run."""
    backends = torch.backends
    tf32 = backends.cudnn.allow_tf32, backends.cuda.matmul.allow_tf32
    return torch.is_autocast_enabled(), *tf32, backends.cudnn.deterministic


def _power_of_2(most: int) -> int:
    return 1 << (most.bit_length() - 1)
