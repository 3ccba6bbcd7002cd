"""Models that the scripts in ``training/`` make: the small ones lie in the package, the others where DRQ_MODELS says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import nn

from drq import registry
from drq.errors import MissingError, require
from drq.models import weights
from drq.models.classifier import Card, Classifier
from drq.models.dncnn import DnCNN
from drq.models.stored import CIFAR10, CIFAR10_CLASSES, StoredModel
from drq.system.files import models_folder

PACKAGE = Path(__file__).parent


def _cifar10(arch: str, name: str, summary: str, norm: str | None = None, radius: float | None = None) -> StoredModel:
    return StoredModel(arch, 10, Card(name, summary, CIFAR10_CLASSES, norm=norm, radius=radius), CIFAR10)


_ADVERSARIAL = "adversarially trained on CIFAR-10 with"
SMALL = _cifar10("wrn_28_2_swish", "cifar10-small", f"WideResNet-28-2, {_ADVERSARIAL} linf 8/255", "linf", 8 / 255)
TINY = _cifar10("wrn_10_2_half", "cifar10-tiny", f"WideResNet-10-2, halved, {_ADVERSARIAL} linf 8/255", "linf", 8 / 255)
TINY_SEED1 = _cifar10("wrn_10_2_half", "cifar10-tiny-seed1", "cifar10-tiny trained anew with another seed", "linf", 8 / 255)
LINF = _cifar10("preact_resnet18", "cifar10-linf", f"PreActResNet-18, {_ADVERSARIAL} linf 8/255", "linf", 8 / 255)
L2 = _cifar10("preact_resnet18", "cifar10-l2", f"PreActResNet-18, {_ADVERSARIAL} l2 0.5", "l2", 0.5)
AUGMENT = _cifar10("preact_resnet18", "cifar10-augment", "PreActResNet-18, trained on CIFAR-10 with strong augmentation")
PLAIN = _cifar10("preact_resnet18", "cifar10-plain", "PreActResNet-18, plainly trained on CIFAR-10")
STORED: Mapping[str, StoredModel] = registry.TRAINED
IN_THE_BOX = {"cifar10-small", "cifar10-tiny", "cifar10-denoiser"}


def place(name: str) -> Path:
    """The file that a model of :data:`STORED`, or the denoiser, is read from."""
    return (PACKAGE if name in IN_THE_BOX else models_folder()) / f"{name}.safetensors"


def load(name: str, sha256: str | None = None) -> Classifier:
    """A classifier of :data:`STORED`.

    Args:
        name: its name.
        sha256: that its file must have.
    """
    path, script = place(name), f"python training/cifar10.py {name.removeprefix('cifar10-').replace('-seed', ' --seed ')}"
    remedy = f"run {script} in a clone of the project, or set DRQ_MODELS to the folder that has it"
    require(path.is_file(), name, f"be the file {path}", "no such file", remedy, MissingError)
    return STORED[name].classifier(weights.read(path, sha256))


def denoiser() -> nn.Module:
    """The paper's denoiser for CIFAR-10 (Appendix C), which takes Gaussian noise of standard deviation 0.1 off images."""
    with torch.device("meta"):  # without values, so that the global random state rests
        model = DnCNN()
    weights.fill(model, weights.read(place("cifar10-denoiser")))
    return model.eval().requires_grad_(False)
