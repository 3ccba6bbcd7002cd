"""The only loop over data: from a spec to records, resumable at any moment."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch

from drq.errors import InputError, MissingError, require
from drq.evaluation.effort import effort
from drq.evaluation.engines import Engine, Local, chosen_engine
from drq.evaluation.forecast import forecast
from drq.evaluation.plan import Shard, Task, samples, shards, tasks, tasks_of_run
from drq.evaluation.records import SCHEMA_VERSION
from drq.evaluation.resources import (
    WorkerContext,
    build_defences,
    check_fit,
    chosen_device,
    clear_caches,
    gate_data,
    loaded_model,
    model_and_data,
)
from drq.evaluation.run import Run, now
from drq.evaluation.sources import Specified, as_source, as_spec
from drq.evaluation.spec import Spec
from drq.evaluation.writer import Writer, open_run
from drq.version import __version__


class Event(NamedTuple):
    """A message about the progress of an evaluation."""

    what: str  # "missing", "plan", "start", "begin", "shard" or "done"
    text: str
    done: int  # samples times threats that are kept
    total: int
    share: float  # of the work that is done
    rate: float  # samples in a second, since this call began
    left: float  # seconds, as far as the work so far tells; infinite before it is known


Tell = Callable[[Event], None]


def silent(event: Event) -> None:
    """Ignore the event."""


@dataclass
class Survey:
    """What is available on this machine for a plan: models, data, their sizes, and what is missing."""

    images: dict[tuple[str, ...], int] = field(default_factory=dict)  # by the place of the task
    effort: dict[tuple[str, ...], float] = field(default_factory=dict)  # for one image of it
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
    only: str | None = None,
    allow_code: bool = False,
    tell: Tell = silent,
) -> Run:
    """Evaluate what a spec says and keep every answer in a run; the same call again goes on where it stopped.

    Args:
        spec: a :class:`drq.Spec`, a TOML file, its content as a dict, the name of an experiment of the paper such as "table4", or
            the directory of a run.
        out: directory of the run; that run itself, or runs/NAME, when None.
        engine: "local" or "ray"; that of the spec when None.
        address: of a Ray cluster; one is started here, and stopped, when None.
        workers: of Ray at once.
        device: "auto", "cpu", "cuda" ...; that of the spec when None.
        only: the name of a model, of data, of a threat, or of a defence that is attacked itself, which is wanted now; or a
            pattern such as "cifar10-c/*". The rest is left for another call. Runs of parts in different directories become one
            when their files are put together.
        allow_code: whether a file, or a run that goes on, may name code to run, as in ``python:package.module:function``.
        tell: told how far the work is.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = evaluate({"models": ["digits"], "data": ["digits"], "limit": 5, "defences": {"standard": {}}}, folder)
    ...     run.records.height
    5
    """
    place = run_directory(spec, out, allow_code=allow_code)
    spec = as_spec(spec, allow_code=allow_code)
    plan, context = tasks(spec), WorkerContext.of(spec, device or spec.device)
    selected(plan, only)  # before anything is loaded
    runner = chosen_engine(engine or spec.engine, address, workers)
    where = chosen_device(context.device) if isinstance(runner, Local) else "cpu"  # Ray has devices that this machine lacks
    found = survey(replace(context, device=where), plan)
    known = {f"model {name}": each for name, each in found.models.items()}
    context = replace(context, known=known | {f"data {name}": each for name, each in found.data.items() if each})
    began, started = time.monotonic(), now()
    with open_run(place, run_description(spec, plan, found)) as writer:
        writer.check()
        for what, why in found.missing.items():
            tell(Event("missing", f"{what}: {why}", 0, 0, 0.0, 0.0, 0.0))
        wanted = selected(tasks_of_run(spec, writer.run.tasks.values()), only)
        present = [task for task in wanted if task.place in found.images]
        work = {task.number: [*shards(task, found.images[task.place], spec.shard)] for task in present}
        loop = Loop(writer, work, found.effort, tell)
        if ahead := [each for parts in loop.remaining.values() for each in parts]:
            text = forecast(replace(context, device=where), ahead, found.effort, timed=isinstance(runner, Local))
            tell(Event("plan", text, loop.kept, loop.total, 0.0, 0.0, float("inf")))
        try:
            loop.run(runner, context)
        finally:
            writer.record_missing({str(loop.tasks[number]): why for number, why in loop.unavailable.items()})
            spent = {"started": started, "seconds": round(time.monotonic() - began, 1), "samples": loop.fresh}
            writer.add_history(spent | machine(runner, where))
        return writer.run


def selected(plan: list[Task], only: str | None) -> list[Task]:
    """The tasks whose model, data, threat or victim has this name; all of them without a name."""

    def named(task: Task) -> bool:
        victims = task.defences if task.trial.victim == "defence" else ()
        return only is None or any(fnmatchcase(each, only) for each in (task.model, task.data, task.threat, *victims))

    found = [task for task in plan if named(task)]
    remedy = f"the first are {plan[0].model}, {plan[0].data}, {plan[0].threat}"
    require(bool(found), "only", "be a model, data, a threat or a victim of the spec", repr(only), remedy)
    return found


def run_directory(spec: Specified, out: str | Path | None = None, *, allow_code: bool = False) -> Path:
    """The directory of the run: ``out``, else the run that was given in place of a spec, else runs/NAME."""
    if out is not None:
        return Path(out)
    if isinstance(spec, str | Path) and Path(spec).is_dir():
        return Path(spec)
    return Path("runs") / as_spec(spec, allow_code=allow_code).name


def survey(context: WorkerContext, plan: list[Task]) -> Survey:
    """Load every model and data set once, before anything runs."""
    clear_caches()
    found = Survey()
    for model, data in dict.fromkeys((task.model, task.data) for task in plan):
        what = f"model {model}"
        try:
            found.models[model] = loaded_model(model, context.device, context.models.get(model)).sha256
            what = f"data {data}"
            subject = model_and_data(context, model, data)
        except MissingError as error:
            found.missing[what] = str(error)
            continue
        except InputError as error:
            raise InputError(f"{model} on {data}: {error}") from error
        classes = check_fit(context, subject, model, data)
        found.data[data] = subject.data_sha256
        mine = [task for task in plan if (task.model, task.data) == (model, data)]
        made = build_defences(context, subject, [each for task in mine for each in task.defences])
        found.data |= gate_data(context, subject, made)
        for task in mine:
            found.images[task.place] = len(subject.data)
            defences = [made[each] for each in task.defences if each in made]
            found.effort[task.place] = effort(task, defences, classes, context.rounding) if defences else 1.0
    if not found.images:
        raise MissingError("; ".join(f"{what}: {why}" for what, why in found.missing.items()))
    return found


class Loop:
    """Works through the shards that are not done yet, writes their rows, and reports progress."""

    def __init__(self, writer: Writer, work: dict[int, list[Shard]], effort: dict[tuple[str, ...], float], tell: Tell) -> None:
        self.writer, self.effort, self.tell = writer, effort, tell
        self.remaining = {number: [each for each in parts if not writer.has(each)] for number, parts in work.items()}
        self.tasks = {number: parts[0].task for number, parts in work.items() if parts}
        self.total = sum(len(each) for parts in work.values() for each in parts)
        self.kept = self.total - sum(len(each) for parts in self.remaining.values() for each in parts)
        self.all_work = sum(self._work(each) for parts in work.values() for each in parts)
        self.work_left = self.work_here = sum(self._work(each) for parts in self.remaining.values() for each in parts)
        self.fresh = 0  # samples that this call judged
        self.began = time.monotonic()
        self.unavailable: dict[int, str] = {}  # why, by the number of the task

    def run(self, engine: Engine, context: WorkerContext) -> None:
        """Judge the remaining shards, and keep their rows."""
        self._tell("start", f"{self.kept} of {self.total} samples are there already" if self.kept else "a new run")
        for number in [number for number, parts in self.remaining.items() if not parts]:
            self._finish(number)
        for shard, outcome in engine.run(context, self._upcoming()):
            number = shard.task.number
            if isinstance(outcome, MissingError):
                if number not in self.unavailable:
                    self.unavailable[number] = str(outcome)
                    self._tell("missing", f"{shard.task}: {outcome}")
                continue
            self.writer.put(shard, outcome.rows, outcome.images)
            self.kept, self.fresh = self.kept + len(shard), self.fresh + len(shard)
            self.work_left -= self._work(shard)
            self.remaining[number].remove(shard)
            if not self.remaining[number]:
                self._finish(number)
            self._tell("shard", str(shard.task))
        self._tell("done", f"{self.kept} of {self.total} samples")

    def _upcoming(self) -> Iterator[Shard]:
        """The remaining shards in the order of the plan, without those that turned out to lack something."""
        for number, parts in list(self.remaining.items()):
            for shard in list(parts):
                if number not in self.unavailable:
                    self._tell("begin", str(shard.task))
                    yield shard

    def _finish(self, number: int) -> None:
        """Turn the parts of a finished task into Parquet, where polars is installed."""
        if find_spec("polars") is not None:
            self.writer.compact(self.tasks[number])

    def _work(self, shard: Shard) -> float:
        return len(shard) * self.effort[shard.task.place]

    def _tell(self, what: str, text: str) -> None:
        seconds, done = time.monotonic() - self.began, self.work_here - self.work_left
        left = 0.0 if not self.work_left else seconds * self.work_left / done if done else float("inf")
        share = 1 - self.work_left / self.all_work if self.all_work else 1.0
        self.tell(Event(what, text, self.kept, self.total, share, self.fresh / seconds if seconds else 0.0, left))


def run_description(spec: Spec, plan: list[Task], survey: Survey) -> dict[str, Any]:
    """The content of ``run.json`` of a new run; :mod:`drq.evaluation.growth` makes that of a run that goes on."""
    return {
        "schema_version": SCHEMA_VERSION,
        "title": spec.title,
        "spec": spec.contents,
        "source": as_source(spec.source) if spec.source is not None else None,
        "spec_hash": spec.hash,
        "spec_hashes": [spec.hash],
        "created": now(),
        "tasks": [
            {
                "number": task.number,
                "model": task.model,
                "data": task.data,
                "threat": task.threat,
                "victim": task.trial.victim,
                "defences": list(task.defences),
                "first": task.first,
                "limit": task.limit,
                "images": survey.images.get(task.place),
                "samples": len(samples(task, images)) if (images := survey.images.get(task.place)) else None,
            }
            for task in plan
        ],
        "models": survey.models,
        "data": survey.data,
        "missing": [{"what": what, "why": why} for what, why in survey.missing.items()],
        "versions": {"drq": __version__, "torch": torch.__version__, "python": platform.python_version()},
    }


def machine(engine: Engine, device: str) -> dict[str, Any]:
    """The machine that did the work, or that handed it out."""
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else platform.processor() or platform.machine()
    return {"engine": engine.name, "device": name, "cores": os.cpu_count()}
