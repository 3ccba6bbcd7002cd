"""Engines that work on shards: in this process, or on a Ray cluster. Both give the same rows."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import islice
from typing import Any, Protocol, TypeVar

from drq.errors import InputError, MissingError, imported, nearest, one_line, require
from drq.evaluation.judging import ShardRows, judge
from drq.evaluation.plan import Shard
from drq.evaluation.resources import WorkerContext
from drq.evaluation.spec import ENGINES

Outcome = tuple[Shard, ShardRows | MissingError]
RETRIES = 3  # of a shard whose worker was lost


class Needs(Protocol):
    """What an engine asks of a context: on what its shards are worked."""

    @property
    def threads(self) -> int:
        """Of torch, each on a processor."""

    @property
    def device(self) -> str:
        """Where the model runs."""


C = TypeVar("C", bound=Needs)
S = TypeVar("S")
R = TypeVar("R")


class Engine(Protocol):
    """Works on shards, in any order."""

    name: str

    def run(self, context: WorkerContext, shards: Iterable[Shard]) -> Iterator[Outcome]:
        """The rows of every shard of an evaluation, or what this machine lacks for it."""

    def each(self, work: Callable[[C, S], R], context: C, shards: Iterable[S]) -> Generator[tuple[S, R]]:
        """What a function makes of every shard, whatever shards are."""


class Local:
    """Work on shards in this process, one after the other."""

    name = "local"

    def run(self, context: WorkerContext, shards: Iterable[Shard]) -> Iterator[Outcome]:
        """The rows of every shard of an evaluation, or what this machine lacks for it."""
        return self.each(attempt, context, shards)

    def each(self, work: Callable[[C, S], R], context: C, shards: Iterable[S]) -> Generator[tuple[S, R]]:
        """What a function makes of every shard, whatever shards are."""
        for shard in shards:
            yield shard, work(context, shard)


def attempt(context: WorkerContext, shard: Shard) -> ShardRows | MissingError:
    """The rows of a shard, or what is missing."""
    try:
        return judge(context, shard)
    except MissingError as error:
        return error
    except InputError as error:
        raise InputError(f"{shard.task}: {error}") from error


class OnRay:
    """Work on shards as tasks of Ray, on this machine or a cluster. A shard whose worker is lost is tried again elsewhere.

    Args:
        address: of a running cluster ("auto" finds the one this machine belongs to); None starts one here, and stops it.
        workers: the most that are busy at once; None for as many as there are processors, or GPUs.
    """

    name = "ray"

    def __init__(self, address: str | None = None, workers: int | None = None) -> None:
        several = workers is None or (isinstance(workers, int) and workers >= 1)
        require(several, "workers", "be a whole number of at least 1", repr(workers), "leave it out for as many as fit")
        self.address, self.workers = address, workers
        self.ray = imported("ray", "the engine ray", "pip install 'decision-region-quantification[ray]'")

    def run(self, context: WorkerContext, shards: Iterable[Shard]) -> Iterator[Outcome]:
        """The rows of every shard of an evaluation, in the order in which they come."""
        return self.each(attempt, context, shards)

    def each(self, work: Callable[[C, S], R], context: C, shards: Iterable[S]) -> Generator[tuple[S, R]]:
        """What a function makes of every shard, in the order in which it comes."""
        ray = self.ray
        ours = not ray.is_initialized()
        if ours:
            self._start()
        try:
            yield from self._each(work, context, iter(shards))
        finally:
            if ours:
                ray.shutdown()

    def _start(self) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would report to its makers
        own: dict[str, Any] = {"address": "local", "include_dashboard": False}
        try:
            check_reachable(self.address or "")
            self.ray.init(log_to_driver=False, logging_level="ERROR", **({"address": self.address} if self.address else own))
        except Exception as error:  # of the network, of the version: Ray has many
            remedy = "check it with ray status, or leave it out to start one here"
            raise InputError(f"address must lead to a Ray cluster, got {self.address!r} ({one_line(error)}): {remedy}") from error

    def _each(self, work: Callable[[C, S], R], context: C, shards: Iterator[S]) -> Iterator[tuple[S, R]]:
        ray = self.ray
        resources = ray.cluster_resources()
        need: dict[str, Any] = {"num_cpus": context.threads, "max_retries": RETRIES}
        places = resources.get("CPU", 1) // context.threads
        if context.device.startswith("cuda") or (context.device == "auto" and resources.get("GPU", 0) > 0):
            need["num_gpus"], places = 1, resources.get("GPU", 0)
        busy = max(1, self.workers or int(places))
        shared = ray.put(context)
        task = ray.remote(**need)(work)
        waiting: dict[Any, S] = {}
        while True:
            for shard in islice(shards, busy + 1 - len(waiting)):  # one more than places, so that none is idle
                waiting[task.remote(shared, shard)] = shard
            if not waiting:
                return
            ready, _ = ray.wait([*waiting], num_returns=1)
            yield waiting.pop(ready[0]), self._result(ready[0])

    def _result(self, reference: Any) -> Any:
        try:
            return self.ray.get(reference)
        except self.ray.exceptions.RayTaskError as error:
            cause = error.as_instanceof_cause()
            raise (InputError(str(error.cause)) if isinstance(error.cause, InputError) else cause) from None
        except self.ray.exceptions.RayError as error:
            remedy = "see ray status; the same command goes on with the rest"
            raise InputError(f"the Ray cluster must keep its workers, got {one_line(error)}: {remedy}") from error


def check_reachable(address: str) -> None:
    """Connect to an address that has a port, since Ray itself would wait for minutes for nobody."""
    host, _, port = address.rpartition("/")[2].rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=10).close()


def chosen_engine(name: str, address: str | None = None, workers: int | None = None) -> Engine:
    """The engine by its name."""
    require(name in ENGINES, "engine", f"be one of {', '.join(ENGINES)}", repr(name), nearest(str(name), ENGINES, "local"))
    if address is not None or name == "ray":
        return OnRay(address, workers)
    return Local()
