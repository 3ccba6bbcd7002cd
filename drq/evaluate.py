"""The only loop over data: from a spec to records, resumable at any moment."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch

from drq.errors import InputError, MissingError
from drq.evaluation.engines import Engine, Local, chosen_engine
from drq.evaluation.judging import Provision, check_defences, check_fit, chosen_device, forget, scene, the_model
from drq.evaluation.plan import Shard, Task, shards, tasks
from drq.evaluation.records import SCHEMA_VERSION
from drq.evaluation.run import Run, Writer, now, writing
from drq.evaluation.spec import Spec, Specified, as_spec
from drq.version import __version__


class Event(NamedTuple):
    """How far an evaluation is."""

    what: str  # "missing", "start", "shard" or "done"
    text: str
    done: int  # samples times threats that are kept
    total: int
    rate: float  # of them in a second, since this call began
    left: float  # seconds, as far as that rate tells; infinite before it is known


Tell = Callable[[Event], None]


def silent(event: Event) -> None:
    """Tells nobody."""


@dataclass
class Survey:
    """What of a plan can be run here: how many images there are, and what is missing."""

    images: dict[int, int] = field(default_factory=dict)  # by the number of the task
    models: dict[str, str] = field(default_factory=dict)  # sha256 by name
    data: dict[str, str | None] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)  # why, by what


def evaluate(
    spec: Specified,
    out: str | Path | None = None,
    *,
    engine: str | None = None,
    address: str | None = None,
    workers: int | None = None,
    device: str | None = None,
    tell: Tell = silent,
) -> Run:
    """Evaluate what a spec says and keep every answer in a run; the same call again goes on where it stopped.

    Args:
        spec: a :class:`drq.Spec`, a TOML file, or its content as a dict.
        out: directory of the run; runs/NAME when None.
        engine: "local" or "ray"; that of the spec when None.
        address: of a Ray cluster; one is started here, and stopped, when None.
        workers: of Ray at once.
        device: "auto", "cpu", "cuda" ...; that of the spec when None.
        tell: told how far the work is.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = evaluate({"models": ["digits"], "data": ["digits"], "limit": 5, "defences": {"standard": {}}}, folder)
    ...     run.records.height
    5
    """
    spec = as_spec(spec)
    plan, provision = tasks(spec), Provision.of(spec, device or spec.device)
    runner = chosen_engine(engine or spec.engine, address, workers)
    where = chosen_device(provision.device) if isinstance(runner, Local) else "cpu"  # Ray has devices that this machine lacks
    survey = surveyed(replace(provision, device=where), plan)
    began, started = time.monotonic(), now()
    with writing(Path(out or Path("runs") / spec.name), about(spec, plan, survey)) as writer:
        writer.check()
        for what, why in survey.missing.items():
            tell(Event("missing", f"{what}: {why}", 0, 0, 0.0, 0.0))
        present = [task for task in plan if task.number in survey.images]
        loop = Loop(writer, {task.number: [*shards(task, survey.images[task.number], spec.shard)] for task in present}, tell)
        try:
            loop.run(runner, provision)
        finally:
            spent = {"started": started, "seconds": round(time.monotonic() - began, 1), "samples": loop.fresh}
            writer.note(spent | machine(runner, where))
        return writer.run


def surveyed(provision: Provision, plan: list[Task]) -> Survey:
    """Load every model and data set once, before anything runs."""
    forget()
    found, pairs = Survey(), {(task.model, task.data) for task in plan}
    sizes: dict[tuple[str, str], int] = {}
    for model, data in sorted(pairs, key=[(task.model, task.data) for task in plan].index):
        what = f"model {model}"
        try:
            found.models[model] = the_model(model, provision.device, provision.models.get(model))[1]
            what = f"data {data}"
            stage = scene(provision, model, data)
        except MissingError as error:
            found.missing[what] = str(error)
            continue
        except InputError as error:
            raise InputError(f"{model} on {data}: {error}") from error
        check_fit(provision, stage, model, data)
        check_defences(
            provision, stage, [each for task in plan if (task.model, task.data) == (model, data) for each in task.defences]
        )
        sizes[model, data], found.data[data] = len(stage.data), stage.data.sha256
    if not sizes:
        raise MissingError("; ".join(f"{what}: {why}" for what, why in found.missing.items()))
    found.images = {task.number: sizes[task.model, task.data] for task in plan if (task.model, task.data) in sizes}
    return found


class Loop:
    """Shards that are to do, and how far they are."""

    def __init__(self, writer: Writer, work: dict[int, list[Shard]], tell: Tell) -> None:
        self.writer, self.tell = writer, tell
        self.left = {number: [each for each in parts if not writer.has(each)] for number, parts in work.items()}
        self.tasks = {number: parts[0].task for number, parts in work.items() if parts}
        self.total = sum(len(each) for parts in work.values() for each in parts)
        self.kept = self.total - sum(len(each) for parts in self.left.values() for each in parts)
        self.fresh = 0  # samples that this call judged
        self.began = time.monotonic()
        self.lacking: dict[int, str] = {}

    def run(self, engine: Engine, provision: Provision) -> None:
        """Judge what is to do, and keep it."""
        self._tell("start", f"{self.kept} of {self.total} samples are there already" if self.kept else "a new run")
        for number in [number for number, parts in self.left.items() if not parts]:
            self._finish(number)
        for shard, outcome in engine.run(provision, self._todo()):
            number = shard.task.number
            if isinstance(outcome, MissingError):
                if number not in self.lacking:
                    self.lacking[number] = str(outcome)
                    self._tell("missing", f"{shard.task}: {outcome}")
                continue
            self.writer.put(shard, outcome.rows, outcome.images)
            self.kept, self.fresh = self.kept + len(shard), self.fresh + len(shard)
            self.left[number].remove(shard)
            if not self.left[number]:
                self._finish(number)
            self._tell("shard", str(shard.task))
        self._tell("done", f"{self.kept} of {self.total} samples")

    def _todo(self) -> Iterator[Shard]:
        """In the order of the plan, without those that turned out to lack something."""
        for number, parts in list(self.left.items()):
            for shard in list(parts):
                if number not in self.lacking:
                    yield shard

    def _finish(self, number: int) -> None:
        """Parts become Parquet where that can be written here."""
        if find_spec("polars") is not None:
            self.writer.compact(self.tasks[number])

    def _tell(self, what: str, text: str) -> None:
        seconds = time.monotonic() - self.began
        rate = self.fresh / seconds if seconds > 0 else 0.0
        left = (self.total - self.kept) / rate if rate > 0 else float("inf")
        self.tell(Event(what, text, self.kept, self.total, rate, left))


def about(spec: Spec, plan: list[Task], survey: Survey) -> dict[str, Any]:
    """What ``run.json`` says."""
    return {
        "schema_version": SCHEMA_VERSION,
        "title": spec.title,
        "spec": spec.contents,
        "spec_hash": spec.hash,
        "created": now(),
        "tasks": [
            {
                "model": task.model,
                "data": task.data,
                "threat": task.threat,
                "victim": task.trial.victim,
                "defences": list(task.defences),
                "images": survey.images.get(task.number),
            }
            for task in plan
        ],
        "models": survey.models,
        "data": survey.data,
        "missing": [{"what": what, "why": why} for what, why in survey.missing.items()],
        "versions": {"drq": __version__, "torch": torch.__version__, "python": platform.python_version()},
    }


def machine(engine: Engine, device: str) -> dict[str, Any]:
    """Where the work was done, or was given out from."""
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else platform.processor() or platform.machine()
    return {"engine": engine.name, "device": name, "cores": os.cpu_count()}
