"""Run all parts of a benchmark in order, and write the record after every task."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from drq.bench import agreement, attacks, growth, speed
from drq.bench.bench_run import BenchRun, Task
from drq.bench.settings import PARTS, BenchSettings
from drq.bench.timing import machine
from drq.errors import InputError, require
from drq.system.files import atomic_write
from drq.system.progress import Tell, silent
from drq.version import __version__

TASKS: Mapping[str, Callable[[BenchRun], list[Task]]] = {
    "speed": speed.tasks,
    "agreement": agreement.tasks,
    "classes": growth.classes,
    "batch": growth.batch,
    "size": growth.size,
    "attacks": attacks.tasks,
    "imagenet": growth.imagenet,
}
assert TASKS.keys() == PARTS.keys()


def measure(
    settings: BenchSettings,
    out: Path | None = None,
    tell: Tell = silent,
    notify: Callable[[str], None] = print,
    add: bool = False,
) -> dict[str, Any]:
    """Measure all parts and return the record.

    Args:
        settings: what is measured.
        out: file of the record, written after every task; None for no file.
        tell: called with the share of the work that is done and the title of the next task.
        notify: called with each line that a reader of the record should know.
        add: whether parts that the file already has, and that are not measured now, are kept.
    """
    run = BenchRun(settings, notify)
    run.record = {"drq": __version__, "machine": machine(settings.device)} | run.record
    run.record["settings"] = {part: settings.as_json() for part in settings.parts}
    if add and out is not None and out.exists():
        _keep_other_parts(run.record, read(out), settings)
    planned = [(part, task) for part in settings.parts for task in TASKS[part](run)]
    total, done = sum(task.weight for _, task in planned), 0.0
    for _, task in planned:
        tell(done / total, task.title)
        task.work()
        done += task.weight
        if out is not None:
            write(out, run.record)
    tell(1.0, "done")
    if out is not None:
        write(out, run.record)
    return run.record


def _keep_other_parts(record: dict[str, Any], before: dict[str, Any], settings: BenchSettings) -> None:
    """Copy the parts that are not measured now from the record of an earlier run on the same machine."""
    hardware = ("device", "gpu", "processor", "threads", "torch")
    same = all(before["machine"].get(name) == record["machine"].get(name) for name in hardware)
    require(same, "out", "be a record of this machine", before["machine"], "name another file, or leave --add out")
    for part in PARTS:
        if part in before and part not in settings.parts:
            record[part] = before[part]
            record["settings"][part] = before["settings"][part]
    if "speed" not in settings.parts and "bare" in before:
        record["bare"] = before["bare"]
    memory = {name: ratio for name, ratio in before.get("memory", {}).items() if name.split(",")[0] not in settings.parts}
    record |= {"memory": memory} if memory else {}
    record |= {"subject": before["subject"]} if "subject" in before else {}
    outdated = tuple(f"{name} is left out" for name in attacks.MAKERS) if "attacks" in settings.parts else ()
    record["notes"] += [line for line in before["notes"] if not line.startswith(outdated)]


def write(path: Path, record: Mapping[str, Any]) -> None:
    """Write the record as JSON, atomically."""
    try:
        with atomic_write(path) as file:
            file.write((json.dumps(record, indent=1, allow_nan=False) + "\n").encode())
    except OSError as error:
        raise InputError(
            f"out must name a file that can be written, got {str(path)!r} ({error.strerror}): name another"
        ) from error


def read(path: Path) -> dict[str, Any]:
    """Read a record that was written before."""
    rule, remedy = "be a record that drq bench wrote", "drq bench --out FILE writes one"
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"file must {rule}, got {str(path)!r} ({type(error).__name__}): {remedy}") from error
    valid = isinstance(record, dict) and {"machine", "settings", "notes"} <= record.keys()
    require(valid, "file", rule, repr(str(path)), remedy)
    return dict(record)
