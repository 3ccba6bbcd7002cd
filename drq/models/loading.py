"""Load a classifier by its name, and list all of them."""

from __future__ import annotations

import builtins
import importlib.util
import inspect
import logging
from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

from torch import nn

from drq.errors import InputError, nearest, require
from drq.models import imagenet, published, robustbench, trained, weights
from drq.models.classifier import Card, Classifier
from drq.models.dncnn import Denoised
from drq.models.known import FittedModel, ModelSource
from drq.models.stored import NONE, Normalisation, StoredModel
from drq.registry import FITTED, PACKAGED, SOURCES, TRAINED
from drq.system.files import models_folder

logger = logging.getLogger("drq")


def load(name: str, **options: Any) -> nn.Module:
    """The classifier of that name: in evaluation mode, of inputs in [0, 1], with its normalisation inside.

    Args:
        name: ``digits``, ``gaussians-svm``, ``cifar10-small``, ``cifar10-tiny`` come with the package, ``imagenet-lite0`` and its
            relatives with the extra ``imagenet``; ``cifar10-linf`` and its relatives are files in DRQ_MODELS. ``published:`` and
            ``robustbench:`` go before models of papers, ``timm:``, ``torchvision:`` and ``hf:`` before a library's own name,
            ``file:`` before a file of weights, ``python:`` before ``package.module:factory``, ``denoised:`` before any name
            of a CIFAR-10 model. Options may follow: ``file:weights.safetensors?arch=preact_resnet18&classes=10``,
            ``digits?seed=1``.
        options: of its loader, such as ``download=True``: nothing is downloaded otherwise.

    >>> load("digits").card.classes
    ('0', '1', '2', '3', '4', '5', '6', '7', '8', '9')
    """
    require(isinstance(name, str) and name != "", "name", "be the name of a model", repr(name), "drq models lists them")
    given, _, query = name.partition("?")
    options = _options(query) | options
    kind, colon, rest = given.partition(":")
    loader = _loader(kind + colon if colon else given)
    if loader is None:
        known = [*NAMED, *SOURCES]
        remedy = nearest(kind + colon if colon else given, known, "drq models says more on each")
        raise InputError(f"name must be one of {', '.join(known)}, got {name!r}: {remedy}")
    require(not colon or rest != "", "name", f"go on behind {kind}:", repr(name), "drq models shows an example of each")
    options = _checked(loader, options, given, first=1 if colon else 0)
    try:
        model = loader(rest, **options) if colon else loader(**options)
    except OSError as error:
        raise InputError(f"name must lead to files that can be read, got {name[:200]!r} ({error.strerror}): check it") from error
    model.loaded_as = _name_with(given, options)  # type: ignore[assignment]  # also in copies, since it is a plain attribute
    return model


def _loader(name: str) -> Callable[..., nn.Module] | None:
    """What loads a model of this name, or those of a source; None where nobody knows it."""
    if name in TRAINED:
        return partial(trained.load, name)
    if name in PACKAGED:
        return partial(imagenet.load, name)
    found: FittedModel | ModelSource | None = FITTED.get(name) or SOURCES.get(name)
    return found and found.load


def _name_with(name: str, options: Mapping[str, Any]) -> str:
    """The name with its options, but for leave to download: another call of :func:`load` makes the same model of it.

    >>> _name_with("file:a.safetensors", {"classes": 10, "mean": (0.5, 0.25), "download": True})
    'file:a.safetensors?classes=10&mean=0.5,0.25'
    """
    given = {key: each for key, each in options.items() if key != "download" and each is not None}
    texts = {key: ",".join(map(str, each)) if isinstance(each, tuple) else str(each) for key, each in given.items()}
    return f"{name}?{urlencode(texts, safe=',:/')}" if texts else name


def _options(query: str) -> dict[str, Any]:
    """The options after the question mark, of which none may be repeated."""
    pairs = parse_qsl(query, keep_blank_values=True)
    found = {key: READ.get(key, str)(value) for key, value in pairs}
    once = len(found) == len(pairs) and "name" not in found
    require(once, "name", "have every option once, and itself none", repr(query), "remove one of the two")
    return found


