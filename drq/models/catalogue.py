"""Models by name: what there is, and how a name becomes a classifier."""

from __future__ import annotations

import builtins
import difflib
import importlib.util
import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from torch import nn

from drq.errors import InputError, require
from drq.files import models_folder
from drq.models import digits, libraries, robustbench, trained, weights
from drq.models.classifier import Card, Classifier
from drq.models.dncnn import Denoised
from drq.models.stored import NONE, Normalisation, Stored


def load(name: str, **options: Any) -> nn.Module:
    """The classifier of that name: in evaluation mode, of inputs in [0, 1], with its normalisation inside.

    Args:
        name: ``digits`` and ``cifar10-small`` come with the package; ``cifar10-linf`` and its relatives are files in DRQ_MODELS;
            ``robustbench:``, ``timm:``, ``torchvision:`` and ``hf:`` go before a library's own name, ``file:`` before a file
            of weights, ``python:`` before ``package.module:factory``, ``denoised:`` before any name of a CIFAR-10 model. Options
            may follow: ``file:weights.safetensors?arch=preact_resnet18&classes=10``.
        options: of its loader, such as ``download=True``: nothing is downloaded otherwise.

    >>> load("digits").card.classes
    ('0', '1', '2', '3', '4', '5', '6', '7', '8', '9')
    """
    require(isinstance(name, str) and name != "", "name", "be the name of a model", repr(name), "drq models lists them")
    given, _, query = name.partition("?")
    options = {key: READ.get(key, str)(value) for key, value in parse_qsl(query, keep_blank_values=True)} | options
    kind, colon, rest = given.partition(":")
    loader = SOURCES.get(kind) if colon else NAMED.get(given)
    if loader is None:
        known = [*NAMED, *(f"{each}:" for each in SOURCES)]
        near = difflib.get_close_matches(f"{kind}:" if colon else given, known, 1)
        remedy = f"did you mean {near[0]}?" if near else "drq models says more on each"
        raise InputError(f"name must be one of {', '.join(known)}, got {name!r}: {remedy}")
    require(not colon or rest != "", "name", f"go on behind {kind}:", repr(name), "drq models shows an example of each")
    _check_options(loader, options, given, first=1 if colon else 0)
    return loader(rest, **options) if colon else loader(**options)


def _check_options(loader: Callable[..., Any], options: Mapping[str, Any], name: str, first: int) -> None:
    """A word that a loader does not know is most likely misspelt."""
    parameters = inspect.signature(loader).parameters.values()
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return
    known = [each.name for each in parameters][first:]
    unknown = [option for option in options if option not in known]
    rule = f"be among {', '.join(known)}" if known else "be left out"
    require(not unknown, "options", rule, ", ".join(unknown), f"{name} takes no others")


def load_file(
    path: str,
    arch: str | None = None,
    classes: int | None = None,
    mean: tuple[float, ...] | None = None,
    std: tuple[float, ...] | None = None,
    norm: str | None = None,
    radius: float | None = None,
    sha256: str | None = None,
) -> Classifier:
    """Weights of one of our architectures from any file. What is not given is taken from what the file says of itself.

    Args:
        path: looked for in the present folder, then in DRQ_MODELS.
        arch: one of :data:`drq.models.ARCHITECTURES`.
        classes: number of logits.
        mean: taken off each channel.
        std: that each channel is then divided by.
        norm: of the adversarial training, if there was one.
        radius: of it: DRQ explores twice as far.
        sha256: that the file must have.
    """
    found = weights.read(Path(path) if Path(path).exists() else models_folder() / path, sha256)
    said: dict[str, Any] = {key: READ.get(key, str)(value) for key, value in found.about.items()}
    arch, classes = arch or said.get("architecture"), classes or said.get("classes")
    if arch is None or classes is None:
        rule = "be given where the file does not say them"
        raise InputError(f"arch and classes must {rule}, got none: as in file:{path}?arch=preact_resnet18&classes=10")
    channels = Normalisation(mean or said.get("mean") or NONE.mean, std or said.get("std") or NONE.std)
    summary = said.get("training", f"{arch} from a file")
    card = Card(f"file:{path}", summary, norm=norm or said.get("norm"), radius=radius or said.get("radius"))
    return Stored(arch, classes, card, channels).classifier(found)


def load_denoised(name: str, **options: Any) -> Classifier:
    """Another model behind the denoiser that comes with the package."""
    model = load(name, **options)
    card = getattr(model, "card", Card(name))
    return Classifier(Denoised(trained.denoiser(), model), replace(card, name=f"denoised:{name}")).eval()


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(each) for each in text.split(","))
    except ValueError as error:
        raise InputError(f"an option must be numbers with commas between them, got {text!r}: as in mean=0.5,0.5,0.5") from error


def _number(text: str) -> float:
    return _numbers(text)[0]


def _count(text: str) -> int:
    require(text.isdigit(), "classes", "be a whole number", repr(text), "as in classes=10")
    return int(text)


def _flag(text: str) -> bool:
    known = {"1": True, "true": True, "0": False, "false": False}
    require(text.lower() in known, "an option", "be 1 or 0", repr(text), "as in pretrained=0")
    return known[text.lower()]


READ = {"classes": _count, "mean": _numbers, "std": _numbers, "radius": _number, "download": _flag, "pretrained": _flag}
NAMED: Mapping[str, Callable[..., nn.Module]] = {
    "digits": digits.classifier,
    **{name: partial(trained.load, name) for name in trained.STORED},
}
SOURCES: Mapping[str, Callable[..., nn.Module]] = {
    "robustbench": robustbench.load,
    "timm": libraries.load_timm,
    "torchvision": libraries.load_torchvision,
    "hf": libraries.load_huggingface,
    "file": load_file,
    "python": libraries.load_python,
    "denoised": load_denoised,
}


class Entry(NamedTuple):
    """A model, or a source of models, described."""

    name: str
    summary: str
    present: bool  # whether it can be loaded as it is, without a file to make or to download, or an extra to install


def list() -> builtins.list[Entry]:
    """Every model that has a name of its own, and an example of every source of others.

    >>> [entry.name for entry in list() if entry.present][:2]
    ['digits', 'cifar10-small']
    """
    stored = [Entry(name, each.card.summary, trained.place(name).is_file()) for name, each in trained.STORED.items()]
    published = [
        Entry(f"robustbench:{name}", each.card.summary, (models_folder() / f"{name}.pt").is_file())
        for name, each in robustbench.PUBLISHED.items()
    ]
    sources = [Entry(name, summary, _installed(name)) for name, summary in EXAMPLES.items()]
    return [Entry("digits", digits.SUMMARY, _installed("sklearn:")), *stored, *published, *sources]


EXAMPLES = {
    "timm:resnet50": "any image classifier of timm",
    "torchvision:resnet50": "any image classifier of torchvision",
    "hf:google/vit-base-patch16-224": "any image classifier on the Hugging Face hub, or in a folder of its layout",
    "file:weights.safetensors?arch=preact_resnet18&classes=10": "weights of an architecture of ours, from a file",
    "python:package.module:factory": "what a function of yours returns",
    "denoised:cifar10-small": "a CIFAR-10 model behind the paper's denoiser",
}
PACKAGES = {"timm": "timm", "torchvision": "torchvision", "hf": "transformers", "sklearn": "sklearn"}


def _installed(name: str) -> bool:
    package = PACKAGES.get(name.partition(":")[0])
    return package is None or importlib.util.find_spec(package) is not None
