"""A run whose spec changed grows, or the change is refused. Functions of the content of run.json.

Files carry the number of their task for ever, so a task that has rows stays as it is. Whatever a spec asks for beyond these, be
it of other models, data, threats and defences or of more samples, is a task of its own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from math import inf
from pathlib import Path
from typing import Any

from drq.errors import InputError
from drq.models import gates
from drq.views.fitted import CARD

About = Mapping[str, Any]  # the content of run.json
TABLES = ("models", "data", "threats", "defences", "groups", "limit", "victim")  # whose change shows in tasks and their rows
APART = (*TABLES, "name", "shard", "keep_images")  # of a spec: on these a row depends not at all, or by its own entries alone


def tasks(about: About) -> list[dict[str, Any]]:
    """The tasks of a run. The first schema did not store their numbers, which were their places, and their first sample."""
    first = about["spec"].get("first", 0)
    known = enumerate(about.get("tasks", ()))
    return [{"number": place, "first": first, "limit": task.get("samples")} | task for place, task in known]


def dependencies(spec: Mapping[str, Any], task: About, defence: str) -> dict[str, Any]:
    """Everything that the rows of a defence in a task depend on, except for their samples and the content of files.

    Args:
        spec: contents of the spec.
        task: as run.json has it.
        defence: its name in the spec.
    """
    trial = {key: value for key, value in spec["threats"][task["threat"]].items() if key != "limit"}
    how = {key: value for key, value in spec.items() if key not in APART}
    named = {"model": task["model"], "data": task["data"], "defence": defence}
    return named | {"threat": trial, "settings": spec["defences"][defence], "how": how}


def row_hash(about: About, task: About, defence: str) -> str | None:
    """The hash of everything that a row depends on, except for its sample; None while no machine has seen model and data."""
    files = {"weights_sha256": about["models"].get(task["model"]), "data_sha256": about["data"].get(task["data"])}
    gate = about["spec"]["defences"][defence].get("gate")
    if isinstance(gate, Mapping) and "data" in gate:  # what a gate is learnt from
        files["gate_sha256"] = about["data"].get(gate["data"])
    elif gate == CARD:
        files["gate_sha256"] = gates.identity(task["model"])
    if None in files.values():
        return None
    return hashlib.sha256(_canonical(dependencies(about["spec"], task, defence) | files).encode()).hexdigest()


def with_row_hashes(about: About) -> dict[str, Any]:
    """The same content, with the row hashes of every task, in the order of its defences."""
    entries = [task | {"row_hashes": [row_hash(about, task, each) for each in task["defences"]]} for task in tasks(about)]
    return {**about, "tasks": entries}


def continued(path: Path, before: About, now: About, numbers: Collection[int]) -> dict[str, Any]:
    """The content of run.json of a run that goes on.

    Args:
        path: of the run.
        before: its content so far.
        now: the content that a new run of the spec would have.
        numbers: of the tasks that have files.

    Raises:
        InputError: rows that are there would be wrong, or nobody would ask for them any more.
    """
    sizes = {(task["model"], task["data"]): task["images"] for about in (before, now) for task in tasks(about) if task["images"]}
    held = [task for task in tasks(before) if task["number"] in numbers]
    requested = {_canonical(dependencies(now["spec"], task, each)): task for task in tasks(now) for each in task["defences"]}
    keys = {task["number"]: [_canonical(dependencies(before["spec"], task, each)) for each in task["defences"]] for task in held}
    lost = [task for task in held if any(_end(requested.get(key), sizes) < _end(task, sizes) for key in keys[task["number"]])]
    if changes := [*_changes(before, now, lost)]:
        text = "; ".join(changes[:5]) + (f"; and {len(changes) - 5} more" if len(changes) > 5 else "")
        remedy = "choose another directory with --out, or undo the change"
        raise InputError(f"spec must be that of the run in {str(path)!r}, or more, got a changed one ({text}): {remedy}")
    stay = [task | {"threat": requested[keys[task["number"]][0]]["threat"]} for task in held]
    taken: dict[str, list[tuple[float, float]]] = {key: [] for key in requested}
    for task in held:
        for key in keys[task["number"]]:
            taken[key].append((task["first"], _end(task, sizes)))
    fresh = [each for task in tasks(now) for each in _rest(task, now["spec"], taken, sizes)]
    free = (number for number in range(len(held) + len(fresh) + len(numbers)) if number not in numbers)
    entries = [_sized(task, sizes) for task in (*stay, *({**task, "number": next(free)} for task in fresh))]
    return {
        **now,
        **{key: {**before.get(key, {}), **now[key]} for key in ("models", "data")},
        "tasks": sorted(entries, key=lambda task: task["number"]),
        "spec_hashes": [*(each for each in spec_hashes(before) if each != now["spec_hash"]), now["spec_hash"]],
        "created": before.get("created", now["created"]),
    }


def spec_hashes(about: About) -> list[str]:
    """The hashes of all specs that a run has had, the oldest first."""
    return [*about.get("spec_hashes", [about["spec_hash"]])]


def _canonical(value: Mapping[str, Any]) -> str:
    return json.dumps(value, sort_keys=True)


def _end(task: About | None, sizes: Mapping[tuple[str, str], int]) -> float:
    """The sample after the last of a task; without end where all are asked for and nobody has counted them yet."""
    if task is None:
        return -1
    last = inf if task["limit"] is None else task["first"] + task["limit"]
    return min(last, sizes.get((task["model"], task["data"]), inf))


def _rest(
    task: dict[str, Any], spec: About, taken: Mapping[str, list[tuple[float, float]]], sizes: Mapping[tuple[str, str], int]
) -> Iterator[dict[str, Any]]:
    """The parts of a task that no other task has, each with the defences that lack it."""
    whole = (task["first"], _end(task, sizes))
    lacking: dict[tuple[float, float], list[str]] = {}
    for defence in task["defences"]:
        for gap in _gaps(*whole, taken[_canonical(dependencies(spec, task, defence))]):
            lacking.setdefault(gap, []).append(defence)
    for gap, defences in lacking.items():
        limit = None if gap[1] == inf else gap[1] - gap[0]
        yield task | ({} if gap == whole else {"first": gap[0], "limit": limit}) | {"defences": defences}


def _gaps(first: float, end: float, taken: list[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """The parts of a range that some others leave.

    >>> list(_gaps(0, 10, [(5, 7), (0, 2)]))
    [(2, 5), (7, 10)]
    """
    for start, stop in sorted(taken):
        if first < start:
            yield first, min(start, end)
        first = max(first, stop)
    if first < end:
        yield first, end


def _sized(task: dict[str, Any], sizes: Mapping[tuple[str, str], int]) -> dict[str, Any]:
    """The task with the number of its samples, where that is known from this machine or another."""
    images, end = sizes.get((task["model"], task["data"])), _end(task, sizes)
    return task | {"images": images, "samples": None if images is None else end - task["first"]}


def _changes(before: About, now: About, lost: list[dict[str, Any]]) -> Iterator[str]:
    """The changes that keep rows from being those of the spec, in words."""
    old, new = before["spec"], now["spec"]
    settings = [{key: value for key, value in spec.items() if key not in TABLES} for spec in (old, new)]
    if lost or settings[0] != settings[1]:
        changes = [*differences(old, _without_more(old, new))]
        yield from changes or (f"nobody asks for {_name(task)} any more" for task in lost)
    for key in ("models", "data"):
        known = before.get(key, {})
        for name, content in now[key].items():
            if known.get(name) not in (None, content) and content is not None:
                yield f"the content of {name} was {known[name][:12]}, is {content[:12]}"


def _name(task: About) -> str:
    return f"{task['model']} on {task['data']}, {task['threat']} by {', '.join(task['defences'])}"


def _without_more(old: About, new: About) -> dict[str, Any]:
    """A spec without what it merely adds to another."""
    less = dict(new)
    for key, value in old.items():
        other = new.get(key)
        if isinstance(value, Mapping) and isinstance(other, Mapping):
            less[key] = {name: each for name, each in other.items() if name in value}
        elif key in ("models", "data"):
            less[key] = value if {*value} <= {*(other or ())} else other
        elif key == "groups":
            less[key] = value if new["models"] else other  # a single one says again which models and data there are
        elif key == "limit" and (other is None or (value is not None and other >= value)):
            less[key] = value
    return less


def differences(before: Any, now: Any, place: str = "") -> Iterator[str]:
    """The differences between two JSON values, in words.

    >>> list(differences({"a": {"b": 1}}, {"a": {"b": 2}, "c": 3}))
    ['a.b was 1, is 2', 'c was absent, is 3']
    """
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in (*before, *(key for key in now if key not in before)):
            where = f"{place}.{key}" if place else str(key)
            yield from differences(before.get(key, "absent"), now.get(key, "absent"), where)
    elif before != now:
        yield f"{place} was {_short(before)}, is {_short(now)}"


def _short(value: Any) -> str:
    text = value if value == "absent" else json.dumps(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
