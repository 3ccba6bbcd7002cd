"""Measure what DRQ costs on photographs without a GPU, with imagenet-lite0; writes results/imagenet-cpu.json.

    python -m tools.benchmarks.imagenet_cpu                a quarter of an hour on one core; the pictures of NIPS 2017 in DRQ_DATA
    python -m tools.benchmarks.imagenet_cpu --workers 4    four settings at once, where there are cores for more than that

It measures 224 x 224 pixels with 1000 classes: passes and seconds an image, and peak memory, of every setting in its own process.
Seconds are CPU time of one thread, so that other processes count only where they share its caches.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

import drq
from drq.report.typesetting import text_table
from tools.benchmarks.assets import arguments, first_images, write

MODEL, DATA = "imagenet-lite0", "nips2017"
FAST, INSTANT = drq.preset("fast"), drq.preset("instant")
L2 = {"norm": "l2", "radius": 0.5}
TEN = {"classes": 10}
REFERENCE = "paper, calibrated, 10 classes"  # with whose labels others are compared
SETTINGS: dict[str, tuple[int, dict[str, Any]]] = {  # how many images, and the arguments of DRQ
    "instant": (8, INSTANT),
    "instant, bfloat16": (8, {**INSTANT, "precision": "bfloat16"}),
    "fast, l2 0.5, 10 classes": (8, {**FAST, **L2, **TEN}),
    "fast, calibrated, 10 classes": (8, {**FAST, **TEN}),
    "paper, l2 0.5, 10 classes": (4, {**L2, **TEN}),
    "paper, calibrated, 10 classes": (4, TEN),
    "fast, l2 0.5, 1000 classes, race": (1, {**FAST, **L2, "prune": "race"}),
    "paper, l2 0.5, 1000 classes, race": (1, {**L2, "prune": "race"}),
    **{f"fast, l2 0.5, 10 classes, chunk {rows}": (8, {**FAST, **L2, **TEN, "chunk": rows}) for rows in (1, 4, 16, 64)},
    "fast, l2 0.5, 10 classes, bfloat16": (8, {**FAST, **L2, **TEN, "precision": "bfloat16"}),
    "paper, l2 0.5, 10 classes, bfloat16": (4, {**L2, **TEN, "precision": "bfloat16"}),
}


def peak() -> float:
    """Return the peak memory of this process so far, in MB."""
    unit = 1 if platform.system() == "Darwin" else 1024  # bytes, or KiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def measure(name: str) -> dict[str, Any]:
    """Measure one setting in this process."""
    torch.set_num_threads(1)
    images, arguments = SETTINGS[name]
    model = drq.load_model(MODEL)
    x, y = first_images(images, "cpu", DATA, model.card.view)
    robust, before = drq.DRQ(model, **arguments), peak()
    began, clock = time.process_time(), time.perf_counter()
    decision = robust.decide(x)
    seconds, elapsed = time.process_time() - began, time.perf_counter() - clock
    return {
        "setting": name,
        "images": images,
        "passes": float(decision.passes.double().mean()),
        "seconds": seconds / images,
        "elapsed": elapsed / images,
        "peak_mb": peak(),
        "before_mb": before,
        "right": int((decision.label == y).sum()),
        "right_base": int((decision.base_label == y).sum()),
        "labels": decision.label.tolist(),
    }


def alone(repeats: int = 5) -> dict[str, float]:
    """Return the seconds an image of the model itself, by the size of the batch; the fastest repeat counts."""
    torch.set_num_threads(1)
    model, seconds = drq.load_model(MODEL), {}
    for batch in (1, 8):
        x = torch.rand(batch, 3, 224, 224)
        for kind in ("forward", "forward and backward"):
            times = []
            for _ in range(repeats):
                began = time.process_time()
                if kind == "forward":
                    with torch.no_grad():
                        model(x)
                else:
                    x.requires_grad_()
                    torch.autograd.grad(model(x).sum(), x)
                times.append(time.process_time() - began)
            seconds[f"{kind}, batch {batch}"] = min(times) / batch
    return seconds


def measure_in_subprocess(name: str) -> dict[str, Any]:
    """Return what :func:`measure` finds in a new process."""
    code = f"import json; from tools.benchmarks.imagenet_cpu import measure; print(json.dumps(measure({name!r})))"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


def processor() -> str:
    """Return the name of the processor."""
    known = Path("/proc/cpuinfo")
    lines = known.read_text().splitlines() if known.exists() else []
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.processor())


def table(record: Mapping[str, Any]) -> str:
    """Return the table in docs/real.md."""
    labels = {row["setting"]: row["labels"] for row in record["rows"]}
    rows = []
    for row in record["rows"]:
        pairs = [*zip(row["labels"], labels[REFERENCE], strict=False)]  # the first images, which are the same
        same = f"{sum(one == other for one, other in pairs)} of {len(pairs)}"
        right = f"{row['right']} of {row['images']}, alone {row['right_base']}"
        rows.append([row["setting"], f"{row['passes']:,.0f}", f"{row['seconds']:,.1f}", f"{row['peak_mb']:,.0f}", right, same])
    head = ("setting", "passes", "seconds", "memory, MB", "right", "same")
    busy = f"load {record['load']:.0f} on {record['cores']} cores meanwhile"
    where = f"One core of {record['processor']}, torch {record['torch']}; {busy}:"
    return f"{where}\n\n{text_table(head, rows)}"


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--workers", type=int, default=1, help="how many settings are measured at once, each on one thread")
    given, rows = parser.parse_args(), []
    with ThreadPoolExecutor(given.workers) as workers:  # each of which waits for a process of its own
        for row in workers.map(measure_in_subprocess, SETTINGS):
            rows.append(row)
            print(row, flush=True)
    load = {"load": os.getloadavg()[2], "cores": os.cpu_count()}  # caches are shared with others, even if time is not
    about = {"processor": processor(), **load, "model": MODEL, "data": DATA}
    write(given.out, "imagenet-cpu", {**about, "alone": alone(), "rows": rows})


if __name__ == "__main__":
    main()
