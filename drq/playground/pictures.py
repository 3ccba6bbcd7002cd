"""Images to try: those that are here, and those that somebody brings along, of which nothing is believed."""

from __future__ import annotations

import io
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cache

from torch import Tensor, nn

from drq import images
from drq.data.catalogue import load as load_data
from drq.errors import InputError, require
from drq.models.catalogue import list as known_models
from drq.models.catalogue import load as load_model
from drq.models.classifier import Card
from drq.playground.drawn import scenes

BYTES = 8 * 2**20  # of an upload, at most
PIXELS = 16_000_000  # of a picture that is brought along, at most: a telephone's photograph has 12 million
OFFERED = 12  # images of a data set
MADE, CIFAR, DIGITS = "Drawn here", "CIFAR-10 test images", "Handwritten digits"
SMALL, *OTHERS = "cifar10-small", "cifar10-linf", "cifar10-l2", "cifar10-augment", "cifar10-plain"
MODELS = {MADE: (SMALL, *OTHERS), CIFAR: (SMALL, *OTHERS), DIGITS: ("digits",)}  # who can look at them, the usual one first


@dataclass(frozen=True, eq=False)
class Picture:
    """An image as its model takes it."""

    image: Tensor  # (C, H, W) in [0, 1]
    label: int | None  # what it shows, where that is known
    model: str  # name of the classifier that looks at it
    name: str


@cache
def classifier(name: str) -> nn.Module:
    """The model of this name, kept."""
    return load_model(name)


def card(name: str) -> Card:
    """What is known of it."""
    found = classifier(name).card
    assert isinstance(found, Card)
    return found


def class_names(name: str) -> tuple[str, ...]:
    """What its classes are called."""
    found = card(name).classes
    assert found is not None
    return found


def classifiers(source: str) -> tuple[str, ...]:
    """Who can look at the images of a source: the usual model, and those that this machine has."""
    present = {entry.name for entry in known_models() if entry.present}
    return tuple(name for name in MODELS[source] if name in present)


def seen_by(picture: Picture, model: str) -> Picture:
    """The picture, for another model of such images."""
    _offered(model, next(names for names in MODELS.values() if picture.model in names))
    return replace(picture, model=model)


def _offered(model: str, names: Collection[str]) -> None:
    """Others are not even looked for: a name may be one of a file, or of code."""
    require(model in names, "model", f"be one of {', '.join(sorted(names))}", repr(model)[:60], "choose one")


@cache
def sources() -> tuple[str, ...]:
    """Where images can be chosen from: CIFAR-10 only where this machine has it."""
    return (MADE, CIFAR, DIGITS) if offered(CIFAR) else (MADE, DIGITS)


@cache
def offered(source: str) -> tuple[Picture, ...]:
    """The images of a source; none where it is not on this machine."""
    model = MODELS[source][0]
    if source == MADE:
        names = class_names(model)
        return tuple(Picture(image, names.index(name), model, name) for name, image in scenes().items())
    try:
        data = load_data("cifar10" if source == CIFAR else "digits", limit=OFFERED)
    except InputError:
        return ()
    x, y = data.batch(range(len(data)))
    names = class_names(model)
    return tuple(Picture(image, label, model, names[label]) for image, label in zip(x, y.tolist(), strict=True))


def uploaded(data: bytes | None, model: str = SMALL) -> Picture:
    """The picture in the bytes of a file; one that is too large, damaged or no picture is refused before it is decoded."""
    _offered(model, {name for names in MODELS.values() for name in names})
    require(bool(data), "upload", "hold a picture", "nothing", "choose a file")
    assert data is not None
    require(len(data) <= BYTES, "upload", f"have at most {BYTES:,} bytes", f"{len(data):,}", "make it smaller first")
    width, height = _size(data)
    rule = f"have at most {PIXELS:,} pixels"
    require(width * height <= PIXELS, "upload", rule, f"{width} x {height}", "make it smaller first")
    view = card(model).view
    assert view is not None
    return Picture(view(images.read(data)), None, model, "your image")


def _size(data: bytes) -> tuple[int, int]:
    """What the header says; (0, 0) where it is damaged, which :func:`drq.images.read` refuses with a better message."""
    import PIL.Image

    try:
        with PIL.Image.open(io.BytesIO(data), formats=images.FORMATS) as image:
            size: tuple[int, int] = image.size
            return size
    except PIL.Image.DecompressionBombError:
        return PIXELS, 2
    except Exception:  # a hostile file makes decoders raise anything
        return 0, 0
