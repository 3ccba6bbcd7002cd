"""Read picture files safely, and turn them into inputs of a model."""

from __future__ import annotations

import io
import os
import stat
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from drq.errors import InputError, require

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF", "PPM")  # no others: every decoder is one more way in
PIXELS = 64_000_000  # of a picture, at most
BYTES = 512 * 2**20  # of a file, at most: a whole picture of 16-bit RGBA fits
INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "lanczos", "box", "hamming")
BITS_PER_SAMPLE, ORIENTATION = 258, 274  # tags of TIFF and EXIF
_one_reader = threading.Lock()  # the filters of warnings belong to the process: two readers would restore each other's


def read(path: str | os.PathLike[str] | bytes, name: str | None = None) -> Image:
    """The picture in a file, or in its bytes, as 8-bit RGB, upright.

    Colours become what a person sees, as far as the pixels alone tell: the rotation of the camera is applied, transparent parts
    lie on white, 16-bit samples keep their high byte, CMYK is converted without a colour profile (no profile is applied).
    Whatever cannot be read whole is refused, and so is what would fill the memory, before it is decoded.

    Args:
        path: of the file, or its content.
        name: what it is called where it is refused; None for the path.
    """
    modules = _pillow()
    name = repr(name) if name is not None else "the bytes" if isinstance(path, bytes) else repr(os.fspath(path))
    data = path if isinstance(path, bytes) else _content(Path(path), name)
    require(len(data) > 0, "path", "hold a picture", f"{name} with 0 bytes", "copy or export it again")
    rule = "be False while pictures are read"
    remedy = "with it half a picture passes as a whole one"
    require(not modules.ImageFile.LOAD_TRUNCATED_IMAGES, "PIL.ImageFile.LOAD_TRUNCATED_IMAGES", rule, True, remedy)
    with _quiet():
        try:
            with modules.Image.open(io.BytesIO(data), formats=FORMATS) as image:
                _check_header(image, name)
                image.load()
                return _upright(as_rgb(image), image)
        except InputError:
            raise
        except Exception as error:  # a damaged or hostile file makes decoders raise anything
            raise _refusal(error, name) from error


