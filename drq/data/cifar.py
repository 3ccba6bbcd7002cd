"""CIFAR-10 and CIFAR-100, in their files for Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from drq.data.dataset import Data, Files, InMemory, check_view
from drq.data.known import BOTH, KnownData
from drq.data.pickles import read_pickle
from drq.data.places import DataRequest, Origin
from drq.errors import require
from drq.system.downloads import RemoteFile
from drq.system.files import digest

SHAPE = (3, 32, 32)


class Layout(NamedTuple):
    """What the files are called, and what is in them."""

    origin: Origin
    files: dict[str, tuple[str, ...]]  # by split
    labels: str  # the key of the labels
    names: tuple[str, str]  # the file with the names of classes, and their key in it
    classes: int
    published: dict[str, str]  # md5 of files


LAYOUTS = {
    "cifar10": Layout(
        Origin(
            ("cifar-10-batches-py",),
            archive=RemoteFile(
                "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a", 170_498_071
            ),
        ),
        {"train": tuple(f"data_batch_{number}" for number in range(1, 6)), "test": ("test_batch",)},
        "labels",
        ("batches.meta", "label_names"),
        10,
        {
            "data_batch_1": "c99cafc152244af753f735de768cd75f",
            "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
            "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
            "data_batch_4": "634d18415352ddfa80567beed471001a",
            "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
            "test_batch": "40351d587109b95175f43aff81a1287e",
        },
    ),
    "cifar100": Layout(
        Origin(
            ("cifar-100-python",),
            archive=RemoteFile(
                "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85", 169_001_437
            ),
        ),
        {"train": ("train",), "test": ("test",)},
        "fine_labels",
        ("meta", "fine_label_names"),
        100,
        {"train": "16019d7e3df5f24257cddd939b257f8d", "test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
    ),
}


def load_cifar(request: DataRequest) -> Data:
    """The images of one split, in the order of their files."""
    layout = LAYOUTS[request.name]
    check_view(request.view, SHAPE)
    names = layout.files[request.split]
    folder = layout.origin.get(request, *names)
    batches = [_batch(folder / name, layout) for name in names]
    x, y = (torch.cat(each) for each in zip(*batches, strict=True))
    others = [name for name in names if digest(folder / name, "md5") != layout.published[name]]
    note = f"read from {', '.join(others)}, not as published" if others else ""
    return Data(request.name, InMemory(x, y, Files(folder, names)), class_names(folder, layout), note=note)


def _batch(path: Path, layout: Layout) -> tuple[Tensor, Tensor]:
    """Images (N, 3, 32, 32) as bytes, and labels (N,)."""
    content = read_pickle(path)
    x, remedy = content.get("data"), "remove it and download it anew"
    rows = isinstance(x, np.ndarray) and x.dtype == np.uint8 and x.shape[1:] == (3072,) and len(x) > 0
    require(rows, f"data in {path}", "be an array (N, 3072) of bytes", _described(x), remedy)
    images = torch.tensor(x).reshape(-1, *SHAPE)
    labels = check_labels(content.get(layout.labels), len(images), layout.classes, f"{layout.labels} in {path}")
    return images, labels


def check_labels(values: Any, count: int, classes: int, where: str) -> Tensor:
    """One label below ``classes`` for each of ``count`` images."""
    whole = isinstance(values, list) and all(type(each) is int for each in values)
    whole = whole or (isinstance(values, np.ndarray) and values.dtype.kind in "iu" and values.ndim == 1)
    y = np.array(values if whole else [], dtype=np.int64)
    fits = whole and len(y) == count and 0 <= y.min() <= y.max() < classes
    require(fits, where, f"be {count} whole numbers below {classes}", _described(values), "remove the file and download it anew")
    return torch.from_numpy(y)


def _described(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} of shape {value.shape}"
    return f"a list of {len(value)}" if isinstance(value, list) else type(value).__name__


def class_names(folder: Path, layout: Layout) -> tuple[str, ...] | None:
    """What the labels stand for; None where the file with the names is missing."""
    file, key = layout.names
    names = read_pickle(folder / file).get(key) if (folder / file).exists() else None
    fits = isinstance(names, list) and len(names) == layout.classes
    return tuple(str(each) for each in names) if fits and names else None


CIFAR10, CIFAR100 = (
    KnownData(f"60 000 photographs of 32 x 32, {each.classes} classes", load_cifar, BOTH, each.origin, each.files["test"])
    for each in LAYOUTS.values()
)
