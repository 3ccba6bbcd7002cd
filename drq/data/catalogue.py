"""What there is: every data set by its name, with one line on it, and whether it is present."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from difflib import get_close_matches
from importlib.util import find_spec
from typing import Any, NamedTuple

from torch.utils.data import Dataset

from drq.data.cifar import LAYOUTS, load_cifar
from drq.data.corrupted import ARRAYS, PICTURES, load_arrays, load_pictures
from drq.data.dataset import Data
from drq.data.digits import load_digits
from drq.data.folders import PREFIX, load_folder
from drq.data.given import load_given
from drq.data.imagenet import VALIDATION, VARIANTS, load_validation, load_variant
from drq.data.places import Asked, Origin
from drq.data.plane import load_gaussians
from drq.errors import InputError, require
from drq.images import View
from drq.system.files import data_folder
from drq.system.progress import Bar, Tell


class Entry(NamedTuple):
    """A data set, described."""

    name: str  # as it is asked for; words in capitals stand for a choice
    summary: str
    expected: str  # what it is read from
    present: bool  # whether that is there now


class Kind(NamedTuple):
    """A data set, or a family of them: what it is called, and how it is opened."""

    pattern: str
    summary: str
    open: Callable[[Asked], Data]
    splits: tuple[str, ...] = ("test",)
    origin: Origin | None = None
    needed: tuple[str, ...] = ()  # in the folder, to be present


BOTH, CORRUPTED = ("train", "test"), "made on the fly where they are missing"
KINDS = {
    "digits": Kind("digits", "1797 digits of 8 x 8, with scikit-learn", load_digits, BOTH),
    "cifar10": Kind(
        "cifar10", "60 000 photographs of 32 x 32, 10 classes", load_cifar, BOTH, LAYOUTS["cifar10"].origin, ("test_batch",)
    ),
    "cifar100": Kind(
        "cifar100", "60 000 photographs of 32 x 32, 100 classes", load_cifar, BOTH, LAYOUTS["cifar100"].origin, ("test",)
    ),
    **{
        f"{name}-c": Kind(
            f"{name}-c/KIND/SEVERITY",
            f"corrupted test images of {name}, {CORRUPTED}",
            load_arrays,
            origin=ARRAYS[f"{name}-c"],
            needed=("labels.npy",),
        )
        for name in LAYOUTS
    },
    "imagenet": Kind("imagenet", "50 000 validation images, 1000 classes", load_validation, ("test", "val"), VALIDATION),
    "imagenet-c": Kind(
        "imagenet-c/KIND/SEVERITY", f"corrupted images of imagenet, {CORRUPTED}", load_pictures, ("test", "val"), PICTURES
    ),
    "imagenet-a": Kind(
        "imagenet-a", "7500 photographs that models get wrong, 200 classes", load_variant, origin=VARIANTS["imagenet-a"]
    ),
    "imagenet-r": Kind(
        "imagenet-r", "30 000 paintings, toys and other renditions, 200 classes", load_variant, origin=VARIANTS["imagenet-r"]
    ),
    "gaussians": Kind("gaussians", "1200 points of two Gaussians in the unit square", load_gaussians, BOTH),
    PREFIX: Kind("folder:NAME", "pictures of your own, in one folder a class", load_folder),
}


def load(
    name: str | Dataset[Any],
    split: str = "test",
    limit: int | None = None,
    *,
    download: bool = False,
    view: View | None = None,
    severity: int | None = None,
    tell: Tell | None = None,
) -> Data:
    """Images in [0, 1] with labels.

    Args:
        name: as :func:`list` has it, or a torch Dataset of (image, label). It may name the split as well: ``cifar10:train``.
        split: "test" or, where there is one, "train".
        limit: only the first so many.
        download: whether what is missing may be fetched from the network.
        view: how pictures in files become inputs; None for what is usual.
        severity: of a corruption, from 1 to 5; the name may say it as well.
        tell: is told how far a download is; None shows a bar.

    >>> images = load("digits", limit=2)
    >>> images[0][0].shape, len(images)
    (torch.Size([1, 8, 8]), 2)
    """
    rule = "be the name of a data set or a torch Dataset"
    require(isinstance(name, str | Dataset), "name", rule, type(name).__name__, "drq.data.list() has the names")
    if not isinstance(name, str):
        _check("a Dataset", split, ("test",), severity)
        return load_given(name, view).first(limit)
    name, split = _with_split(name, split)
    kind = _kind(name)
    _check(name, split, kind.splits, None if kind.open in (load_arrays, load_pictures) else severity)
    try:
        data = kind.open(Asked(name, split, severity, view, download, tell or Bar(f"fetching {name}")))
    except OSError as error:
        raise InputError(
            f"name must be a data set that can be read, got {name!r} ({error}): check the rights of its files"
        ) from error
    return data.first(limit)


def _with_split(name: str, split: str) -> tuple[str, str]:
    """The name alone, and the split, which may stand behind a colon in it. Folders have a colon of their own, and no splits."""
    alone, colon, named = name.partition(":")
    if not colon or name.startswith(PREFIX):
        return name, split
    agreed = split in ("test", named)
    require(agreed, "split", f"be left out, or be that of {name!r}", repr(split), "say it in one place")
    return alone, named


def _kind(name: str) -> Kind:
    """The kind that a name belongs to."""
    first = PREFIX if name.startswith(PREFIX) else name.split("/")[0]
    known = first in KINDS and (first == name or KINDS[first].pattern != first)
    patterns = [each.pattern for each in KINDS.values()]
    near = KINDS[get_close_matches(first, KINDS, 1, 0.0)[0]].pattern
    require(known, "name", f"be one of {', '.join(patterns)}", repr(name), f"the nearest is {near}")
    return KINDS[first]


def _check(name: str, split: str, splits: tuple[str, ...], severity: int | None) -> None:
    """What not every data set can be asked for."""
    require(split in splits, "split", f"be one of {', '.join(splits)} for {name}", repr(split), "the others do not exist")
    require(severity is None, "severity", f"be None for {name}", repr(severity), "only corruptions have one, as cifar10-c/fog")


def list() -> builtins.list[Entry]:
    """Every data set there is.

    >>> [entry.name for entry in list()][:3]
    ['digits', 'cifar10', 'cifar100']
    """
    return [_entry(kind) for kind in KINDS.values()]


def _entry(kind: Kind) -> Entry:
    if kind.origin is not None:
        place = data_folder() / kind.origin.folders[0]
        clean = KINDS.get(kind.pattern.split("-c/")[0], kind)  # what a corruption can be made of
        present = any(each.origin is not None and each.origin.find(*each.needed) for each in (kind, clean))
        return Entry(kind.pattern, kind.summary, str(place), present)
    if kind.open is load_digits:
        return Entry(kind.pattern, kind.summary, "scikit-learn", find_spec("sklearn") is not None)
    if kind.open is load_gaussians:
        return Entry(kind.pattern, kind.summary, "drawn at once", True)
    return Entry(kind.pattern, kind.summary, str(data_folder() / "NAME"), True)
