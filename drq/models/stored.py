"""Classifiers from a file of weights: which architecture, which normalisation, which training."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from drq.errors import require
from drq.models import weights
from drq.models.architectures import architecture, blank
from drq.models.classifier import Card, Classifier


class Normalisation(NamedTuple):
    """What a network was trained to have taken off and divided by, a channel."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


NONE = Normalisation((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
HALF = Normalisation((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
CIFAR10 = Normalisation((0.4914, 0.4822, 0.4465), (0.2471, 0.2435, 0.2616))
CIFAR100 = Normalisation((0.507075, 0.486549, 0.440918), (0.267334, 0.256438, 0.276150))
IMAGENET = Normalisation((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


@dataclass(frozen=True)
class StoredModel:
    """All that a file of weights leaves unsaid."""

    arch: str
    classes: int
    card: Card
    normalisation: Normalisation = NONE

    def classifier(self, found: weights.Weights) -> Classifier:
        """The model with these weights."""
        self._check_normalisation(found)
        model, design = blank(self.arch, self.classes), architecture(self.arch)
        weights.fill(model, found, design.rename)
        card = replace(self.card, sha256=found.sha256, view=self.card.view or design.view)
        return Classifier(model.eval().requires_grad_(False), card, *self.normalisation).eval()

    def _check_normalisation(self, found: weights.Weights) -> None:
        """Where the file holds mean and standard deviation too, as RobustBench's may, they are the expected ones."""
        for expected, names in zip(self.normalisation, (("mu", "mean"), ("sigma", "std")), strict=True):
            for name in [name for name in found.tensors if name.rpartition(".")[2] in names]:
                given = [round(float(each), 4) for each in found.tensors.pop(name).flatten()[:8]]
                fits = len(given) == len(expected) and all(abs(a - b) < 1e-3 for a, b in zip(given, expected, strict=True))
                rule = f"be the normalisation of {self.card.name}, {[round(each, 4) for each in expected]}"
                require(fits, f"{name} in {found.path}", rule, given, "it is another model's file")
