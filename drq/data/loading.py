"""Load a data set by its name, and list all of them."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

from torch.utils.data import Dataset

from drq.data.dataset import Data
from drq.data.folders import PREFIX
from drq.data.given import load_given
from drq.data.known import KnownData
from drq.data.places import DataRequest
from drq.errors import InputError, require
from drq.images import View
from drq.registry import DATA
from drq.system.progress import Bar, Tell


class Entry(NamedTuple):
    """A data set, described."""

    name: str  # as it is asked for; words in capitals stand for a choice
    summary: str
    expected: str  # what it is read from
    present: bool  # whether that is there now


KINDS: Mapping[str, KnownData] = DATA  # those that end in a slash or a colon are families


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
    _check(name, split, kind.splits, None if kind.made_of else severity)
    try:
        data = kind.open(DataRequest(name, split, severity, view, download, tell or Bar(f"fetching {name}")))
    except OSError as error:
        raise InputError(
            f"name must be a data set that can be read, got {name!r} ({error}): check the rights of its files"
        ) from error
    return data.first(limit)


def _with_split(name: str, split: str) -> tuple[str, str]:
    """The name alone, and the split, which may follow it after a colon. Folders have a colon of their own, and no splits."""
    alone, colon, named = name.partition(":")
    if not colon or name.startswith(PREFIX):
        return name, split
    agreed = split in ("test", named)
    require(agreed, "split", f"be left out, or be that of {name!r}", repr(split), "say it in one place")
    return alone, named


def _kind(name: str) -> KnownData:
    """The kind that a name belongs to."""
    known = next((each for each in KINDS if name == each.rstrip("/") or (each[-1] in "/:" and name.startswith(each))), None)
    if known is None:
        near = get_close_matches(name.split("/")[0], KINDS, 1, 0.0)[0]
        names = ", ".join(map(pattern, KINDS))
        raise InputError(f"name must be one of {names}, got {name!r}: the nearest is {pattern(near)}")
    return KINDS[known]


def pattern(name: str) -> str:
    """A name as it is asked for, with words in capitals for a choice."""
    return name + KINDS[name].choice


def _check(name: str, split: str, splits: tuple[str, ...], severity: int | None) -> None:
    """What not every data set can be asked for."""
    require(split in splits, "split", f"be one of {', '.join(splits)} for {name}", repr(split), "the others do not exist")
    require(severity is None, "severity", f"be None for {name}", repr(severity), "only corruptions have one, as cifar10-c/fog")


def list() -> builtins.list[Entry]:
    """Every data set there is.

    >>> [entry.name for entry in list()][:3]
    ['digits', 'cifar10', 'cifar100']
    """
    return [Entry(pattern(name), kind.summary, kind.expected, kind.present) for name, kind in KINDS.items()]
