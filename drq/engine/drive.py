"""What carries out searches on slots: it compiles the model once, and keeps several blocks of samples under way."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Iterator
from dataclasses import replace
from threading import Lock
from typing import TypeVar

import torch
from torch import Tensor

from drq.engine.compiled import Compiled
from drq.engine.slots import BATCHES, Lane, Studio, Ticket, fused, is_last
from drq.method.regions import Procedure
from drq.method.setting import InPrecision, Setting
from drq.objectives import Model
from drq.search.loop import Going, Problems

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
        self.lanes: dict[object, Lane] = {}
        self.models: dict[torch.dtype | None, Compiled] = {}
        self.exact: InPrecision | None = None
        self.lock = Lock()

    def __deepcopy__(self, memo: object) -> Engine:
        return Engine()  # what is compiled belongs to one model on one device

    def __reduce__(self) -> tuple[type[Engine], tuple[()]]:
        return Engine, ()

    def prepare(self, setting: Setting, chunk: int | None, on_gpu: bool) -> Setting:
        """The setting with the compiled model, and with as many rows as there are slots."""
        assert isinstance(setting.model, InPrecision)
        compiled = self.compiled(setting.model)
        assert self.exact is not None
        chunk = chunk or _power_of_2(min(setting.chunk, MOST_SLOTS))
        spare = BATCHES[0] if on_gpu else 0  # graphs of the smallest batch take as long with fewer rows
        return replace(setting, searched=compiled, exact=self.exact, chunk=chunk, together=TOGETHER, spare=spare)

    def compiled(self, eager: InPrecision) -> Compiled:
        """The model compiled in its precision, with the weights that it has now."""
        model, dtype = eager.model, eager.dtype
        with self.lock:  # another thread may be at work on the lanes
            if self.exact is None or not all(each.follows(model) for each in self.models.values()):
                self.lanes, self.models, self.exact = {}, {}, InPrecision(model, None)
            if dtype not in self.models:
                logger.warning(
                    "drq: the model is compiled for this and later calls of any batch size, which takes up to a minute"
                )
                self.models[dtype] = Compiled(model, dtype)
            self.models[dtype].refresh()
            return self.models[dtype]

    def drive(self, setting: Setting, procedures: Iterable[Procedure[T]], most: float = MOST_BLOCKS) -> Generator[T]:
        """What the procedures end with, in their order; ``most`` of them are under way at a time."""
        with self.lock:
            try:
                yield from self._drive(enumerate(procedures), setting, most)
            finally:
                for lane in self.lanes.values():
                    lane.clear()

    def _drive(self, numbered: Iterator[tuple[int, Procedure[T]]], setting: Setting, most: float) -> Iterator[T]:
        running: dict[int, Procedure[T]] = {}
        ended: dict[int, T] = {}
        upcoming = 0

        def resume(owner: int, going: Going | None) -> None:
            """Hand in what a procedure asks for next."""
            try:
                problems = next(running[owner]) if going is None else running[owner].send(going)
                while problems.method.in_step or not len(problems):
                    problems = running[owner].send(setting.solve(problems))
            except StopIteration as stop:
                ended[owner] = stop.value
                del running[owner]
            else:
                self._hand_in(problems, owner, setting)

        while True:
            while len(running) < most and sum(lane.waiting for lane in self.lanes.values()) < setting.chunk:
                if (started := next(numbered, None)) is None:
                    break
                running[started[0]] = started[1]
                resume(started[0], None)
            while upcoming in ended:
                yield ended.pop(upcoming)
                upcoming += 1
            if not running:
                return
            fullest = max(self.lanes.values(), key=lambda lane: lane.load)
            assert fullest.load, "a problem was lost"
            for ticket in fullest.step():
                if ticket.problems.looks.stop == ticket.asked.stop:
                    resume(ticket.owner, ticket.result)
                else:
                    rest = range(ticket.problems.looks.stop, ticket.asked.stop)
                    self._hand_in(ticket.problems.resumed(ticket.result).due(rest), ticket.owner, setting)

    def _hand_in(self, problems: Problems, owner: int, setting: Setting) -> None:
        """Let problems wait for slots; where they are many, their last looks wait for each other, and do without gradients."""
        asked, last = problems.looks, problems.method.steps
        if problems.enough is None and asked.start < last < asked.stop and len(problems) > setting.spare:
            problems = problems.due(range(asked.start, last))
        self._lane(problems, setting).queue.append(Ticket(problems, owner, asked))

    def _lane(self, problems: Problems, setting: Setting) -> Lane:
        """The slots for problems of this kind; whatever a recorded graph would not see change is part of the kind."""
        size = setting.chunk
        objective, center = problems.objective, problems.ball.center
        norm, limits, frozen = setting.space
        bounds = tuple(id(each) if isinstance(each, Tensor) else each for each in limits or ())
        space = (center.shape[1:], center.dtype, center.device, center.stride()[1:], norm, bounds, id(frozen))
        kind = (problems.method, is_last(problems), objective.measure, objective.model, space, size, _flags())
        if kind not in self.lanes:
            sizes, studio = self._graphs(objective.model, size, center.device)
            often = bool(sizes) and isinstance(objective.model, Compiled) and not is_last(problems)
            self.lanes[kind] = Lane(problems, size, sizes, studio, fused() if often else None)
        return self.lanes[kind]

    def _graphs(self, model: Model, size: int, device: torch.device) -> tuple[list[int], Studio | None]:
        """The batches for which there are CUDA graphs, and where these are recorded."""
        fixed = all(each.holds_tensors for each in self.models.values())  # else weights may move without being seen to
        if device.type != "cuda" or not fixed:
            return [], None
        studio = next((lane.studio for lane in self.lanes.values()), None) or Studio(device)
        if model is self.exact:  # full precision is slow enough to launch larger batches one by one, without empty slots
            return [each for each in BATCHES if each < min(size, 100)], studio
        return [each for each in BATCHES if each < size] + [size], studio


def _flags() -> tuple[object, ...]:
    """What of PyTorch's state changes the kernels that run."""
    backends = torch.backends
    tf32 = backends.cudnn.allow_tf32, backends.cuda.matmul.allow_tf32
    return torch.is_autocast_enabled(), *tf32, backends.cudnn.deterministic


def _power_of_2(most: int) -> int:
    return 1 << (most.bit_length() - 1)
