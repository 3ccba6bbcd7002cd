"""Foresee what an evaluation costs before it starts: passes of its models, and time by how long a few of them take here."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

import torch

from drq.evaluation.plan import Shard
from drq.evaluation.resources import WorkerContext, model_and_data
from drq.objectives import log_odds
from drq.system.progress import duration
from drq.system.threads import threads

WORTH_TIMING = 100_000  # passes from which on it is worth a second to know how long they take
BATCH = {"cpu": 16, "cuda": 512}  # inputs that are timed together, as many as keep the device busy


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
    return f"{text}, up to {duration(seconds)} at the pace of a first few passes on this machine"


def seconds_per_pass(context: WorkerContext, model: str, data: str) -> float:
    """Time one pass forward and backward of one sample, in a batch; a first batch warms up."""
    subject = model_and_data(context, model, data)
    device = torch.device(context.device)
    first, size = context.first, BATCH.get(device.type, BATCH["cpu"])
    x, _ = subject.data.batch(range(first, min(first + size, len(subject.data))))
    with threads(context.threads):
        for _ in range(2):
            began = time.perf_counter()
            rows = x.to(device).requires_grad_()
            logits = subject.model(rows)
            torch.autograd.grad(log_odds(logits, logits.argmax(1)).sum(), rows)[0].cpu()  # waits for a GPU
            seconds = time.perf_counter() - began
    return seconds / len(x)
