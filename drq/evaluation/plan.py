"""The plan of an evaluation: tasks, and shards of their samples, whose rows are written together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from drq.errors import InputError, require
from drq.evaluation.spec import Spec, Trial


@dataclass(frozen=True)
class Task:
    """One model, data set and threat, whose shifted samples all its defences answer."""

    number: int  # in its run, which names its files for ever
    model: str
    data: str
    threat: str  # its key in the spec
    trial: Trial
    defences: tuple[str, ...]  # a single one where it is the victim itself
    first: int
    limit: int | None
    row_hashes: tuple[str | None, ...] = ()  # of its defences

    @property
    def place(self) -> tuple[str, ...]:
        """Model, data and threat, and the defence where it is attacked itself: what the shifted samples depend on."""
        return self.model, self.data, self.threat, *(self.defences if self.trial.victim == "defence" else ())

    @property
    def key(self) -> str:
        """The name of its files."""
        return f"{self.number:04d}"

    def __str__(self) -> str:
        whom = f", against {self.defences[0]}" if self.trial.victim == "defence" else ""
        return f"{self.model} on {self.data}, {self.threat}{whom}"


@dataclass(frozen=True)
class Shard:
    """Consecutive samples of a task, whose rows are written together."""

    task: Task
    first: int
    last: int  # exclusive

    @property
    def key(self) -> str:
        """The name of its file."""
        return f"{self.task.key}-{self.first:07d}"

    def __len__(self) -> int:
        return self.last - self.first


def tasks(spec: Spec) -> list[Task]:
    """Everything that the spec asks for, in its order."""
    plan: list[Task] = []
    requested: set[tuple[str, str, str, str]] = set()
    for group in spec.groups:
        for model in group.models:
            for data in group.data:
                for threat in group.threats or spec.threats:
                    trial, defences = spec.threats[threat], group.defences or tuple(spec.defences)
                    for each in defences:
                        if (model, data, threat, each) in requested:
                            what = f"{model}, {data}, {threat}, {each}"
                            raise InputError(f"groups must ask for everything once, got {what} twice: remove it from one")
                        requested.add((model, data, threat, each))
                    limit = trial.limit or group.limit or spec.limit
                    sides = [(each,) for each in defences] if trial.victim == "defence" else [defences]
                    plan += [
                        Task(len(plan) + n, model, data, threat, trial, each, spec.first, limit) for n, each in enumerate(sides)
                    ]
    return plan


def tasks_of_run(spec: Spec, entries: Iterable[Mapping[str, Any]]) -> list[Task]:
    """The tasks of a run, as run.json has them."""
    plan = []
    for entry in entries:
        model, data, threat = entry["model"], entry["data"], entry["threat"]
        answering = tuple(entry["defences"]), entry["first"], entry["limit"], tuple(entry["row_hashes"])
        plan.append(Task(entry["number"], model, data, threat, spec.threats[threat], *answering))
    return plan


def samples(task: Task, images: int) -> range:
    """The samples of the task, from its first on: as many as the data has, or the limit."""
    require(task.first < max(images, 1), "first", f"be below {images}, the samples of {task.data}", task.first, "lower it")
    return range(task.first, min(images, task.first + (task.limit or images)))


def shards(task: Task, images: int, size: int) -> Iterator[Shard]:
    """The task in shards."""
    chosen = samples(task, images)
    for first in chosen[::size]:
        yield Shard(task, first, min(first + size, chosen.stop))
