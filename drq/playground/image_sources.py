"""Provide the images of the image tab: drawings, data sets, and uploads, which are checked before they are decoded."""

from __future__ import annotations

import io
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from drq import images
from drq.data.loading import load as load_data
from drq.drq import DRQ
from drq.errors import InputError, require
from drq.images import View
from drq.models.classifier import Card
from drq.models.loading import list as known_models
from drq.models.loading import load as load_model
from drq.objectives import Model
from drq.playground.offered import DEFENCES
from drq.registry import TRAINED

if TYPE_CHECKING:
    from PIL.Image import Image

MOST_BYTES = 8 * 2**20  # of an upload
MOST_PIXELS = 16_000_000  # of an upload: photographs of a phone have 12 million
MOST_SAMPLES = 12  # images that are offered of a data set
SIDE = 256  # side of a drawing, before it is reduced to the size that its model takes
DRAWN, CIFAR, DIGITS = "Drawn here", "CIFAR-10 test images", "Handwritten digits"
DEFAULT_MODEL = "cifar10-small"  # for images like those of CIFAR-10
NOT_DEFENCES = ("cifar10-tiny", "cifar10-tiny-seed1")  # models for experiments, too small to answer well


@dataclass(frozen=True, eq=False)
class Picture:
    """An image in the form that its model takes."""

    image: Tensor  # (C, H, W) in [0, 1]
    label: int | None  # the true class, where it is known
    model: str  # name of the classifier
    name: str


@cache
def classifier(name: str) -> nn.Module:
    """Load the named model once."""
    return load_model(name)


def model_of(name: str) -> nn.Module:
    """Return the named model, or that of the defence which is offered under this name."""
    return DEFENCES[name].stored.model if name in DEFENCES else classifier(name)


def model_card(name: str) -> Card:
    """Return the named model's card."""
    card = model_of(name).card
    assert isinstance(card, Card)
    return card


def defended(name: str, model: Model) -> DRQ:
    """Return DRQ around a form of the named model: as the file says that is offered, else as the model's training suggests."""
    return DEFENCES[name].around(model) if name in DEFENCES else DRQ(model, keep_points=True, **model_card(name).explored)


def least_margin(name: str) -> float:
    """Return the margin below which the named model, defended, abstains."""
    return DEFENCES[name].stored.threshold.margin if name in DEFENCES else 0.0


def class_names(name: str) -> tuple[str, ...]:
    """Return the names of the named model's classes."""
    if name in DEFENCES:
        return DEFENCES[name].names
    classes = model_card(name).classes
    assert classes is not None
    return classes


def models_for(source: str) -> tuple[str, ...]:
    """Return the models for the images of a source, on this machine or not; the default first."""
    if source in DEFENCES:
        return (source,)
    return ("digits",) if source == DIGITS else tuple(name for name in TRAINED if name not in NOT_DEFENCES)


def available_models(source: str) -> tuple[str, ...]:
    """Return the models for the images of a source that are on this machine; the default first."""
    present = {entry.name for entry in known_models() if entry.present} | {*DEFENCES}
    return tuple(name for name in models_for(source) if name in present)


def with_model(picture: Picture, model: str) -> Picture:
    """Return the picture for another model of such images."""
    _require_offered(model, next(names for names in map(models_for, (*DEFENCES, CIFAR, DIGITS)) if picture.model in names))
    return replace(picture, model=model)


def _require_offered(model: str, names: Collection[str]) -> None:
    """Refuse other names without looking for them: a name may stand for a file, or for code."""
    require(model in names, "model", f"be one of {', '.join(sorted(names))}", repr(model)[:60], "choose one")


def sources() -> tuple[str, ...]:
    """Where images can be chosen from: those for a defence that is offered, CIFAR-10 only where this machine has it."""
    return (*DEFENCES, DRAWN, CIFAR, DIGITS) if images_of(CIFAR) else (*DEFENCES, DRAWN, DIGITS)


def images_of(source: str) -> tuple[Picture, ...]:
    """Return the images of a source; none where it is not on this machine."""
    if source not in DEFENCES:
        return _known_images(source)
    view, names = DEFENCES[source].view, class_names(source)
    shape = (view.channels, view.height, view.width)
    alike = [each for kind in (CIFAR, DIGITS) if names == class_names(models_for(kind)[0]) for each in _known_images(kind)]
    found = tuple(replace(each, model=source) for each in alike if each.image.shape == shape)
    if found and view.channels == 1:
        return found
    labels = {name: names.index(name) for name in DRAWINGS if name in names}
    return (*(Picture(view(draw(name)), labels.get(name), source, name) for name in DRAWINGS), *found)


@cache
def _known_images(source: str) -> tuple[Picture, ...]:
    """Return the images of a source that does not depend on what is offered."""
    model = models_for(source)[0]
    if source == DRAWN:
        names = class_names(model)
        return tuple(Picture(image, names.index(name), model, name) for name, image in drawn_images().items())
    try:
        data = load_data("cifar10" if source == CIFAR else "digits", limit=MOST_SAMPLES)
    except InputError:
        return ()
    x, y = data.batch(range(len(data)))
    names = class_names(model)
    return tuple(Picture(image, label, model, names[label]) for image, label in zip(x, y.tolist(), strict=True))


