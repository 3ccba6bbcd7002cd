"""What is measured: chosen by the caller, and by the machine where the caller says nothing."""

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
class Settings:
    """Of one run.

    Args:
        device: "cpu" or "cuda".
        parts: of :data:`PARTS`, measured in the order given.
        images: that contestants are timed on; on a GPU all but the quickest on twice the naive loop's.
        naive_images: that the naive loop is timed and compared on: its speed does not depend on how many there are.
        samples: images of each condition whose labels are compared.
        repeats: timings, whose median counts; the naive loop has one.
        chunk: rows that a compiled contestant and all that grows search at once.
        model: a name of ``drq models``; None for what suits the machine.
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
    def of(cls, device: str | None = None, parts: Iterable[str] | None = None, **given: Any) -> Self:
        """Settings with the defaults of the device where nothing, or None, is given; None for the device takes a GPU if any."""
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        rule, remedy = "be cpu, or cuda where there is one", "leave it out for what there is"
        known = device == "cpu" or (device == "cuda" and torch.cuda.is_available())
        require(known, "device", rule, repr(device), remedy)
        chosen = {"parts": None if parts is None else tuple(parts), **given}
        usual = dict(ON_CUDA if device == "cuda" else ON_CPU)
        return cls(device=device, **usual | {name: value for name, value in chosen.items() if value is not None})

    def also(self, part: str) -> Self:
        """With one part more."""
        return replace(self, parts=(*(each for each in self.parts if each != part), part))

    def as_json(self) -> dict[str, Any]:
        """Made of what JSON knows."""
        return asdict(self) | {"parts": list(self.parts)}
