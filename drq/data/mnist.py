"""MNIST and Fashion-MNIST: idx files, gzipped or not, where torchvision puts them."""

from __future__ import annotations

import gzip
import hashlib
import math
import struct
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from drq.data.dataset import Data, Files, InMemory, check_view
from drq.data.known import BOTH, KnownData
from drq.data.places import DataRequest, Origin
from drq.errors import InputError, one_line, require
from drq.system.downloads import RemoteFile

SHAPE = (1, 28, 28)
COUNTS = {"train": 60_000, "test": 10_000}
FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
BYTES = 8  # what idx calls values of one unsigned byte
GZIP = b"\x1f\x8b"  # what gzipped files begin with, and no idx file does
REMEDY = "remove it and download it anew"


class Layout(NamedTuple):
    """Where the files come from, and what is in them."""

    origin: Origin
    classes: tuple[str, ...]
    published: dict[str, str]  # md5 of the files, not gzipped


def _layout(folder: str, address: str, classes: tuple[str, ...], gzipped: tuple[str, ...], plain: tuple[str, ...]) -> Layout:
    """A layout from the md5 of the four files, gzipped and not: images and labels of training, then those of the test."""
    names = [*FILES["train"], *FILES["test"]]
    sources = tuple(RemoteFile(f"{address}/{name}.gz", md5) for name, md5 in zip(names, gzipped, strict=True))
    origin = Origin((f"{folder}/raw", folder), gzipped=sources)
    return Layout(origin, classes, dict(zip(names, plain, strict=True)))


LAYOUTS = {
    "mnist": _layout(
        "MNIST",
        "https://ossci-datasets.s3.amazonaws.com/mnist",
        tuple("0123456789"),
        (
            "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "d53e105ee54ea40749a09fcbcd1e9432",
            "9fb629c4189551a2d022fa330f9573f3",
            "ec29112dd5afa0611ce80d1b7f02629c",
        ),
        (
            "6bbc9ace898e44ae57da46a324031adb",
            "a25bea736e30d166cdddb491f175f624",
            "2646ac647ad5339dbf082846283269ea",
            "27ae3e4e09519cfbb04c329615203637",
        ),
    ),
    "fashion-mnist": _layout(
        "FashionMNIST",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
        ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
        (
            "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "25c81989df183df01b3e8a0aad5dffbe",
            "bef4ecab320f06d8554ea6380940ec79",
            "bb300cfdad3c16e7a12a480ee83cd310",
        ),
        (
            "f4a8712d7a061bf5bd6d2ca38dc4d50a",
            "9018921c3c673c538a1fc5bad174d6f9",
            "8181f5470baa50b63fa0f6fddb340f0a",
            "15d484375f8d13e6eb1aabb0c3f46965",
        ),
    ),
}


def load_mnist(request: DataRequest) -> Data:
    """The images of one split, in the order of their file."""
    layout, names, count = LAYOUTS[request.name], FILES[request.split], COUNTS[request.split]
    check_view(request.view, SHAPE)
    folder = layout.origin.get(request, *names)
    images, labels = paths = [layout.origin.within(folder, name) for name in names]
    x, image_md5 = read_idx(images, (count, *SHAPE[1:]))
    y, label_md5 = read_idx(labels, (count,))
    require(y.max() < len(layout.classes), f"labels in {labels}", f"be below {len(layout.classes)}", y.max(), REMEDY)
    found = zip(paths, names, (image_md5, label_md5), strict=True)
    others = [path.name for path, name, md5 in found if md5 != layout.published[name]]
    note = f"read from {', '.join(others)}, not as published" if others else ""
    reader = InMemory(torch.tensor(x)[:, None], torch.tensor(y).long(), Files(folder, tuple(path.name for path in paths)))
    return Data(request.name, reader, layout.classes, note=note)


def read_idx(path: Path, shape: tuple[int, ...]) -> tuple[np.ndarray[tuple[int, ...], np.dtype[np.uint8]], str]:
    """The bytes in an idx file of this shape, and the md5 of the file as it is when not gzipped."""
    begins, size = struct.pack(f">HBB{len(shape)}I", 0, BYTES, len(shape), *shape), math.prod(shape)
    rule = f"be an idx file of bytes of shape {shape}"
    try:
        with path.open("rb") as file:
            packed = file.read(len(GZIP)) == GZIP
        with gzip.open(path) if packed else path.open("rb") as file:
            header = file.read(len(begins))
            require(header == begins, str(path), rule, _described(header), "put the published file of this split there")
            values = file.read(size + 1)  # no more, whatever a gzipped file would still become
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{path} must be a whole gzipped file, got a damaged one ({one_line(error)}): {REMEDY}") from error
    got = f"{len(values)} of {size} values" if len(values) < size else f"more than its {size} values"
    require(len(values) == size, str(path), rule, got, REMEDY)
    return np.frombuffer(values, np.uint8).reshape(shape), hashlib.md5(header + values).hexdigest()


def _described(header: bytes) -> str:
    """What the first bytes of a file say that it is."""
    known = len(header) >= 8 and header[:2] == b"\0\0" and 0 < header[3] <= len(header) // 4 - 1
    if not known:
        return f"one that begins with {header.hex()}" if header else "an empty one"
    shape = struct.unpack_from(f">{header[3]}I", header, 4)
    return f"one of shape {shape}" if header[2] == BYTES else f"one of other values, of type {header[2]}"


MNIST, FASHION_MNIST = (
    KnownData(f"70 000 {what} of 28 x 28, 10 classes", load_mnist, BOTH, LAYOUTS[name].origin, FILES["test"])
    for name, what in {"mnist": "handwritten digits", "fashion-mnist": "pictures of clothes"}.items()
)
