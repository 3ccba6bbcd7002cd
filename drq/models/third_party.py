"""What other libraries publish: their modules, names and files. A file is looked for here, and downloaded only on request."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import torch
from torch import nn

from drq import errors
from drq.errors import InputError, MissingError, one_line, require
from drq.system.files import digest

Module = TypeVar("Module", bound=nn.Module)


class File(NamedTuple):
    """A file of weights, and how it is recognised."""

    path: Path
    sha256: str


imported = partial(errors.imported, purpose="its models", remedy="pip install 'decision-region-quantification[zoo]'")


def check_name(name: str, names: Collection[str], where: str) -> None:
    """Refuse a name that nobody knows, with the nearest that somebody does."""
    near = get_close_matches(name, names, n=4, cutoff=0.5)
    remedy = f"the nearest are {', '.join(near)}" if near else "check its spelling"
    require(name in names, "name", f"be one of the {len(names)} {where}", repr(name), remedy)


def check_classes(name: str, count: object) -> None:
    """Refuse a model that has nothing to decide between, before its weights are fetched."""
    several = isinstance(count, int) and count >= 2
    remedy = "it yields features or one number; choose a model with a head that classifies"
    require(several, name, "have at least 2 classes", repr(count), remedy)


@contextmanager
def building(name: str, options: Mapping[str, Any]) -> Iterator[None]:
    """Build a model of another library: the random state stays as it was, and what the library refuses is one line."""
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    except InputError:
        raise
    except Exception as error:
        given = ", ".join(f"{key}={value!r}" for key, value in options.items()) or "no options"
        remedy = "check the options, or choose another model"
        raise InputError(f"{name} must be what its library can build, got {given} ({one_line(error)}): {remedy}") from error


def settled(model: Module) -> Module:
    """The model as it is used here: in float32, in evaluation mode, its weights fixed."""
    return model.float().eval().requires_grad_(False)


def absent(name: str, what: str, place: object) -> MissingError:
    """The error for a file that is not here, where nothing may be downloaded."""
    remedy = "download=True (--download) fetches what is missing"
    return MissingError(f"{name} must have {what} on this machine, got none in {place}: {remedy}")


def undelivered(name: str, source: str, error: BaseException) -> MissingError:
    """The error for a download that failed."""
    remedy = "check the name and the connection, or bring the files into the cache from another machine"
    reason = one_line(error.__cause__ or error)  # the hub's own words go on about its cache
    return MissingError(f"{name} must come from {source}, got '{reason}': {remedy}")


def from_url(name: str, url: str, download: bool) -> File:
    """The file behind an address, in the folder where torch.hub keeps them.

    Its name ends in the first digits of its sha256. They are checked each time, not only after a download.
    """
    file_name = PurePosixPath(urlsplit(url).path).name
    path = Path(torch.hub.get_dir()) / "checkpoints" / file_name
    match = torch.hub.HASH_REGEX.search(file_name)
    digits = match.group(1) if match else ""
    if not path.is_file():
        if not download:
            raise absent(name, file_name, path.parent)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            torch.hub.download_url_to_file(url, str(path), digits or None, progress=False)
        except Exception as error:  # of the network, of the disk, of the checksum
            raise undelivered(name, urlsplit(url).netloc, error) from error
    found = digest(path)
    rule = f"have a sha256 that begins with {digits}"
    require(found.startswith(digits), str(path), rule, found, "remove it, and download=True fetches it anew")
    return File(path, found)


def from_hub(
    name: str, repository: str, files: list[str], complete: Callable[[Path], bool], download: bool, **options: Any
) -> Path:
    """The folder with ``files`` of a repository, which may be patterns, in the cache of the Hugging Face hub.

    The cache answers first, so that what is ``complete`` there needs no network. Whether all of it came, the caller checks.
    """
    hub = imported("huggingface_hub")
    wanted = {"allow_patterns": files, **options}
    try:
        folder = Path(hub.snapshot_download(repository, local_files_only=True, **wanted))
        if not download or complete(folder):
            return folder
    except Exception as error:  # nothing here, or a name that no repository can have
        if not download:
            raise absent(name, files[0], "the cache of the Hugging Face hub") from error
    try:
        return Path(hub.snapshot_download(repository, local_files_only=False, **wanted))
    except Exception as error:  # the hub's own errors, and those of its HTTP client, which has changed twice
        raise undelivered(name, "the Hugging Face hub", error) from error
