"""A data set: images in [0, 1] with labels by position, and the checksum of the files that they came from."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from operator import index
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.data import Dataset

from drq.errors import require
from drq.images import View
from drq.system.files import digest


class Reader(Protocol):
    """Finds images and labels by position. It can be pickled, so that several processes may read."""

    def __len__(self) -> int:
        """How many images there are."""

    def read(self, positions: list[int]) -> tuple[Tensor, Tensor]:
        """Images (N, ...) as float32 in [0, 1], and labels (N,)."""

    @property
    def sha256(self) -> str | None:
        """The checksum of the content; None where it is unknown."""


@dataclass(frozen=True, eq=False)
class Data(Dataset[tuple[Tensor, int]]):
    """Images (C, H, W) in [0, 1] and labels: a torch Dataset that says what it is.

    Args:
        name: under which it was loaded.
        reader: finds images and labels.
        classes: what each label stands for, where that is known.
        subset: the logits that count, sorted, where a data set shows only some of a model's classes; None for all.
        note: what a reader of results should know about it; "" when it is just what its name says.
        count: how many images it has, the first of the reader's; None for all.
    """

    name: str
    reader: Reader = field(repr=False)
    classes: tuple[str, ...] | None = field(default=None, repr=False)
    subset: tuple[int, ...] | None = field(default=None, repr=False)
    note: str = ""
    count: int | None = None

    @cached_property
    def sha256(self) -> str | None:
        """The checksum of the file behind it: see :class:`Files` where there are several. None for a Dataset of the caller."""
        return self.reader.sha256

    def __len__(self) -> int:
        return len(self.reader) if self.count is None else self.count

    def __getitem__(self, position: int) -> tuple[Tensor, int]:
        if not -len(self) <= index(position) < len(self):
            raise IndexError(f"position {position} of {len(self)}")  # which also ends a loop over the data
        return self.__getitems__([position])[0]

    def __getitems__(self, positions: Sequence[int]) -> list[tuple[Tensor, int]]:
        """Several items at once, as a DataLoader asks for them."""
        x, y = self.batch(positions)
        return list(zip(x, y.tolist(), strict=True))

    def batch(self, indices: Sequence[int] | Tensor) -> tuple[Tensor, Tensor]:
        """Images (N, ...) and labels (N,) at these positions."""
        if isinstance(indices, Tensor):
            whole = indices.dim() == 1 and indices.dtype != torch.bool and not indices.is_floating_point()
            got = f"{indices.dtype} of shape {tuple(indices.shape)}"
            require(whole, "indices", "be whole numbers (N,)", got, "mask.nonzero()[:, 0] has those of a mask")
        positions = [index(each) for each in (indices.tolist() if isinstance(indices, Tensor) else indices)]
        require(len(positions) > 0, "indices", "name at least one image", "none", "leave empty batches out")
        for each in positions:
            require(-len(self) <= each < len(self), "indices", f"lie below {len(self)}", each, f"{self.name} has no more")
        return self.reader.read([each % len(self) for each in positions])

    def as_json(self) -> dict[str, Any]:
        """A description as JSON."""
        known = {"name": self.name, "images": len(self), "shape": list(self[0][0].shape), "classes": self.classes}
        return known | {"subset": self.subset, "sha256": self.sha256, "note": self.note}

    def first(self, limit: int | None) -> Data:
        """The same data, or only so many images of it."""
        if limit is None:
            return self
        whole = isinstance(limit, int) and not isinstance(limit, bool)
        rule = f"be a whole number from 1 to {len(self)}, the size of {self.name}"
        require(whole and 1 <= limit <= len(self), "limit", rule, repr(limit), "None takes all")
        return Data(**{each.name: getattr(self, each.name) for each in fields(Data)} | {"count": limit})


class Relabelled(Data):
    """Data with labels that count within its subset, for a model that was cut down to those logits.

    >>> cut = Relabelled(Data("pets", InMemory(torch.rand(2, 3, 4, 4), torch.tensor([7, 3])), subset=(3, 7)))
    >>> cut[0][1], cut[1][1], cut.subset
    (1, 0, None)
    """

    def __init__(self, data: Data) -> None:
        fits = isinstance(data, Data) and data.subset is not None
        require(fits, "data", "have a subset", f"{data}", "imagenet-a and imagenet-r have one; others need no new labels")
        subset = data.subset or ()
        classes = None if data.classes is None else tuple(data.classes[each] for each in subset)
        super().__init__(data.name, SubsetLabels(data.reader, subset), classes, None, data.note, data.count)


@dataclass(frozen=True)
class Files:
    """Files below a folder, told from others by one sha256.

    A single file has its own. Several have that of the lines ``sha256  name`` in the order of names, as ``sha256sum`` writes
    them; with ``quick``, for many large ones, of the lines ``size  name``.
    """

    folder: Path
    names: tuple[str, ...]
    quick: bool = False

    @property
    def sha256(self) -> str:
        """One digest of all."""
        if len(self.names) == 1 and not self.quick:
            return digest(self.folder / self.names[0])
        lines = (f"{self._mark(self.folder / name)}  {name}\n" for name in sorted(self.names))
        return hashlib.sha256("".join(lines).encode(errors="surrogateescape")).hexdigest()

    def _mark(self, path: Path) -> str:
        return str(path.stat().st_size) if self.quick else digest(path)


@dataclass(frozen=True, eq=False)
class InMemory:
    """A reader of images in memory, as bytes or as floats in [0, 1]."""

    x: Tensor  # (N, C, H, W)
    y: Tensor  # (N,)
    files: Files | None = None

    def __len__(self) -> int:
        return len(self.x)

    def read(self, positions: list[int]) -> tuple[Tensor, Tensor]:
        """Copies, so that nobody changes the data."""
        return as_floats(self.x[positions]), self.y[positions]

    @property
    def sha256(self) -> str:
        """Of the files, else of the values."""
        if self.files is not None:
            return self.files.sha256
        return hashlib.sha256(self.x.numpy().tobytes() + self.y.numpy().tobytes()).hexdigest()


@dataclass(frozen=True, eq=False)
class SubsetLabels:
    """A reader whose labels are positions in a sorted subset of another's."""

    reader: Reader
    subset: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.reader)

    def read(self, positions: list[int]) -> tuple[Tensor, Tensor]:
        """The same images, with other labels."""
        x, y = self.reader.read(positions)
        subset = torch.tensor(self.subset)
        place = torch.searchsorted(subset, y).clamp(max=len(subset) - 1)
        require(bool((subset[place] == y).all()), "labels", "be in the subset", y.tolist(), "the subset must be sorted and whole")
        return x, place

    @property
    def sha256(self) -> str | None:
        """That of the other: it is the same data."""
        return self.reader.sha256


def as_floats(x: Tensor) -> Tensor:
    """Bytes as k/255, floats as they are."""
    return x.float() / 255 if x.dtype == torch.uint8 else x


def check_view(view: View | None, shape: tuple[int, ...]) -> None:
    """A view of images that have their size already must leave it."""
    if view is not None:
        same = (view.channels, view.height, view.width) == shape and view.resized(*shape[1:]) == shape[1:]
        require(same, "view", f"be None or leave images of shape {shape} as they are", view, "it is for pictures in files")
