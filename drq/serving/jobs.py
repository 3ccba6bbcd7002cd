"""Answer about any number of pictures into a table: streamed, in bounded memory, and resumable at any moment."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from uuid import uuid4

import numpy as np
import torch
from numpy.typing import NDArray

from drq.errors import InputError, require
from drq.evaluation.engines import Engine, Local
from drq.evaluation.resources import Cache
from drq.serving.answering import Answering, Asked, answering
from drq.serving.listing import pictures
from drq.serving.picture import Held, Picture
from drq.serving.predict import BATCH, Inputs, Predictor
from drq.serving.rows import Row
from drq.serving.table import KEY_BYTES, Totals, key, open_table
from drq.system.threads import threads

FEW = 8  # pictures that are decided at once on a CPU, where they are small: more gain little, and rows come later
SMALL = 2**13  # pixels of them all together
HELD = 2**26  # bytes of pictures that wait in memory, since they can be read only once; the last of them may be larger
THREADS_OF_WORKERS = 1
LITTLE = 0.05  # of the time of deciding
Tell = Callable[[int, int], None]  # told how many pictures have their row, and how many there are
ANSWERING: Cache[Answering] = Cache(1)  # what a process made last, under the number of its job
T = TypeVar("T")


def silent(rows: int, total: int) -> None:
    """Tell nobody."""


@dataclass(frozen=True)
class JobContext:
    """All that a worker has to know besides its pictures."""

    number: str  # of the job
    asked: Asked
    model_sha256: str
    threads: int

    @property
    def device(self) -> str:
        """Where the model runs."""
        return self.asked.device

    def answering(self) -> Answering:
        """What answers, made once in every process."""
        return ANSWERING.get(self.number, self._made)

    def _made(self) -> Answering:
        found = answering(self.asked)
        sha256, remedy = found.model_sha256, "it is another one on the machine of this worker"
        require(sha256 == self.model_sha256, "model", f"have the sha256 {self.model_sha256}", sha256, remedy)
        return found


class Part(NamedTuple):
    """Pictures that are decided at once."""

    pictures: tuple[Picture, ...]
    skip: int  # of them have their rows: they take part so that the others are decided as they would have been
    read: Inputs | None = None  # what they are for the model, where that was read ahead


class Survey(NamedTuple):
    """All pictures of a job, a few bytes each."""

    keys: NDArray[np.bytes_]  # (N,) that stand for their names
    first: NDArray[np.bool_]  # (N,) whether the name was not there before
    done: NDArray[np.bool_]  # (N,) whether it has its row

    @property
    def total(self) -> int:
        """Rows that there will be."""
        return int(self.first.sum())

    @property
    def kept(self) -> int:
        """Rows that are there."""
        return int((self.first & self.done).sum())


def fill(
    found: Answering, paths: Sequence[str], path: Path, engine: Engine, restart: bool = False, tell: Tell = silent
) -> Totals:
    """Answer about all pictures that paths stand for; the same call goes on where it was stopped, however that was.

    Args:
        found: what answers, from :func:`drq.serving.answering.answering`.
        paths: see :func:`drq.serving.listing.pictures`.
        path: of the table.
        engine: that works on parts of the pictures.
        restart: whether a table that is there is begun anew.
        tell: is told how far it is.
    """
    settings = found.settings
    with open_table(path, settings, restart) as table:
        seen = survey(paths, bytes(table.done))
        table.totals.twice = len(seen.first) - seen.total
        tell(seen.kept, seen.total)
        local = isinstance(engine, Local)
        used = torch.get_num_threads() if local else THREADS_OF_WORKERS
        context = JobContext(uuid4().hex, found.asked, settings["model_sha256"], used)
        ANSWERING.get(context.number, lambda: found)
        ahead = parts(paths, seen, together(found.predictor))
        ahead = prefetched(with_inputs(found.predictor, ahead)) if local else ahead
        with closing(ahead), closing(_rows(engine, context, ahead)) as rows:
            for count, row in enumerate(rows if seen.kept < seen.total else (), seen.kept + 1):
                table.put(row)
                tell(count, seen.total)
        return table.totals


def _rows(engine: Engine, context: JobContext, ahead: Iterator[Part]) -> Generator[Row]:
    """The rows that are missing, in the order in which they come."""
    with closing(engine.each(answered, context, ahead)) as outcomes:
        for part, rows in outcomes:
            yield from rows[part.skip :]


def answered(context: JobContext, part: Part) -> list[Row]:
    """The rows of a part, in this process or in that of a worker."""
    found = context.answering()
    with threads(context.threads):
        read = part.read or found.predictor.inputs(part.pictures)
        return found.predictor.rows(part.pictures, read, found.below)


def together(predictor: Predictor) -> int:
    """How many pictures are decided at once; always as many, since rounding may depend on it."""
    assert predictor.card.view is not None
    pixels = predictor.card.view.height * predictor.card.view.width
    return max(1, min(FEW, SMALL // pixels)) if predictor.on_cpu else BATCH


def survey(paths: Sequence[str], done: bytes) -> Survey:
    """Look through all names once.

    Args:
        paths: that stand for the pictures.
        done: the keys of rows that are there.
    """
    held = bytearray()
    for picture in pictures(paths):
        held += key(picture.name)
    keys, there = (np.frombuffer(bytes(each), f"S{KEY_BYTES}") for each in (held, done))
    first = np.zeros(len(keys), dtype=np.bool_)
    first[np.unique(keys, return_index=True)[1]] = True
    return Survey(keys, first, np.isin(keys, there))


def parts(paths: Sequence[str], seen: Survey, size: int) -> Generator[Part]:
    """The pictures that have no row yet, some at a time: always the same together, whenever a job was stopped."""
    some: list[Picture] = []
    places: list[int] = []
    held, count = 0, 0
    for count, picture in enumerate(pictures(paths, read=True), 1):
        _check_same(seen, count, picture.name)
        if not seen.first[count - 1]:
            continue
        some.append(picture)
        places.append(count - 1)
        held += len(picture.place.data) if isinstance(picture.place, Held) else 0
        if len(some) == size or held >= HELD:
            yield from _part(some, seen.done[places])
            some, places, held = [], [], 0
    _check_same(seen, count + 1, None)
    if some:
        yield from _part(some, seen.done[places])


def _part(some: list[Picture], done: NDArray[np.bool_]) -> Iterator[Part]:
    """What is left to do of these pictures."""
    if done.all():
        return
    begun = int(done.argmin())
    if done[begun:].any():  # not cut off there: pictures came to the folder since, and nothing is decided twice for them
        yield Part(tuple(each for each, there in zip(some, done, strict=True) if not there), 0)
    else:
        yield Part(tuple(some), begun)


def _check_same(seen: Survey, count: int, name: str | None) -> None:
    """The pictures must stay while they are looked at: otherwise it would be unknown which have a row."""
    there = count <= len(seen.keys)
    same = there == (name is not None) and (name is None or seen.keys[count - 1] == key(name).rstrip(b"\0"))
    if not same:
        what = "fewer" if name is None else repr(name)
        raise InputError(f"pictures must stay where they are meanwhile, got {what} at place {count:,}: the same command goes on")


def with_inputs(predictor: Predictor, ahead: Iterator[Part]) -> Generator[Part]:
    """The same parts, with their pictures read."""
    for part in ahead:
        yield part._replace(read=predictor.inputs(part.pictures))


def prefetched(items: Iterator[T]) -> Generator[T]:
    """The same items, each made in a thread while the one before it is used, from when on making takes a good part of the time.

    Where it takes little, the two would only keep each other from the interpreter, which costs more than that little.
    """
    end: Any = object()
    making = using = 0.0
    with ThreadPoolExecutor(1) as reader:
        coming: Future[T] | None = None
        for count in itertools.count():
            began = time.monotonic()
            item = next(items, end) if coming is None else coming.result()
            made = time.monotonic()
            if item is end:
                return
            if coming is not None or making > LITTLE * using:
                coming = reader.submit(next, items, end)
            yield item
            if count:  # the first of all takes its own time
                making, using = making + made - began, using + time.monotonic() - made
