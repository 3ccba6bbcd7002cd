"""Foresee what an evaluation costs before it starts: passes of its models, and time by how long a few of them take here."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from drq.evaluation.plan import Shard
from drq.evaluation.resources import WorkerContext, model_and_data
from drq.objectives import log_odds
from drq.system.progress import duration
from drq.system.threads import threads

WORTH_TIMING = 100_000  # passes from which on it is worth a second to know how long they take
BATCHES = {"cpu": (16, 128, 1024), "cuda": (512,)}  # inputs that are timed together: more where fewer do not keep the device busy
BUSY = 0.05  # seconds that a batch must take, else most of it is the cost of the call, which searches share among many rows


def forecast(context: WorkerContext, parts: Iterable[Shard], effort: Mapping[tuple[str, ...], float], timed: bool) -> str:
    """Return in words how many samples and passes are ahead, and how long they take where they are many.

    Args:
        context: how models are run.
        parts: shards that are not done yet.
        effort: passes for one sample, by the place of its task.
        timed: whether this machine does the work, so that its pace counts.
    """
    samples, passes, data = 0, dict[str, float](), dict[str, str]()
    for shard in parts:
        task = shard.task
        samples += len(shard)
        passes[task.model] = passes.get(task.model, 0.0) + len(shard) * effort[task.place]
        data.setdefault(task.model, task.data)
    total = sum(passes.values())
    text = f"{samples:,} samples, up to {total:,.0f} passes of models"
    if not timed or total < WORTH_TIMING:
        return text
    seconds = sum(count * seconds_per_pass(context, name, data[name]) for name, count in passes.items())
    return f"{text}, about {duration(seconds)} at the pace of a first few passes on this machine"


def seconds_per_pass(context: WorkerContext, model: str, data: str) -> float:
    """Time one pass forward and backward of one sample, in a batch that keeps the device busy; a first batch warms up."""
    subject = model_and_data(context, model, data)
    device, first = torch.device(context.device), context.first
    sizes = BATCHES.get(device.type, BATCHES["cpu"])
    x, _ = subject.data.batch(range(first, min(first + sizes[0], len(subject.data))))
    with threads(context.threads):
        for size in sizes:
            rows = x.repeat(-(-size // len(x)), *[1] * (x.dim() - 1))[:size].to(device)
            _, seconds = (_timed(subject.model, rows) for _ in range(2))
            if seconds > BUSY:
                break
    return seconds / size


def _timed(model: nn.Module, x: Tensor) -> float:
    began = time.perf_counter()
    rows = x.detach().requires_grad_()
    logits = model(rows)
    torch.autograd.grad(log_odds(logits, logits.argmax(1)).sum(), rows)[0].cpu()  # waits for a GPU
    return time.perf_counter() - began
