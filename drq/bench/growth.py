"""Measure how cost grows with the number of classes, the batch size and the image size.

Peak memory at a fixed chunk should not grow at all.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from drq.bench.bench_run import LARGEST_BATCH, BenchRun, Task
from drq.bench.contestants import Contestant, fastest
from drq.bench.numbers import EXPLORATION_RADIUS, NumbersNetwork, Training, small_trunk
from drq.bench.speed import time_contestant
from drq.bench.timing import PeakMemory, compilations, timed_call
from drq.models.preact_resnet import PreActResNet18
from drq.models.resnet import ResNet50

DIGITS = {"cpu": (1, 2), "cuda": (1, 2, 3)}  # 10, 100 and 1000 classes
SIZES = {"cpu": (32, 64), "cuda": (32, 64, 128, 224)}
STEPS = {"cpu": 300, "cuda": 400}  # training steps
IMAGES = {"cpu": 8, "cuda": 256}  # images at 10 classes and 32 pixels; fewer where each image costs more
CLASSES_CHUNK = 2048  # at most this, so that the images fill a chunk at every number of classes
SIZE_CHUNK = 256  # at most this, so that the largest images fit into memory
IMAGENET_CHUNK = 512
IMAGENET = Training(3, 224, ResNet50, steps=500, batch=128, rate=1e-3, device="cuda")


def naive_passes(classes: int) -> int:
    """Return how many model evaluations the naive loop spends on an image: two searches of 20 steps for every class."""
    return 2 * 21 * classes


def network_training(device: str, digits: int, pixels: int = 32) -> Training:
    """Return how the network that reads numbers is trained on this machine: PreActResNet-18 on a GPU, else a small network."""
    trunk: Any = PreActResNet18 if device == "cuda" else small_trunk
    return Training(digits, pixels, trunk, STEPS[device], 128 if device == "cuda" else 32, 2e-3, device)


def classes(run: BenchRun) -> list[Task]:
    """Return the tasks that train a network for each number of classes and measure exact and race pruning on it."""
    planned, device = [], run.device
    for digits in DIGITS[device]:
        images = max(4, IMAGES[device] // 10 ** (digits - 1))
        facts = {"classes": 10**digits, "pixels": 32, "chunk": min(CLASSES_CHUNK, run.settings.chunk)}
        planned += _network_tasks(run, "classes", facts, network_training(device, digits), images)
    return planned


def size(run: BenchRun) -> list[Task]:
    """Return the tasks that train a network for each image size and measure exact and race pruning on it."""
    planned, device = [], run.device
    for pixels in SIZES[device]:
        images, trunk = max(2, IMAGES[device] * 32 // pixels), partial(small_trunk, width=64 if device == "cuda" else 16)
        training = replace(network_training(device, 1, pixels), trunk=trunk)
        facts = {"classes": 10, "pixels": pixels, "chunk": min(SIZE_CHUNK, run.settings.chunk)}
        planned += _network_tasks(run, "size", facts, training, images)
    return planned


def imagenet(run: BenchRun) -> list[Task]:
    """Return the tasks for ResNet-50 with ImageNet's image size and number of classes; they need a GPU."""
    if run.device == "cpu":
        run.note("imagenet is left out: it is measured on a GPU only")
        return []
    return _network_tasks(run, "imagenet", {"classes": 1000, "pixels": 224, "chunk": IMAGENET_CHUNK}, IMAGENET, images=4)


def _network_tasks(run: BenchRun, part: str, facts: dict[str, int], training: Training, images: int) -> list[Task]:
    trained: list[NumbersNetwork] = []  # filled by the first task, read by the others
    title = f"{facts['classes']} classes at {facts['pixels']} pixels"
    cost = images * facts["classes"] / 10 * (facts["pixels"] / 32) ** 2 * (0.02 if run.device == "cpu" else 1)
    planned = [Task(f"training for {title}", 1 + 0.2 * cost, lambda: trained.append(training.build(images)))]
    for contestant in fastest(run.device):
        work = partial(_measure, run, part, facts, trained, contestant)
        planned.append(Task(f"{title}, {contestant.name}", contestant.share * cost, work))
    return planned


def _measure(run: BenchRun, part: str, facts: dict[str, int], trained: list[NumbersNetwork], contestant: Contestant) -> None:
    network = trained[0]
    decide = contestant.build(network.model, "linf", EXPLORATION_RADIUS, facts["chunk"])
    row, _ = time_contestant(contestant, decide, network.x, 1)
    naive = naive_passes(facts["classes"])
    costs = {"accuracy": network.accuracy, "seconds_per_image": 1 / row["images_per_second"], "naive_passes": naive}
    run.rows(part).append(facts | row | costs | {"share_of_naive": row["passes"] / naive})
    if part == "classes":
        _record_memory_growth(run, part, "classes")


def batch(run: BenchRun) -> list[Task]:
    """Return the tasks that decide on ever larger batches of images with one and the same object."""
    largest, sizes = LARGEST_BATCH[run.device], [1]
    while sizes[-1] < largest:
        sizes.append(4 * sizes[-1])
    contestant, planned = fastest(run.device)[0], []
    shared: list[Any] = []  # the function that decides and the peak of memory, made by the first task
    for images in sizes:
        work = partial(_measure_batch, run, contestant, shared, images)
        planned.append(Task(f"a batch of {images}, {contestant.name}", contestant.share * (images + 1), work))
    return planned


def _measure_batch(run: BenchRun, contestant: Contestant, shared: list[Any], images: int) -> None:
    inputs = run.inputs
    if not shared:
        shared += [contestant.build(inputs.model, inputs.norm, inputs.radius, run.settings.chunk), PeakMemory(run.device)]
    decide, x, before = shared[0], inputs.x[:images], compilations()
    answer, first = timed_call(lambda: decide(x), run.device)
    seconds = timed_call(lambda: decide(x), run.device)[1] if run.device == "cuda" else first
    run.rows("batch").append(
        {
            "contestant": contestant.name,
            "batch": images,
            "classes": inputs.classes,
            "first_call_seconds": first,
            "images_per_second": images / seconds,
            "seconds_per_image": seconds / images,
            "passes": float(answer.passes.double().mean()),
            "compilations": compilations() - before,
            "peak_bytes": shared[1].peak(answer),
            "chunk": run.settings.chunk,
        }
    )
    _record_memory_growth(run, "batch", "batch")


def _record_memory_growth(run: BenchRun, part: str, growing: str) -> None:
    """Record the ratio of the peak memory at the most classes, or images, to that at the fewest that fill a chunk.

    All batches go through one object, so the peak of each includes those of all smaller batches.
    """
    for name in dict.fromkeys(row["contestant"] for row in run.rows(part)):
        rows = [row for row in run.rows(part) if row["contestant"] == name and row["peak_bytes"]]
        full = [row for row in rows if row.get("batch", row.get("images")) * row["classes"] >= row["chunk"]]
        if len(full) > 1:
            few, many = (pick(full, key=lambda row: row[growing]) for pick in (min, max))
            run.record.setdefault("memory", {})[f"{part}, {name}"] = many["peak_bytes"] / few["peak_bytes"]
