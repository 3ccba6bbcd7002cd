"""The RobustBench models that the paper evaluates: from RobustBench's own files, without its package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from torch import nn

from drq import registry
from drq.errors import InputError, MissingError, nearest, require
from drq.images import View
from drq.models import weights
from drq.models.classifier import Card
from drq.models.known import ModelSource
from drq.models.stored import CIFAR10, CIFAR10_CLASSES, CIFAR100, HALF, IMAGENET, StoredModel
from drq.system.files import models_folder

REMEDY = (
    "download it from https://github.com/RobustBench/robustbench and put it there, "
    "or set DRQ_MODELS to RobustBench's folder of models"
)
UNSCALED_288 = View(288, 288, resize=0)


def _trained(summary: str, norm: str | None = None, radius: float | None = None, **more: Any) -> Card:
    return Card("", summary, norm=norm, radius=radius, **more)


_cifar10 = partial(_trained, classes=CIFAR10_CLASSES)


# Accuracies are RobustBench's: clean, and under AutoAttack.
WONG = StoredModel(
    "preact_resnet18_wong", 10, _cifar10("PreActResNet-18, 83.34 % clean, 43.21 % robust", "linf", 8 / 255), CIFAR10
)
GOWAL = StoredModel(
    "wrn_28_10_gowal", 10, _cifar10("WideResNet-28-10 with Swish, 89.48 % clean, 62.80 % robust", "linf", 8 / 255), CIFAR10
)
RICE = StoredModel("preact_resnet18", 10, _cifar10("PreActResNet-18, 88.67 % clean, 67.68 % robust", "l2", 0.5), CIFAR10)
AUGMIX = StoredModel("wrn_40_2", 10, _cifar10("WideResNet-40-2 trained with AugMix, 95.08 % clean"), HALF)
RICE_CIFAR100 = StoredModel(
    "preact_resnet18", 100, _trained("PreActResNet-18, 53.83 % clean, 18.95 % robust", "linf", 8 / 255), CIFAR100
)
WONG_IMAGENET = StoredModel(
    "resnet50", 1000, _trained("ResNet-50 on 288 x 288 pixels", "linf", 4 / 255, view=UNSCALED_288), IMAGENET
)
DEEP_AUGMENT = StoredModel("resnet50", 1000, _trained("ResNet-50 trained with DeepAugment and AugMix"), IMAGENET)
PUBLISHED: Mapping[str, StoredModel] = registry.ROBUSTBENCH


def load(name: str, sha256: str | None = None, download: bool = False) -> nn.Module:
    """A published model, such as ``cifar10/Linf/Wong2020Fast``.

    Args:
        name: data/threat/name, as RobustBench spells them.
        sha256: that its file must have.
        download: let RobustBench's package, where it is installed, fetch a file that is not there yet.
    """
    path = models_folder() / f"{name}.pt"
    if name in PUBLISHED and (path.is_file() or not download):
        require(path.is_file(), f"robustbench:{name}", f"be the file {path}", "no such file", REMEDY, MissingError)
        stored = PUBLISHED[name]
        return replace(stored, card=replace(stored.card, name=f"robustbench:{name}")).classifier(weights.read(path, sha256))
    if not download:
        hint = nearest(name, PUBLISHED, "download=True asks RobustBench's package, which knows more")
        raise InputError(f"robustbench: must be one of {', '.join(PUBLISHED)}, got {name!r}: {hint}")
    return _by_package(name)


def _by_package(name: str) -> nn.Module:
    """The model as RobustBench's own package builds and fetches it."""
    parts = name.split("/")
    require(len(parts) == 3, "robustbench:", "name data/threat/model", repr(name), "for example cifar10/Linf/Wong2020Fast")
    try:
        from robustbench.utils import load_model
    except ImportError as error:
        remedy = "install it, or put the file in place by hand"
        raise MissingError(f"download= needs the package robustbench, which cannot be imported ({error}): {remedy}") from error
    data, threat, model = parts
    try:
        loaded: nn.Module = load_model(model, model_dir=str(models_folder()), dataset=data, threat_model=threat)
    except Exception as error:  # its downloads raise whatever their libraries do
        raise InputError(f"robustbench could not load {name!r} ({type(error).__name__}: {error}): {REMEDY}") from error
    return loaded.eval().requires_grad_(False)


SOURCE = ModelSource("the models of RobustBench", load)
