"""Define the settings of a benchmark and their defaults on a CPU and on a GPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import torch

from drq.errors import nearest, require

PARTS: Mapping[str, str] = {
    "speed": "images a second, latency, passes and memory of every contestant",
    "agreement": "labels beside float32 without pruning: clean, corrupted, attacked",
    "classes": "10, 100 and 1000 classes",
    "batch": "from 1 image to 4096",
    "size": "from 32 pixels to 224",
    "attacks": "PGD beside Foolbox and torchattacks",
    "imagenet": "ResNet-50 at 224 pixels with 1000 classes",
}
ON_CPU: Mapping[str, Any] = {
    "parts": ("speed", "agreement", "classes"),
    "images": 4,
    "naive_images": 2,
    "samples": 2,
    "repeats": 1,
    "chunk": 64,
}
ON_CUDA: Mapping[str, Any] = {
    "parts": ("speed", "agreement", "classes", "batch", "size"),
    "images": 4096,
    "naive_images": 128,
    "samples": 512,
    "repeats": 3,
    "chunk": 4096,
}


@dataclass(frozen=True)
class BenchSettings:
    """The settings of one benchmark run.

    Args:
        device: "cpu" or "cuda".
        parts: names in :data:`PARTS`, measured in the order given.
        images: how many images contestants are timed on; on a GPU the slower ones use twice ``naive_images``.
        naive_images: how many images the naive loop is timed and compared on; its speed does not depend on their number.
        samples: how many images of each condition have their labels compared.
        repeats: how often a timing is repeated, of which the median is reported; the naive loop is timed once.
        chunk: how many rows compiled contestants, and all of the growth parts, search at once.
        model: a name that ``drq models`` lists; None for the default of the machine.
    """

    device: str
    parts: tuple[str, ...]
    images: int
    naive_images: int
    samples: int
    repeats: int
    chunk: int
    model: str | None = None

    def __post_init__(self) -> None:
        for part in self.parts:
            remedy = nearest(part, PARTS, "drq bench --help names them")
            require(part in PARTS, "parts", f"be among {', '.join(PARTS)}", repr(part), remedy)
        require(len(self.parts) > 0, "parts", "name at least one", "none", f"such as {next(iter(PARTS))}")
        for name in ("images", "naive_images", "samples", "repeats", "chunk"):
            value = getattr(self, name)
            require(value >= 1, name, "be at least 1", value, "leave it out for what suits the machine")

    @classmethod
    def with_defaults(cls, device: str | None = None, parts: Iterable[str] | None = None, **given: Any) -> Self:
        """Return settings where all that is None or left out is the device's default; device None takes a GPU if there is one."""
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        rule, remedy = "be cpu, or cuda where there is one", "leave it out for what there is"
        available = device == "cpu" or (device == "cuda" and torch.cuda.is_available())
        require(available, "device", rule, repr(device), remedy)
        chosen = {"parts": None if parts is None else tuple(parts), **given}
        defaults = dict(ON_CUDA if device == "cuda" else ON_CPU)
        return cls(device=device, **defaults | {name: value for name, value in chosen.items() if value is not None})

    def with_part(self, part: str) -> Self:
        """Return these settings with one more part."""
        return replace(self, parts=(*(each for each in self.parts if each != part), part))

    def as_json(self) -> dict[str, Any]:
        """Return the settings as values that JSON can hold."""
        return asdict(self) | {"parts": list(self.parts)}
