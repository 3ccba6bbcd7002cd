"""Time each contestant, and report how close the engine comes to the bare model's speed."""

from __future__ import annotations

import copy
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from drq.bench.bench_run import BenchRun, Task
from drq.bench.contestants import NAIVE, Contestant, Decide
from drq.bench.naive import Answer
from drq.bench.timing import PeakMemory, timed_call
from drq.method.adapters import channels_last

BARE_PRECISION = "float16"  # the precision in which the bare model is timed
MOST_SECONDS = 40.0  # a timing is not repeated once its repeats took this long
BARE_PASSES = 30  # passes of a whole batch in one timing of the bare model


def tasks(run: BenchRun) -> list[Task]:
    """Return one task for each contestant, and on a GPU one for the bare model."""
    planned = [
        Task(f"speed of {each.name}", each.share * (run.images(each) + 1), partial(_measure, run, each))
        for each in run.contestants
    ]
    if run.device == "cuda":
        planned.append(Task(f"speed of the bare model in {BARE_PRECISION}", 5.0, partial(_measure_bare, run)))
    return planned


def _measure(run: BenchRun, contestant: Contestant) -> None:
    decide = run.decider(contestant)
    if run.device == "cpu":
        run.note("memory is measured on a GPU only")
        if not any("bfloat16" in each.name for each in run.contestants):
            run.note("bfloat16 is left out: this CPU has neither avx512_bf16 nor amx_bf16")
    x = run.inputs.x[: run.images(contestant)]
    repeats = 1 if contestant.naive else run.settings.repeats
    row, run.answers[contestant.name] = time_contestant(contestant, decide, x, repeats)
    naive = next((each for each in run.rows("speed") if each["contestant"] == NAIVE), row)
    row["times_naive"] = row["images_per_second"] / naive["images_per_second"]
    run.rows("speed").append(row)


def time_contestant(contestant: Contestant, decide: Decide, x: Tensor, repeats: int) -> tuple[dict[str, Any], Answer]:
    """Return a row of timings and the answers: first call and latency are measured on one image, speed on all."""
    device = x.device.type
    memory = PeakMemory(device)
    _, first = timed_call(lambda: decide(x[:1]), device)
    singles = [timed_call(lambda: decide(x[:1]), device)[1] for _ in range(repeats)] if repeats > 1 else [first]
    answer, seconds = timed_call(lambda: decide(x), device)
    timings = [seconds]
    while len(timings) < repeats and sum(timings) < MOST_SECONDS:
        timings.append(timed_call(lambda: decide(x), device)[1])
    seconds = median(timings)
    row = {
        "contestant": contestant.name,
        "images": len(x),
        "repeats": len(timings),
        "images_per_second": len(x) / seconds,
        "first_call_seconds": first,
        "latency_seconds": median(singles),
        "passes": float(answer.passes.double().mean()),
        "passes_per_second": float(answer.passes.double().sum()) / seconds,
        "peak_bytes": memory.peak(answer),
    }
    return row, answer


def _measure_bare(run: BenchRun) -> None:
    """Time forward and backward passes of the compiled model alone, with as many rows as the engine has slots."""
    slots = run.settings.chunk
    rate = bare_rate(run.inputs.model, _repeat_rows(run.inputs.x, slots), run.settings.repeats)
    compiled = [row for row in run.rows("speed") if row["contestant"].startswith(f"compiled {BARE_PRECISION}")]
    shares = {row["contestant"]: row["passes_per_second"] / rate for row in compiled}
    run.record["bare"] = {"precision": BARE_PRECISION, "rows": slots, "passes_per_second": rate, "shares": shares}


def _repeat_rows(x: Tensor, count: int) -> Tensor:
    return x.repeat(-(-count // len(x)), *[1] * (x.dim() - 1))[:count]


def bare_rate(model: nn.Module, x: Tensor, repeats: int) -> float:
    """Return how many passes a second a plain loop over the compiled model makes, in half precision and channels last."""
    compiled: Any = torch.compile(channels_last(copy.deepcopy(model).half().requires_grad_(False)), dynamic=False)
    point = x.half().contiguous(memory_format=torch.channels_last).requires_grad_()

    def run_passes(count: int) -> None:
        for _ in range(count):
            torch.autograd.grad(compiled(point).float().sum(), point)

    run_passes(3)  # the first one compiles
    return BARE_PASSES * len(x) / median(timed_call(partial(run_passes, BARE_PASSES), "cuda")[1] for _ in range(repeats))
