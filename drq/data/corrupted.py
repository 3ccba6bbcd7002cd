"""CIFAR-10-C, CIFAR-100-C and ImageNet-C: the published files, or the same corruptions made on the fly."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from drq.data.cifar import CIFAR10, CIFAR100, LAYOUTS, SHAPE, check_labels, class_names, load_cifar
from drq.data.dataset import Data, Files, Reader, as_floats, check_view
from drq.data.imagenet import IMAGENET, VALIDATION, load_validation, of_folder
from drq.data.known import KnownData
from drq.data.places import DataRequest, Origin
from drq.errors import InputError, MissingError, require
from drq.images import View
from drq.registry import CORRUPTIONS
from drq.system.downloads import RemoteFile
from drq.threats.corruptions import Corruption
from drq.threats.corruptions.constants import SEVERITIES
from drq.threats.corruptions.ice import PHOTOGRAPHS, digest

logger = logging.getLogger("drq")

EXTRA = ("speckle_noise", "gaussian_blur", "spatter", "saturate")  # published for tuning, beyond the fifteen
VIEW = View(224, 224)  # the published pictures have this size already
ZENODO = "https://zenodo.org/records"
ARRAYS = {
    "cifar10-c": Origin(
        ("CIFAR-10-C",),
        archive=RemoteFile(
            f"{ZENODO}/2535967/files/CIFAR-10-C.tar?download=1", "56bf5dcef84df0e2308c6dcbcbbd8499", 2_918_471_680
        ),
    ),
    "cifar100-c": Origin(
        ("CIFAR-100-C",),
        archive=RemoteFile(f"{ZENODO}/3555552/files/CIFAR-100-C.tar?download=1", "11f0ed0f1191edbf9fa23466ae6021d3"),
    ),
}
FAMILIES = ("", "noise/", "blur/", "weather/", "digital/", "extra/")  # folders that the published archives may add
PICTURES = Origin(("imagenet-c", "ImageNet-C"), f"{ZENODO}/2235448 (by family, as weather.tar)")
FROST = Origin(("frost",), "ImageNet-C/create_c of github.com/hendrycks/robustness")  # photographs of ice, which may be absent


@dataclass(frozen=True)
class CorruptedName:
    """The name of a corrupted data set, in its parts."""

    request: DataRequest
    family: str  # as cifar10-c
    kind: str
    severity: int

    @property
    def clean(self) -> DataRequest:
        """The data that was corrupted."""
        return replace(self.request, name=self.family.removesuffix("-c"), download=False)


def parse(request: DataRequest) -> CorruptedName:
    """The parts of a name FAMILY/KIND or FAMILY/KIND/SEVERITY."""
    family, kinds = request.name.split("/")[0], (*CORRUPTIONS, *EXTRA)
    remedy = f"as in {family}/fog/3; severity 5 where it is left out"
    require(len(request.parts) in (1, 2), "name", f"be {family}/KIND or {family}/KIND/SEVERITY", repr(request.name), remedy)
    kind, *rest = request.parts
    near = get_close_matches(kind, kinds, 1, 0.0)[0]
    require(kind in kinds, "name", f"have a kind among {', '.join(kinds)}", repr(request.name), f"the nearest is {near!r}")
    severity = SEVERITIES[-1] if request.severity is None else request.severity
    if rest:
        in_range = rest[0] in map(str, SEVERITIES)
        require(in_range, "name", "end in a severity from 1 to 5", repr(request.name), remedy)
        severity = int(rest[0])
        agree = request.severity in (None, severity)
        require(agree, "severity", f"agree with the name, {request.name}", repr(request.severity), "leave one of the two out")
    whole = type(severity) is int and severity in SEVERITIES
    require(whole, "severity", "be a whole number from 1 to 5", repr(severity), remedy)
    return CorruptedName(replace(request, name=f"{family}/{kind}/{severity}"), family, kind, severity)


def load_arrays(request: DataRequest) -> Data:
    """CIFAR-10-C or CIFAR-100-C."""
    parsed = parse(request)
    check_view(request.view, SHAPE)
    origin, needed = ARRAYS[parsed.family], (f"{parsed.kind}.npy", "labels.npy")
    layout = LAYOUTS[parsed.clean.name]
    folder = origin.get(parsed.request, *needed) if request.download else origin.find(*needed)
    if folder is None:
        clean = load_cifar(parsed.clean) if layout.origin.find(*layout.files["test"]) else None
        return _made(parsed, clean, origin, *needed)
    home = layout.origin.find(layout.names[0])
    classes = None if home is None else class_names(home, layout)
    return Data(parsed.request.name, _stored(folder, needed, parsed.severity, layout.classes), classes)


def load_pictures(request: DataRequest) -> Data:
    """ImageNet-C."""
    parsed = parse(request)
    places = [f"{family}{parsed.kind}/{parsed.severity}" for family in FAMILIES]
    found = next((home / each for each in places if (home := PICTURES.find(each)) is not None), None)
    if found is None:
        clean = load_validation(parsed.clean) if VALIDATION.find() else None
        return _made(parsed, clean, PICTURES, places[0])
    return of_folder(parsed.request.name, found, request.view or VIEW)


def _made(parsed: CorruptedName, clean: Data | None, origin: Origin, *needed: str) -> Data:
    """The corruption of clean data, where the published files are missing: the same in kind, not to the last bit."""
    if clean is None or parsed.kind not in CORRUPTIONS:
        hint = f"; where {parsed.clean.name} is present, it is made on the fly" if parsed.kind in CORRUPTIONS else ""
        raise MissingError(f"{origin.missing(parsed.request.name, *needed)}{hint}")
    absent = origin.absent(*needed)
    photographs = FROST.find(*PHOTOGRAPHS) if parsed.kind == "frost" else None
    ice = "" if parsed.kind != "frost" else f", its ice {'drawn' if photographs is None else 'from the published photographs'}"
    note = f"made on the fly from {clean.name}{ice}, not to the last bit as published: {absent} is missing"
    _tell(parsed.request.name, note)
    note = f"{note}; {clean.note}" if clean.note else note
    corruption = Corruption(parsed.kind, parsed.severity, photographs=photographs)
    return Data(parsed.request.name, CorruptedOnTheFly(clean.reader, corruption), clean.classes, note=note)


@cache
def _tell(name: str, note: str) -> None:
    """Once: an evaluation opens the same data for every model."""
    logger.warning("%s is %s", name, note)


@dataclass(frozen=True, eq=False)
class CorruptedOnTheFly:
    """A reader that corrupts the images of another, and rounds them as a file of bytes would."""

    clean: Reader
    corruption: Corruption

    def __len__(self) -> int:
        return len(self.clean)

    def read(self, positions: list[int]) -> tuple[Tensor, Tensor]:
        """Random numbers belong to the position, so that an image is always corrupted alike."""
        x, y = self.clean.read(positions)
        x = self.corruption(None, x, None, index=torch.tensor(positions))
        return (255 * x).round() / 255, y

    @property
    def sha256(self) -> str | None:
        """That of the clean data, and of the photographs of frost where they are used."""
        photographs = self.corruption.photographs
        if photographs is None or self.clean.sha256 is None:
            return self.clean.sha256
        return hashlib.sha256(f"{self.clean.sha256} {digest(Path(photographs))}".encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class PublishedArray:
    """A reader of one severity in a published array, which has all five one after the other; only what is asked for is read."""

    files: Files
    start: int  # its first row
    y: Tensor  # (N,)

    def __len__(self) -> int:
        return len(self.y)

    def read(self, positions: list[int]) -> tuple[Tensor, Tensor]:
        """Opened anew each time: that is quick, and an open file cannot go to another process."""
        rows = _array(self.files.folder / self.files.names[0])[[self.start + each for each in positions]]
        return as_floats(torch.tensor(rows).permute(0, 3, 1, 2).contiguous()), self.y[positions]

    @property
    def sha256(self) -> str:
        """Of the array and its labels."""
        return self.files.sha256


def _stored(folder: Path, names: tuple[str, str], severity: int, classes: int) -> PublishedArray:
    """The part of an array that belongs to one severity: the published ones have 10 000 images in each."""
    images, labels = (_array(folder / name) for name in names)
    rule, remedy = "be an array (N, 32, 32, 3) of bytes, with N a multiple of 5", "remove it and download it anew"
    fits = images.dtype == np.uint8 and images.shape[1:] == (32, 32, 3) and len(images) > 0 and len(images) % 5 == 0
    require(fits, str(folder / names[0]), rule, f"{images.dtype} of shape {images.shape}", remedy)
    y = check_labels(np.asarray(labels), len(images), classes, str(folder / names[1]))
    count = len(images) // 5
    start = (severity - 1) * count
    return PublishedArray(Files(folder, names), start, y[start : start + count])


def _array(path: Path) -> np.ndarray[Any, np.dtype[Any]]:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]
    except (ValueError, EOFError, OSError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{path} must be a whole array of numpy, got {reason}: remove it and download it anew") from error


_of_arrays = partial(KnownData, open=load_arrays, needed=("labels.npy",), choice="KIND/SEVERITY")
_SUMMARY = "made on the fly where they are missing"
CIFAR10_C = _of_arrays(f"corrupted test images of cifar10, {_SUMMARY}", origin=ARRAYS["cifar10-c"], made_of=CIFAR10)
CIFAR100_C = _of_arrays(f"corrupted test images of cifar100, {_SUMMARY}", origin=ARRAYS["cifar100-c"], made_of=CIFAR100)
IMAGENET_C = KnownData(
    f"corrupted images of imagenet, {_SUMMARY}",
    load_pictures,
    ("test", "val"),
    PICTURES,
    choice="KIND/SEVERITY",
    made_of=IMAGENET,
)
