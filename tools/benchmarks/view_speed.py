"""Measure what DRQ over views costs beside the bare model's forward passes over as many rows; writes results/view-speed.json.

One CIFAR-10 network, views without filters. Both are timed in turns, within the same seconds, and the shortest of many rounds
counts: whatever else the machine does takes time away from both. On a CPU it is the time of one thread that counts. The bare
model gets the same pictures in batches of the same size, as often as there are views, in inference mode, and in either order in
memory; DRQ is compared with the faster one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import drq
from drq.report.typesetting import text_table
from tools.benchmarks.assets import arguments, write

MODEL = "published:resnet20"
VIEWS = ("Rotation(90, 13)", "Rotation(90, 13) * Mirror()", "Mirror()", "Shift(4, 9)", "Scale(2, 9)")
BATCH, FIRST = 64, 5000


def seconds(call: Callable[[], object], on_gpu: bool) -> float:
    """Return the time of a call: of this process, or with the kernels on a GPU."""
    if not on_gpu:
        began = time.process_time()
        call()
        return time.process_time() - began
    torch.cuda.synchronize()
    began = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return time.perf_counter() - began


def bare(model: nn.Module, x: Tensor, looks: int) -> None:
    """Let the model look so often at a batch."""
    with torch.inference_mode():
        for _ in range(looks):
            model(x)


def measured(model: nn.Module, views: str, x: Tensor, rounds: int) -> dict[str, Any]:
    """Return the shortest time of DRQ over views and of the bare model, per batch."""
    robust = drq.DRQ(model, views=views)
    looks = len(robust.views or ())
    last = x.contiguous(memory_format=torch.channels_last)
    contestants: dict[str, Callable[[], object]] = {
        "bare": lambda: bare(model, x, looks),
        "bare, channels last": lambda: bare(model, last, looks),
        "drq": lambda: robust.decide(x),
    }
    found = {name: float("inf") for name in contestants}
    for number in range(rounds + 2):
        for name, call in contestants.items():
            took = seconds(call, x.is_cuda)
            found[name] = min(found[name], took) if number >= 2 else found[name]  # the first ones warm up
    least = min(found["bare"], found["bare, channels last"])
    return {"views": views, "looks": looks, "seconds": found, "more": found["drq"] / least - 1}


def table(rows: list[dict[str, Any]]) -> str:
    """Return a table with a row for each set of views."""
    heads = ["views", "passes", "bare ms", "channels last ms", "DRQ ms", "more"]
    shown = [
        [
            *(row["views"], str(row["looks"])),
            *(f"{1000 * each:.1f}" for each in row["seconds"].values()),
            f"{row['more']:+.1%}",
        ]
        for row in rows
    ]
    return text_table(heads, shown)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=30, help="of which the shortest counts")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    x = drq.load_data("cifar10").batch(range(FIRST, FIRST + BATCH))[0].to(chosen.device)
    model = drq.load_model(MODEL).to(chosen.device)
    rows = [measured(model, views, x, chosen.rounds) for views in VIEWS]
    print(table(rows))
    write(chosen.out, "view-speed", {"model": MODEL, "batch": BATCH, "rounds": chosen.rounds, "found": rows})


if __name__ == "__main__":
    main()
