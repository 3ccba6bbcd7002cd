"""Classifiers of torchvision, with the preprocessing that comes with their weights."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from drq.errors import require
from drq.images import View
from drq.models.classifier import Card, Classifier
from drq.models.known import ModelSource
from drq.models.third_party import building, check_classes, check_name, from_url, imported, settled
from drq.models.weights import pickled


def load_torchvision(
    name: str, /, *, download: bool = False, pretrained: bool = True, weights: str | Enum = "DEFAULT", **options: Any
) -> Classifier:
    """A classifier of torchvision.

    Args:
        name: as torchvision has it, such as ``resnet50``.
        download: fetch the weights where they are not in the folder of torch.hub.
        pretrained: False for random weights, which need no network; the preprocessing is that of ``weights`` still.
        weights: which of the published ones, such as ``IMAGENET1K_V1``.
        options: passed to the builder of the model.
    """
    models, title = imported("torchvision.models"), f"torchvision:{name}"
    check_name(name, models.list_models(module=models), "classifiers that torchvision knows")
    entry = _entry(models.get_model_weights(name), weights)
    classes = _classes(title, entry, pretrained, options)
    found = from_url(title, entry.url, download) if pretrained else None
    with building(title, options):
        if found:
            model = models.get_model(name, weights=LocalWeights(entry, found.path), **options)
        else:
            model = models.get_model(name, weights=None, **_adapted(name, entry), **options)
    preset = entry.transforms()
    crop, resize = (size if isinstance(size, int) else size[0] for size in (preset.crop_size, preset.resize_size))
    view = View(crop, crop, resize, preset.interpolation.value)
    summary = f"{name} of torchvision, {entry.name if found else 'random weights'}"
    card = Card(title, summary, classes, view, sha256=found and found.sha256)
    return Classifier(settled(model), card, preset.mean, preset.std).eval()


class LocalWeights:
    """Published weights whose file is on this machine.

    Torchvision's builders change architectures to suit the weights, and rename what has an old name. So they are handed this in
    place of their own entry, which would unpickle the file as code.
    """

    def __init__(self, entry: Any, path: Path) -> None:
        self.entry = entry
        self.path = path

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self.entry)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.entry, name)

    def get_state_dict(self, **_: Any) -> dict[str, Any]:
        """What the file holds, read as data."""
        return pickled(self.path)


def _entry(published: Any, weights: str | Enum) -> Any:
    """One of the published weights, by its name."""
    if isinstance(weights, published):
        return weights
    choice = str(weights).rpartition(".")[2]
    names = ", ".join(published.__members__)
    require(choice in published.__members__, "weights", f"be one of {names}", repr(weights), "DEFAULT takes the best of them")
    return published[choice]


def _classes(title: str, entry: Any, pretrained: bool, options: Mapping[str, Any]) -> tuple[str, ...] | None:
    """What each logit stands for; None where random weights have as many as the caller likes."""
    names = tuple(entry.meta.get("categories") or ())
    count = options.get("num_classes", len(names))
    check_classes(title if "num_classes" in options else f"{title} with {entry.name}", count)
    rule, remedy = f"be {len(names)}, as in the published weights", "leave it out, or pass pretrained=False"
    require(not pretrained or count == len(names), "num_classes", rule, count, remedy)
    return names if count == len(names) else None


def _adapted(name: str, entry: Any) -> dict[str, Any]:
    """What the weights would change in the architecture, for random ones in their place."""
    if name.startswith("vit_"):
        return {"image_size": entry.meta["min_size"][0]}
    return {"transform_input": True, "init_weights": False} if name in ("googlenet", "inception_v3") else {}


SOURCE = ModelSource("any image classifier of torchvision", load_torchvision, "resnet50")