def read_upload(data: bytes | None, model: str = DEFAULT_MODEL) -> Picture:
    """Decode an uploaded file; what is too large is refused before it is decoded."""
    _require_offered(model, {*DEFENCES, *models_for(CIFAR), *models_for(DIGITS)})
    require(bool(data), "upload", "hold a picture", "nothing", "choose a file")
    assert data is not None
    require(len(data) <= MOST_BYTES, "upload", f"have at most {MOST_BYTES:,} bytes", f"{len(data):,}", "make it smaller first")
    width, height = _declared_size(data)
    rule = f"have at most {MOST_PIXELS:,} pixels"
    require(width * height <= MOST_PIXELS, "upload", rule, f"{width} x {height}", "make it smaller first")
    view = model_card(model).view
    assert view is not None
    return Picture(view(images.read(data)), None, model, "your image")


def _declared_size(data: bytes) -> tuple[int, int]:
    """Return the size in a file's header; (0, 0) where it is damaged, for which :func:`drq.images.read` has a better message."""
    import PIL.Image

    try:
        with PIL.Image.open(io.BytesIO(data), formats=images.FORMATS) as image:
            size: tuple[int, int] = image.size
            return size
    except PIL.Image.DecompressionBombError:
        return MOST_PIXELS, 2
    except Exception:  # a hostile file can make a decoder raise anything
        return 0, 0


def _sky(draw: Any, top: tuple[int, int, int], bottom: tuple[int, int, int], until: int = SIDE) -> None:
    """Draw a background with a colour gradient, since photographs have no flat colours."""
    for y in range(until):
        share = y / SIDE
        draw.line([0, y, SIDE, y], fill=tuple(round(a + share * (b - a)) for a, b in zip(top, bottom, strict=True)))


def _ship(draw: Any) -> None:
    _sky(draw, (170, 200, 225), (215, 225, 235))
    draw.rectangle([0, 165, SIDE, SIDE], fill=(40, 80, 115))
    draw.polygon([(25, 140), (232, 140), (205, 185), (55, 185)], fill=(60, 35, 35))
    draw.rectangle([80, 105, 175, 140], fill=(235, 235, 230))
    draw.rectangle([115, 65, 140, 105], fill=(190, 60, 45))


def _airplane(draw: Any) -> None:
    _sky(draw, (105, 160, 220), (190, 215, 240))
    draw.polygon([(30, 128), (60, 112), (205, 112), (232, 124), (205, 138), (60, 140)], fill=(240, 240, 245))
    draw.polygon([(110, 120), (150, 120), (95, 205), (75, 205)], fill=(205, 208, 218))
    draw.polygon([(120, 114), (150, 114), (120, 62), (106, 62)], fill=(215, 218, 228))
    draw.polygon([(38, 122), (66, 114), (46, 72), (30, 72)], fill=(60, 85, 160))


def _automobile(draw: Any) -> None:
    _sky(draw, (205, 212, 215), (225, 225, 220))
    draw.rectangle([0, 175, SIDE, SIDE], fill=(95, 95, 98))
    draw.rounded_rectangle([22, 125, 234, 188], 22, fill=(185, 25, 30))
    draw.polygon([(66, 128), (92, 82), (172, 82), (204, 128)], fill=(160, 20, 26))
    draw.polygon([(80, 125), (98, 92), (166, 92), (188, 125)], fill=(150, 185, 205))
    for x in (72, 186):
        draw.ellipse([x - 25, 163, x + 25, 213], fill=(20, 20, 22))
        draw.ellipse([x - 10, 178, x + 10, 198], fill=(170, 170, 172))


def _truck(draw: Any) -> None:
    _sky(draw, (185, 205, 215), (220, 220, 210))
    draw.rectangle([0, 190, SIDE, SIDE], fill=(120, 112, 98))
    draw.rectangle([20, 62, 168, 180], fill=(238, 238, 232))
    draw.polygon([(172, 98), (212, 98), (236, 138), (236, 180), (172, 180)], fill=(30, 75, 150))
    draw.polygon([(184, 106), (208, 106), (224, 136), (184, 136)], fill=(175, 205, 215))
    for x in (58, 118, 206):
        draw.ellipse([x - 20, 164, x + 20, 204], fill=(22, 22, 22))


def _frog(draw: Any) -> None:
    _sky(draw, (95, 82, 60), (120, 105, 75))
    draw.ellipse([55, 95, 205, 215], fill=(95, 140, 50))
    draw.ellipse([80, 60, 185, 150], fill=(110, 155, 60))
    for x in (98, 166):
        draw.ellipse([x - 16, 52, x + 16, 84], fill=(125, 165, 70))
        draw.ellipse([x - 7, 60, x + 7, 76], fill=(15, 15, 10))
    draw.arc([100, 95, 165, 130], 15, 165, fill=(50, 75, 25), width=5)


DRAWINGS: dict[str, Callable[[Any], None]] = {
    "airplane": _airplane,
    "automobile": _automobile,
    "frog": _frog,
    "ship": _ship,
    "truck": _truck,
}


def draw(name: str) -> Image:
    """Return the named drawing in full size."""
    import PIL.Image
    import PIL.ImageDraw

    image = PIL.Image.new("RGB", (SIDE, SIDE))
    DRAWINGS[name](PIL.ImageDraw.Draw(image))
    return image


@cache
def drawn_images() -> dict[str, Tensor]:
    """Return all drawings as inputs (3, 32, 32), by the class that they show."""
    return {name: View(32, 32, interpolation="box")(draw(name)) for name in DRAWINGS}
