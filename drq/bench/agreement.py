"""Compare each contestant's labels with those of float32 without pruning, on clean, corrupted and attacked images."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from drq.bench.bench_run import BenchRun, Task
from drq.bench.contestants import REFERENCE, Contestant
from drq.bench.inputs import THREATS
from drq.bench.naive import Answer

UNREACHED = -1e4  # log-odds of a class that was not reached, as in DRQ's scores, so that gaps stay finite


def tasks(run: BenchRun) -> list[Task]:
    """Return one task for each condition and contestant, the reference first; the naive loop is compared on clean images only."""
    planned = []
    for threat in THREATS:
        for contestant in sorted(run.contestants, key=lambda contestant: contestant.name != REFERENCE):
            if contestant.naive and threat != "clean":
                continue
            timed_before = threat == "clean" and "speed" in run.settings.parts
            weight = contestant.share * (0.1 if timed_before else run.samples(contestant))
            planned.append(Task(f"labels of {contestant.name}, {threat}", weight, partial(_compare, run, contestant, threat)))
    return planned


def _compare(run: BenchRun, contestant: Contestant, threat: str) -> None:
    answer = _answer(run, contestant, threat)
    if contestant.name == REFERENCE:
        run.answers[f"{REFERENCE}, {threat}"] = answer
    reference = run.answers[f"{REFERENCE}, {threat}"]
    labels, count = run.inputs.y, len(answer.label)
    equal = answer.label == reference.label[:count]
    run.rows("agreement").append(
        {
            "contestant": contestant.name,
            "threat": threat,
            "images": count,
            "equal": int(equal.sum()),
            "share": float(equal.double().mean()),
            "largest_gap": largest_gap(reference.log_odds[:count], ~equal),
            "accuracy": float((answer.label == labels[:count]).double().mean()),
        }
    )


def _answer(run: BenchRun, contestant: Contestant, threat: str) -> Answer:
    """Return the answers from the timing where it covered enough of the same images; else decide now."""
    count = run.samples(contestant)
    timed = run.answers.get(contestant.name) if threat == "clean" else None
    if timed is not None and len(timed.label) >= count:
        return Answer(*(tensor[:count] for tensor in timed))
    return run.decider(contestant)(run.images_under(threat)[:count])


def largest_gap(log_odds: Tensor, differs: Tensor) -> float | None:
    """Return the largest gap between the two best log-odds (N, C) among the rows whose labels differ; None where none differs."""
    if not bool(differs.any()):
        return None
    best = torch.clamp(log_odds[differs], min=UNREACHED).topk(2).values
    return float((best[:, 0] - best[:, 1]).max())
