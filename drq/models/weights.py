"""Weights from files: only as data, never as code, and only where they fit."""

from __future__ import annotations

import hashlib
import pickle
import re
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_safetensors
from torch import Tensor, nn

from drq.errors import InputError, MissingError, require
from drq.system.files import atomic_write, digest

AGAIN = "it is damaged or something else; fetch it again"
CHECKSUM = "contents_sha256"  # what the files that we write say of themselves
PREFIXES = ("module.", "model.")  # that wrappers put before every name


class Weights(NamedTuple):
    """What a file holds."""

    tensors: dict[str, Tensor]
    about: dict[str, str]  # what the writer says of them
    path: Path
    sha256: str


def read(path: Path, sha256: str | None = None) -> Weights:
    """The weights in a safetensors file, or in one of ``torch.save`` that holds nothing but tensors.

    Raises:
        InputError: the file is missing, damaged, wants to run code, or has another checksum than ``sha256``.
    """
    remedy = "check the name, or set DRQ_MODELS to the folder that has it"
    require(path.is_file(), "weights", "be a file", path, remedy, MissingError)
    found = digest(path)
    rule = f"have the sha256 {sha256}"
    require(sha256 is None or sha256.lower() == found, str(path), rule, found, "it was changed on its way; fetch it again")
    tensors, about = _safetensors(path) if path.suffix == ".safetensors" else (dict(pickled(path)), {})
    intact = CHECKSUM not in about or about[CHECKSUM] == contents(tensors)
    require(intact, str(path), f"hold the weights with the checksum {about.get(CHECKSUM)}", "others", "fetch it again")
    for name, tensor in tensors.items():
        count = name.endswith("num_batches_tracked")
        require(tensor.is_floating_point() or count, f"{name} in {path}", "be floats", tensor.dtype, "convert them first")
        finite = bool(tensor.float().isfinite().all())
        require(finite, f"{name} in {path}", "be finite", "NaN or infinity", "the training failed or the file is damaged")
    return Weights(tensors, about, path, found)


def _safetensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is not a dict
            return tensors, file.metadata() or {}
    except (OSError, SafetensorError) as error:
        raise InputError(f"weights must be a whole safetensors file, got {path} ({_line(error)}): {AGAIN}") from error


def pickled(path: Path) -> dict[str, Tensor]:
    """The named tensors in a file of ``torch.save``, read as data."""
    _check_size(path)
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        asked = re.search(r"GLOBAL (\S+)", str(error))
        if asked is None:
            raise InputError(f"weights must be a file of torch.save, got {path} ({_line(error)}): {AGAIN}") from error
        reason, remedy = f"it asks for {asked[1]}", "it could run code as it is read; save model.state_dict()"
        raise InputError(f"weights must be tensors and nothing else, got {path} ({reason}): {remedy}") from error
    except (OSError, RuntimeError, EOFError, ValueError, KeyError) as error:
        raise InputError(f"weights must be a whole file of torch.save, got {path} ({_line(error)}): {AGAIN}") from error
    for key in ("state_dict", "model_state_dict", "model"):  # where checkpoints keep them beside other things
        if isinstance(content, dict) and isinstance(content.get(key), Mapping):
            content = content[key]
    named = isinstance(content, Mapping) and len(content) > 0 and all(map(_is_weight, content.keys(), content.values()))
    require(named, "weights", "be named tensors", f"{path} ({type(content).__name__})", "save model.state_dict()")
    tensors: dict[str, Tensor] = content  # itself, since a state dict carries more than its items
    return tensors


def _check_size(path: Path) -> None:
    """``torch.save`` does not compress: what grows as it is read was made to fill the memory."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            size = sum(each.file_size for each in archive.infolist())
        rule = "hold no more than its own size"
        require(size <= 1.5 * path.stat().st_size + 2**20, str(path), rule, f"{size:,} bytes", "it was tampered with")


def _is_weight(name: object, value: object) -> bool:
    """A plain tensor with values of its own, under a name."""
    if not isinstance(name, str) or not isinstance(value, Tensor):
        return False
    plain = value.layout == torch.strided and not value.is_quantized and not value.is_meta
    return plain and value.untyped_storage().nbytes() >= value.numel() * value.element_size()


def _line(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:120]


def fill(model: nn.Module, weights: Weights, rename: Callable[[str], str] = str) -> None:
    """Put the weights into a model.

    Raises:
        InputError: names or shapes do not fit.
    """
    expected = model.state_dict()
    given = {rename(_bare(name, expected)): tensor for name, tensor in weights.tensors.items()}
    counters = {name for name in expected if name.endswith("num_batches_tracked")}  # play no part after training
    require(len(given) == len(weights.tensors), str(weights.path), "name every weight once", "one twice", "remove one of the two")
    missing, unknown = expected.keys() - given.keys() - counters, given.keys() - expected.keys()
    if missing or unknown:
        faults = [f"{_some(names)} {what}" for names, what in ((missing, "missing"), (unknown, "unknown")) if names]
        rule = f"have the {len(expected)} names of {type(model).__name__}"
        raise InputError(f"{weights.path} must {rule}, got {' and '.join(faults)}: it is of another architecture")
    for name, tensor in given.items():
        _fits(weights.path, name, expected[name].shape, tensor.shape)
    given |= {name: torch.tensor(0) for name in counters - given.keys()}
    # Copied, since products of matrices depend in their last bits on where in memory these begin: a file may lie anywhere.
    copies = {name: tensor.to(expected[name].dtype, copy=True) for name, tensor in given.items()}
    model.load_state_dict(copies, assign=True)


def _bare(name: str, expected: Mapping[str, Any]) -> str:
    """The name without the prefixes of wrappers, unless the architecture has them too."""
    for prefix in PREFIXES:
        if not any(other.startswith(prefix) for other in expected):
            name = name.removeprefix(prefix)
    return name


def _some(names: set[str]) -> str:
    shown = ", ".join(sorted(names)[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"


def _fits(path: Path, name: str, expected: torch.Size, given: torch.Size) -> None:
    last = len(expected) == len(given) > 0 and expected[1:] == given[1:] and name.rpartition(".")[0] in ("linear", "fc")
    remedy = f"the file has {given[0]} classes; pass classes={given[0]}" if last else "it is of another architecture"
    require(expected == given, f"{name} in {path}", f"have the shape {tuple(expected)}", tuple(given), remedy)


def contents(tensors: Mapping[str, Tensor]) -> str:
    """A checksum of names and values."""
    whole = hashlib.sha256()
    for name in sorted(tensors):
        whole.update(name.encode() + tensors[name].contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return whole.hexdigest()


def checksum(model: nn.Module) -> str:
    """A checksum of all tensors that a model holds, as they are in memory."""
    return contents({name: each.detach().cpu() for name, each in model.state_dict().items() if isinstance(each, Tensor)})


def write(model: nn.Module, path: Path, about: Mapping[str, str] = MappingProxyType({}), half: bool = True) -> None:
    """Write the weights as safetensors, with a checksum.

    Args:
        model: whose weights.
        path: where to.
        about: what the file says of itself.
        half: matrices and filters in float16, which halves the file; the rest stays as it is.
    """
    state = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    if half:
        state = {name: each.half() if each.is_floating_point() and each.dim() > 1 else each for name, each in state.items()}
    with atomic_write(path) as file:
        file.write(to_safetensors(state, metadata={**about, CHECKSUM: contents(state)}))
