"""Profile where DRQ spends the time of a GPU; writes results/gpu-time.json.

Kernels are classified by their names. Time that no kernel covers is idle.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch

import drq
from drq.bench.timing import tf32_convolutions
from drq.report.typesetting import text_table
from tools.benchmarks.assets import arguments, first_images, write

KINDS = {  # kinds of kernels; the first pattern that matches the name counts
    "near ties, float32": r"f32f32|<float|cf32|fft|sgemm_.*32|_NCHW|region_transform|complex",
    "convolutions and products, float16": r"xmma|nvjet|cutlass|gemm|conv|nhwc",
    "steps of the search, fused": r"triton.*(sign|clamp|clip|isnan|lt_)",
    "normalisation, activations and sums, fused": r"triton",
    "slots filled and emptied": r"index|gather|scatter|memcpy|Memcpy",
}
OTHER, IDLE = "small kernels", "idle"


class Kernel(NamedTuple):
    """One run of a kernel."""

    name: str
    start: float
    end: float


def kind(name: str) -> str:
    """Return the kind of a kernel, by its name."""
    return next((kind for kind, pattern in KINDS.items() if re.search(pattern, name)), OTHER)


def shares(kernels: Iterable[Kernel]) -> dict[str, float]:
    """Return the share of each kind, and of idle time, in the time from the first kernel's start to the last one's end."""
    kernels = sorted(kernels, key=lambda each: each.start)
    spent: Counter[str] = Counter()
    covered = kernels[0].start
    for each in kernels:
        spent[IDLE] += max(0, each.start - covered)
        spent[kind(each.name)] += max(0, each.end - max(covered, each.start))  # overlapping kernels count once
        covered = max(covered, each.end)
    whole = covered - kernels[0].start
    return {name: spent[name] / whole for name in (*KINDS, OTHER, IDLE)}


def table(record: dict[str, Any]) -> str:
    """Return the table with a row for each kind and a column for each way of pruning."""
    found = record["shares"]
    rows = [[name, *(f"{100 * found[prune][name]:.1f}" for prune in found)] for name in (*KINDS, OTHER, IDLE)]
    return text_table(["% of the time", *(f'`prune="{prune}"`' for prune in found)], rows)


def profile(robust: drq.DRQ, x: torch.Tensor) -> list[Kernel]:
    """Return the kernels of a call, after a first one that compiles and records CUDA graphs."""
    robust.decide(x)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        robust.decide(x)
        torch.cuda.synchronize()
    return [
        Kernel(each.name, each.time_range.start, each.time_range.end)
        for each in profiler.events()
        if each.device_type == torch.autograd.DeviceType.CUDA
    ]


def main() -> None:
    parser = arguments(__doc__, images=4096)
    parser.add_argument("--model", default="cifar10-linf")
    chosen = parser.parse_args()
    model, (x, _) = drq.load_model(chosen.model).to("cuda"), first_images(chosen.images, "cuda")
    card = model.card.explored
    record: dict[str, Any] = {"model": chosen.model, "images": chosen.images, "shares": {}}
    for prune in ("exact", "race"):
        robust = drq.DRQ(model, card["norm"], card["radius"], prune=prune, precision="float16", compile=True)
        with tf32_convolutions(False):
            record["shares"][prune] = shares(profile(robust, x))
        write(chosen.out, "gpu-time", record)
    print(table(record))


if __name__ == "__main__":
    main()