@dataclass(frozen=True)
class View:
    """How a picture becomes an input: resized, then cropped at its centre. The arithmetic is that of torchvision on PIL images.

    Args:
        height, width: of the crop. Where the picture is smaller, black is added around it.
        resize: a number for the shorter side, the other one follows; (height, width), whatever the aspect; None for the
            smallest size that covers the crop; 0 to leave the size.
        interpolation: one of :data:`INTERPOLATIONS`.
        channels: 3, or 1 for grey.
        rounded_down: of an odd number of pixels beside the crop the smaller half comes first, as in transformers; else the
            half is rounded to even, as in torchvision.
    """

    height: int
    width: int
    resize: int | tuple[int, int] | None = None
    interpolation: str = "bilinear"
    channels: int = 3
    rounded_down: bool = False

    def __post_init__(self) -> None:
        for name in ("height", "width"):
            value = getattr(self, name)
            require(_is_size(value), name, "be a whole number above 0", repr(value), "224 is usual for ImageNet")
        remedy = "256 resizes the shorter side, (256, 256) both, 0 nothing"
        require(_is_resize(self.resize), "resize", "be a whole number, two above 0 or None", repr(self.resize), remedy)
        known = self.interpolation in INTERPOLATIONS
        require(known, "interpolation", f"be one of {', '.join(INTERPOLATIONS)}", repr(self.interpolation), "bilinear is usual")
        require(self.channels in (1, 3), "channels", "be 3 or 1", repr(self.channels), "1 is for models of grey images")

    def __call__(self, picture: Image) -> Tensor:
        """The input (channels, height, width), in [0, 1]."""
        modules = _pillow()
        fits = isinstance(picture, modules.Image.Image)
        require(fits, "picture", "be a PIL image", type(picture).__name__, "drq.images.read(path) makes one of a file")
        picture = as_rgb(picture)
        picture = picture.convert("L") if self.channels == 1 else picture
        height, width = self.resized(picture.height, picture.width)
        got = f"one of {picture.width} x {picture.height}, which would become {width} x {height}"
        require(height * width <= PIXELS, "picture", f"have at most {PIXELS:,} pixels once resized", got, "crop it first")
        if (height, width) != (picture.height, picture.width):
            picture = picture.resize((width, height), modules.Image.Resampling[self.interpolation.upper()])
        return pixels(self._cropped(picture))

    def resized(self, height: int, width: int) -> tuple[int, int]:
        """The size before the crop of a picture of this size.

        >>> View(224, 224, resize=256).resized(300, 401)
        (256, 342)
        """
        if isinstance(self.resize, tuple):
            return self.resize
        if self.resize == 0:
            return height, width
        if self.resize is not None:
            longer = int(self.resize * max(height, width) / min(height, width))
            return (longer, self.resize) if width <= height else (self.resize, longer)
        if self.height * width >= self.width * height:  # to its height the picture is wide enough
            return self.height, self.height * width // height
        return self.width * height // width, self.width

    def _cropped(self, picture: Image) -> Image:
        """The centre; PIL fills what lies outside of the picture with black."""
        left, top = (self._start(*each) for each in ((picture.width, self.width), (picture.height, self.height)))
        return picture.crop((left, top, left + self.width, top + self.height))

    def _start(self, size: int, crop: int) -> int:
        """Where the crop begins: half of what is left over. What is missing is rounded down in both libraries."""
        if size < crop:
            return -((crop - size) // 2)
        return (size - crop) // 2 if self.rounded_down else round((size - crop) / 2)


def pixels(picture: Image) -> Tensor:
    """The picture as (3, H, W), or (1, H, W) where it is grey, in [0, 1].

    >>> from PIL import Image
    >>> pixels(Image.new("RGB", (1, 1), (255, 0, 51))).flatten()
    tensor([1.0000, 0.0000, 0.2000])
    """
    picture = picture if picture.mode == "L" else as_rgb(picture)
    values = torch.from_numpy(np.array(picture)).float() / 255
    return values[None] if values.dim() == 2 else values.permute(2, 0, 1).contiguous()


def as_rgb(image: Image) -> Image:
    """The image as 8-bit RGB; transparent parts lie on white."""
    if image.mode.startswith("I;16") or (image.mode == "I" and getattr(image, "format", None) in ("PNG", "PPM")):
        image = _high_byte(image)
    remedy = "bring its values to 8 or 16 bits and save it as PNG"
    require(image.mode not in ("I", "F"), "picture", "have 8 or 16 bits a channel", f"mode {image.mode}", remedy)
    if not image.has_transparency_data:
        return image if image.mode == "RGB" else image.convert("RGB")
    modules = _pillow()
    white = modules.Image.new("RGBA", image.size, "white")
    return modules.Image.alpha_composite(white, image.convert("RGBA")).convert("RGB")  # type: ignore[no-any-return]


def _high_byte(image: Image) -> Image:
    """Eight bits of sixteen, where PIL would clip; of colour PIL itself keeps the high byte."""
    bits = getattr(image, "tag_v2", {}).get(BITS_PER_SAMPLE, (16,))[0]  # TIFF has 12 as well
    values = np.asarray(image).astype(np.int64) >> (bits - 8)
    return _pillow().Image.fromarray(values.astype(np.uint8))  # type: ignore[no-any-return]


def _upright(picture: Image, file: Image) -> Image:
    """Turned as the camera was held, without the notes of the file. Where the note is damaged the picture stays as it lies."""
    try:
        orientation = file.getexif().get(ORIENTATION, 1)
    except Exception:  # the note is a file in the file: its reader raises anything too
        orientation = 1
    picture = picture.copy()
    picture.info.clear()
    picture.getexif()[ORIENTATION] = orientation
    return _pillow().ImageOps.exif_transpose(picture)  # type: ignore[no-any-return]


def _check_header(image: Any, name: str) -> None:
    """What the header tells before anything is decoded. The second picture of an MPO is a camera's preview."""
    width, height = image.size
    got = f"{name} of {width} x {height}"
    require(width * height <= PIXELS, "path", f"hold at most {PIXELS:,} pixels", got, "make it smaller first")
    frames = 1 if image.format == "MPO" else getattr(image, "n_frames", 1)
    require(frames == 1, "path", "hold a single picture", f"{name} with {frames} frames or pages", "save one of them as PNG")


def _refusal(error: Exception, name: str) -> InputError:
    """What is wrong with the file, in one line."""
    modules = _pillow()
    reason = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, modules.UnidentifiedImageError):
        rule, reason, remedy = f"hold a picture ({', '.join(FORMATS)})", "no such format", "convert it first"
    elif isinstance(error, modules.Image.DecompressionBombError):
        rule, remedy = f"hold at most {PIXELS:,} pixels", "make it smaller first"
    else:
        rule, remedy = "hold a whole picture", "copy or export it again"
    return InputError(f"path must {rule}, got {name} ({reason}): {remedy}")


def _content(path: Path, name: str) -> bytes:
    """The bytes of a file; never of a pipe or a device, which may not end."""
    try:
        found = _status(path)
        if found is None:
            rule, remedy = "name a file", "check the name and the folder"
            raise InputError(f"path must {rule}, got {name}, which does not exist: {remedy}")
        require(not stat.S_ISDIR(found.st_mode), "path", "name a file", f"{name}, a folder", "name one picture in it")
        require(stat.S_ISREG(found.st_mode), "path", "name a file", f"{name}, a device or pipe", "save what comes from it first")
        got = f"{name} of {found.st_size:,}"
        require(found.st_size <= BYTES, "path", f"name a file of at most {BYTES:,} bytes", got, "make it smaller first")
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"path must name a file that can be read, got {name} ({error.strerror}): check its rights") from error


def _status(path: Path) -> os.stat_result | None:
    """What the system says of a path; None where nothing is there, as under a name that can be none."""
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_resize(value: object) -> bool:
    if isinstance(value, tuple):
        return len(value) == 2 and all(map(_is_size, value))
    return value is None or value == 0 or _is_size(value)


@contextmanager
def _quiet() -> Iterator[None]:
    """No warnings from PIL: a damaged note in a file is not the caller's business, and what matters is raised."""
    with _one_reader, warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        yield


def _pillow() -> Any:
    """Pillow, loaded when it is needed."""
    try:
        import PIL.Image
        import PIL.ImageFile
        import PIL.ImageOps
    except ImportError as missing:
        raise InputError("Pillow must be installed to read pictures, got none: pip install pillow") from missing
    return PIL
