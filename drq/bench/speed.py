"""How quick every contestant is, and what share of the bare model's speed the engine reaches."""

from __future__ import annotations

import copy
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from drq.bench.contestants import NAIVE, Contestant, Decide
from drq.bench.naive import Answer
from drq.bench.timing import Memory, clocked
from drq.bench.workshop import Task, Workshop
from drq.method.adapters import channels_last

BARE = "float16"  # the precision in which the bare model is timed
LONG = 40.0  # seconds after which a timing is not repeated
BARE_PASSES = 30  # of a whole batch, in one timing


def tasks(shop: Workshop) -> list[Task]:
    """One for each contestant, and on a GPU one for the bare model."""
    found = [
        Task(f"speed of {each.name}", each.share * (shop.images(each) + 1), partial(_contestant, shop, each))
        for each in shop.contestants
    ]
    if shop.device == "cuda":
        found.append(Task(f"speed of the bare model in {BARE}", 5.0, partial(_bare, shop)))
    return found


def _contestant(shop: Workshop, contestant: Contestant) -> None:
    decide = shop.decider(contestant)
    if shop.device == "cpu":
        shop.note("memory is measured on a GPU only")
        if not any("bfloat16" in each.name for each in shop.contestants):
            shop.note("bfloat16 is left out: this CPU has neither avx512_bf16 nor amx_bf16")
    x = shop.subject.x[: shop.images(contestant)]
    repeats = 1 if contestant.naive else shop.settings.repeats
    row, shop.answers[contestant.name] = timed(contestant, decide, x, repeats)
    naive = next((each for each in shop.rows("speed") if each["contestant"] == NAIVE), row)
    row["times_naive"] = row["images_per_second"] / naive["images_per_second"]
    shop.rows("speed").append(row)


def timed(contestant: Contestant, decide: Decide, x: Tensor, repeats: int) -> tuple[dict[str, Any], Answer]:
    """A row, and the answer on all images: the first call is on one image, latency on one after that, speed on all."""
    device = x.device.type
    memory = Memory(device)
    _, first = clocked(lambda: decide(x[:1]), device)
    singles = [clocked(lambda: decide(x[:1]), device)[1] for _ in range(repeats)] if repeats > 1 else [first]
    answer, seconds = clocked(lambda: decide(x), device)
    runs = [seconds]
    while len(runs) < repeats and sum(runs) < LONG:
        runs.append(clocked(lambda: decide(x), device)[1])
    seconds = median(runs)
    row = {
        "contestant": contestant.name,
        "images": len(x),
        "repeats": len(runs),
        "images_per_second": len(x) / seconds,
        "first_call_seconds": first,
        "latency_seconds": median(singles),
        "passes": float(answer.passes.double().mean()),
        "passes_per_second": float(answer.passes.double().sum()) / seconds,
        "peak_bytes": memory.peak(answer),
    }
    return row, answer


def _bare(shop: Workshop) -> None:
    """Forward and backward passes of the model alone, compiled, with as many rows as the engine has slots."""
    slots = shop.settings.chunk
    rate = bare_rate(shop.subject.model, _rows(shop.subject.x, slots), shop.settings.repeats)
    quick = [each for each in shop.rows("speed") if each["contestant"].startswith(f"compiled {BARE}")]
    shares = {each["contestant"]: each["passes_per_second"] / rate for each in quick}
    shop.record["bare"] = {"precision": BARE, "rows": slots, "passes_per_second": rate, "shares": shares}


def _rows(x: Tensor, count: int) -> Tensor:
    return x.repeat(-(-count // len(x)), *[1] * (x.dim() - 1))[:count]


def bare_rate(model: nn.Module, x: Tensor, repeats: int) -> float:
    """Passes in a second that a plain loop over the compiled model does, in half precision and channels last."""
    compiled: Any = torch.compile(channels_last(copy.deepcopy(model).half().requires_grad_(False)), dynamic=False)
    point = x.half().contiguous(memory_format=torch.channels_last).requires_grad_()

    def passes(count: int) -> None:
        for _ in range(count):
            torch.autograd.grad(compiled(point).float().sum(), point)

    passes(3)  # the first one compiles
    return BARE_PASSES * len(x) / median(clocked(partial(passes, BARE_PASSES), "cuda")[1] for _ in range(repeats))
