"""How cost grows: with classes, with the batch, with the size of images. Memory at a fixed chunk should not grow at all."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from drq.bench.contestants import Contestant, quickest
from drq.bench.numbers import EXPLORED, Numbers, Training, small_trunk
from drq.bench.speed import timed
from drq.bench.timing import Memory, clocked, compilations
from drq.bench.workshop import LARGEST_BATCH, Task, Workshop
from drq.models.preact_resnet import PreActResNet18
from drq.models.resnet import ResNet50

DIGITS = {"cpu": (1, 2), "cuda": (1, 2, 3)}  # 10, 100 and 1000 classes
SIZES = {"cpu": (32, 64), "cuda": (32, 64, 128, 224)}
STEPS = {"cpu": 300, "cuda": 400}  # of training
IMAGES = {"cpu": 8, "cuda": 256}  # at 10 classes of 32 pixels; fewer where each costs more
CLASSES_CHUNK = 2048  # at most, so that the images of all numbers of classes fill it
SIZE_CHUNK = 256  # at most, so that the largest images fit
IMAGENET_CHUNK = 512
IMAGENET = Training(3, 224, ResNet50, steps=500, batch=128, rate=1e-3, device="cuda")


def naive_passes(classes: int) -> int:
    """Evaluations of the model that the naive loop spends on an image in its two searches of 20 steps for every class."""
    return 2 * 21 * classes


def recipe(device: str, digits: int, pixels: int = 32) -> Training:
    """A network of numbers that suits the machine: PreActResNet-18 on a GPU, else a small one."""
    trunk: Any = PreActResNet18 if device == "cuda" else small_trunk
    return Training(digits, pixels, trunk, STEPS[device], 128 if device == "cuda" else 32, 2e-3, device)


def classes(shop: Workshop) -> list[Task]:
    """A network for each number of classes, then exact and race on it."""
    found, device = [], shop.device
    for digits in DIGITS[device]:
        images = max(4, IMAGES[device] // 10 ** (digits - 1))
        facts = {"classes": 10**digits, "pixels": 32, "chunk": min(CLASSES_CHUNK, shop.settings.chunk)}
        found += _grown(shop, "classes", facts, recipe(device, digits), images)
    return found


def size(shop: Workshop) -> list[Task]:
    """A network for each size of images, then exact and race on it."""
    found, device = [], shop.device
    for pixels in SIZES[device]:
        images, trunk = max(2, IMAGES[device] * 32 // pixels), partial(small_trunk, width=64 if device == "cuda" else 16)
        training = replace(recipe(device, 1, pixels), trunk=trunk)
        facts = {"classes": 10, "pixels": pixels, "chunk": min(SIZE_CHUNK, shop.settings.chunk)}
        found += _grown(shop, "size", facts, training, images)
    return found


def imagenet(shop: Workshop) -> list[Task]:
    """ResNet-50 with the size and the number of classes of ImageNet, on a GPU."""
    if shop.device == "cpu":
        shop.note("imagenet is left out: it is measured on a GPU only")
        return []
    return _grown(shop, "imagenet", {"classes": 1000, "pixels": 224, "chunk": IMAGENET_CHUNK}, IMAGENET, images=4)


def _grown(shop: Workshop, part: str, facts: dict[str, int], training: Training, images: int) -> list[Task]:
    made: list[Numbers] = []
    title = f"{facts['classes']} classes at {facts['pixels']} pixels"
    cost = images * facts["classes"] / 10 * (facts["pixels"] / 32) ** 2 * (0.02 if shop.device == "cpu" else 1)
    found = [Task(f"training for {title}", 1 + 0.2 * cost, lambda: made.append(training.made(images)))]
    for each in quickest(shop.device):
        work = partial(_measure, shop, part, facts, made, each)
        found.append(Task(f"{title}, {each.name}", each.share * cost, work))
    return found


def _measure(shop: Workshop, part: str, facts: dict[str, int], made: list[Numbers], contestant: Contestant) -> None:
    found = made[0]
    decide = contestant.around(found.model, "linf", EXPLORED, facts["chunk"])
    row, _ = timed(contestant, decide, found.x, 1)
    naive = naive_passes(facts["classes"])
    about = {"accuracy": found.accuracy, "seconds_per_image": 1 / row["images_per_second"], "naive_passes": naive}
    shop.rows(part).append(facts | row | about | {"share_of_naive": row["passes"] / naive})
    if part == "classes":
        _flatness(shop, part, "classes")


def batch(shop: Workshop) -> list[Task]:
    """The subject's images in ever larger batches, through one and the same object."""
    largest, sizes = LARGEST_BATCH[shop.device], [1]
    while sizes[-1] < largest:
        sizes.append(4 * sizes[-1])
    chosen, found = quickest(shop.device)[0], []
    decide: list[Any] = []
    for images in sizes:
        work = partial(_batch, shop, chosen, decide, images)
        found.append(Task(f"a batch of {images}, {chosen.name}", chosen.share * (images + 1), work))
    return found


def _batch(shop: Workshop, contestant: Contestant, made: list[Any], images: int) -> None:
    subject = shop.subject
    if not made:
        made += [contestant.around(subject.model, subject.norm, subject.radius, shop.settings.chunk), Memory(shop.device)]
    decide, x, before = made[0], subject.x[:images], compilations()
    answer, first = clocked(lambda: decide(x), shop.device)
    seconds = clocked(lambda: decide(x), shop.device)[1] if shop.device == "cuda" else first
    shop.rows("batch").append(
        {
            "contestant": contestant.name,
            "batch": images,
            "classes": subject.classes,
            "first_call_seconds": first,
            "images_per_second": images / seconds,
            "seconds_per_image": seconds / images,
            "passes": float(answer.passes.double().mean()),
            "compilations": compilations() - before,
            "peak_bytes": made[1].peak(answer),
            "chunk": shop.settings.chunk,
        }
    )
    _flatness(shop, "batch", "batch")


def _flatness(shop: Workshop, part: str, growing: str) -> None:
    """The peak of memory at the most classes, or images, over that at the fewest that fill a chunk.

    Batches go through one object, so the peak of each is that of all up to it.
    """
    for name in dict.fromkeys(each["contestant"] for each in shop.rows(part)):
        rows = [each for each in shop.rows(part) if each["contestant"] == name and each["peak_bytes"]]
        full = [each for each in rows if each.get("batch", each.get("images")) * each["classes"] >= each["chunk"]]
        if len(full) > 1:
            few, many = (pick(full, key=lambda each: each[growing]) for pick in (min, max))
            shop.record.setdefault("memory", {})[f"{part}, {name}"] = many["peak_bytes"] / few["peak_bytes"]