def _checked(loader: Callable[..., Any], options: Mapping[str, Any], name: str, first: int) -> dict[str, Any]:
    """The options that a loader gets: an unknown one is refused, except ``download``, which every caller may give."""
    parameters = inspect.signature(loader).parameters.values()
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return dict(options)
    known = [each.name for each in parameters][first:]
    options = {key: value for key, value in options.items() if key in known or key != "download"}
    unknown = [option for option in options if option not in known]
    rule = f"be among {', '.join(known)}" if known else "be left out"
    require(not unknown, "options", rule, ", ".join(unknown), f"{name} takes no others")
    return options


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
    given = {"architecture": arch, "classes": classes, "mean": mean, "std": std, "norm": norm, "radius": radius}
    said: dict[str, Any] = {
        key: READ.get(key, str)(found.about[key]) for key, value in given.items() if value is None and key in found.about
    }
    said |= {key: _held(found, key) for key in ("mean", "std") if given[key] is None and key in found.tensors}
    if norm is not None:
        said.pop("radius", None)  # that of another norm says nothing
    told = said | {key: value for key, value in given.items() if value is not None}
    if "architecture" not in told or "classes" not in told:
        rule = "be given where the file does not say them"
        raise InputError(f"arch and classes must {rule}, got none: as in file:{path}?arch=preact_resnet18&classes=10")
    if "mean" not in told:
        logger.warning("file:%s says nothing of a normalisation, so images reach it as they are; else pass mean= and std=", path)
    channels = Normalisation(told.get("mean", NONE.mean), told.get("std", NONE.std))
    summary = found.about.get("training", f"{told['architecture']} from a file")
    card = Card(f"file:{path}", summary, norm=told.get("norm"), radius=told.get("radius"))
    return StoredModel(told["architecture"], told["classes"], card, channels).classifier(found)


def _held(found: weights.Weights, name: str) -> tuple[float, ...]:
    """The mean or the standard deviation that a :class:`Classifier` keeps with its weights."""
    return tuple(round(float(each), 6) for each in found.tensors[name].flatten()[:8])


def load_denoised(name: str, /, **options: Any) -> Classifier:
    """Another model behind the denoiser that comes with the package."""
    require(not name.startswith("denoised:"), "name", "be denoised once", repr(name[:60]), "remove one of the two")
    model = load(name, **options)
    card = getattr(model, "card", Card(name))
    colour = card.view is None or card.view.channels == 3
    require(colour, "name", "be of a model of colour images", repr(name), "the denoiser was trained on CIFAR-10")
    return Classifier(Denoised(trained.denoiser(), model), replace(card, name=f"denoised:{name}")).eval()


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(Fraction(each)) for each in text.split(","))
    except (ValueError, ZeroDivisionError) as error:
        remedy = "as in mean=0.5,0.5,0.5 or radius=8/255"
        raise InputError(f"an option must be numbers with commas between them, got {text!r}: {remedy}") from error


def _number(text: str) -> float:
    numbers = _numbers(text)
    require(len(numbers) == 1, "radius", "be one number", repr(text), "as in radius=0.5")
    return numbers[0]


def _count(name: str, text: str) -> int:
    whole = text.isascii() and text.isdecimal() and len(text) < 10
    require(whole, name, "be a whole number", repr(text), f"as in {name}=10")
    return int(text)


def _flag(text: str) -> bool:
    known = {"1": True, "true": True, "0": False, "false": False}
    require(text.lower() in known, "an option", "be 1 or 0", repr(text), "as in pretrained=0")
    return known[text.lower()]


READ: Mapping[str, Callable[[str], Any]] = {
    **{name: partial(_count, name) for name in ("classes", "seed", "epochs")},
    **dict.fromkeys(("mean", "std"), _numbers),
    "radius": _number,
    **dict.fromkeys(("download", "pretrained"), _flag),
}
NAMED: Mapping[str, Any] = ChainMap(TRAINED, FITTED, PACKAGED)  # type: ignore[arg-type]  # to read
FILE = ModelSource(
    "weights of an architecture of ours, from a file", load_file, "weights.safetensors?arch=preact_resnet18&classes=10", ours=True
)
DENOISED = ModelSource("a CIFAR-10 model behind the paper's denoiser", load_denoised, "cifar10-small", ours=True)


class Entry(NamedTuple):
    """A model, or a source of models, described."""

    name: str
    summary: str
    present: bool  # whether it can be loaded as it is, without a file to make or to download, or an extra to install


def list() -> builtins.list[Entry]:
    """Every model that has a name of its own, and an example of every source of others.

    >>> [entry.name for entry in list() if entry.present][:2]
    ['digits', 'gaussians-svm']
    """
    fitted = importlib.util.find_spec("sklearn") is not None
    folder, of_papers, of_robustbench = models_folder(), published.PUBLISHED.items(), robustbench.PUBLISHED.items()
    return [
        *(Entry(name, each.summary, fitted) for name, each in FITTED.items()),
        *(Entry(name, each.card.summary, trained.place(name).is_file()) for name, each in trained.STORED.items()),
        *(Entry(name, each.stored.card.summary, each.place() is not None) for name, each in imagenet.PACKAGED.items()),
        *(Entry(f"published:{name}", each.stored.card.summary, each.place().is_file()) for name, each in of_papers),
        *(Entry(f"robustbench:{name}", each.card.summary, (folder / f"{name}.pt").is_file()) for name, each in of_robustbench),
        *(Entry(name + each.example, each.summary, each.ours) for name, each in SOURCES.items() if each.example),
    ]
