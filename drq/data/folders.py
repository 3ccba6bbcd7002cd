"""Pictures in folders, one folder a class."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from drq.data.dataset import Data, Files
from drq.data.known import KnownData
from drq.data.places import DataRequest
from drq.errors import require
from drq.images import View, pixels, read
from drq.system.files import data_folder

ENDINGS = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif", ".ppm"}
PREFIX = "folder:"


@dataclass(frozen=True, eq=False)
class Pictures:
    """A reader of pictures, each decoded when it is asked for."""

    files: Files
    y: Tensor  # (N,)
    view: View | None
    shape: tuple[int, ...]  # of every input

    def __len__(self) -> int:
        return len(self.files.names)

    def read(self, positions: list[int]) -> tuple[Tensor, Tensor]:
        """Decode these pictures."""
        return torch.stack([self._input(self.files.names[each]) for each in positions]), self.y[positions]

    def _input(self, name: str) -> Tensor:
        x = _input(self.files.folder / name, self.view)
        got = f"{name} of shape {tuple(x.shape)} beside {self.shape}"
        require(
            tuple(x.shape) == self.shape,
            "view",
            "be given where pictures differ in size",
            got,
            "drq.images.View(224, 224) is usual",
        )
        return x

    @property
    def sha256(self) -> str:
        """Of the names and sizes of all pictures."""
        return self.files.sha256


def _input(path: Path, view: View | None) -> Tensor:
    return pixels(read(path)) if view is None else view(read(path))


def first_shape(files: Files, view: View | None) -> tuple[int, ...]:
    """The shape that the first picture becomes, and so should all others."""
    return tuple(_input(files.folder / files.names[0], view).shape)


def class_folders(folder: Path) -> dict[str, list[str]]:
    """The pictures of every class, by name: its folder, and what is in it."""
    classes = sorted(each.name for each in folder.iterdir() if each.is_dir() and not each.name.startswith("."))
    remedy = "put the pictures of each class in a folder of its own"
    require(len(classes) > 0, str(folder), "have one folder a class", "none", remedy)
    found = {name: sorted(each.name for each in (folder / name).iterdir() if _is_picture(each)) for name in classes}
    empty = [name for name, pictures in found.items() if not pictures]
    rule = f"have pictures ({', '.join(sorted(ENDINGS))}) in every folder"
    require(not empty, str(folder), rule, f"none in {', '.join(empty[:3])}", "remove empty folders")
    return found


def _is_picture(path: Path) -> bool:
    return path.suffix.lower() in ENDINGS and not path.name.startswith(".")


def pictures(folder: Path, found: dict[str, list[str]], labels: dict[str, int], view: View | None) -> Pictures:
    """A reader that takes turns: the first picture of every class, then the second, so that a limit keeps the classes even."""
    order = sorted((turn, name) for name, each in found.items() for turn in range(len(each)))
    files = Files(folder, tuple(f"{name}/{found[name][turn]}" for turn, name in order), quick=True)
    return Pictures(files, torch.tensor([labels[name] for _, name in order]), view, first_shape(files, view))


def load_folder(request: DataRequest) -> Data:
    """Any folder of pictures: below the data folder, else where the program runs."""
    name = request.name.removeprefix(PREFIX)
    places = (data_folder() / name, Path(name))
    folder = next((each for each in places if name and each.is_dir()), None)
    remedy = f"put it in {data_folder()}, or set DRQ_DATA to the folder that has it"
    require(folder is not None, "name", "be folder:NAME of a folder that is present", repr(request.name), remedy)
    assert folder is not None
    found = class_folders(folder)
    labels = {name: position for position, name in enumerate(found)}
    return Data(request.name, pictures(folder, found, labels, request.view), tuple(found))


FOLDER = KnownData("pictures of your own, in one folder a class", load_folder, choice="NAME")
