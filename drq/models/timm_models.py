"""Classifiers of timm, with the preprocessing that timm has on record for them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from drq.errors import require
from drq.images import View
from drq.models.classifier import Card, Classifier
from drq.models.known import ModelSource
from drq.models.third_party import File, absent, building, check_classes, check_name, from_hub, from_url, imported, settled
from drq.models.weights import pickled
from drq.system.files import digest

SAFE = "model.safetensors"


def load_timm(name: str, /, *, download: bool = False, pretrained: bool = True, **options: Any) -> Classifier:
    """A classifier of timm.

    Args:
        name: as timm has it, with or without the tag of the weights, such as ``resnet50`` or ``resnet50.a1_in1k``.
        download: fetch the weights where they are not in the cache.
        pretrained: False for random weights, which need no network.
        options: passed to ``timm.create_model``.
    """
    timm, data = imported("timm"), imported("timm.data")
    check_name(name, [*timm.list_models(), *timm.list_pretrained()], "names that timm knows")
    published = timm.get_pretrained_cfg(name)
    classes = _classes(f"timm:{name}", published, pretrained, options)
    found = _weights(f"timm:{name}", published, download) if pretrained else None
    overlay = _as_data(found.path) if found else None
    with building(f"timm:{name}", options):  # what is named twice is refused: files come from here alone
        model = timm.create_model(
            name, pretrained=pretrained, pretrained_cfg_overlay=overlay, checkpoint_path=None, cache_dir=None, **options
        )
    model.pretrained_cfg.update(state_dict=None)  # or every weight would be kept twice
    settings = data.resolve_model_data_config(model, args=_sizes(options))
    summary = f"{published.architecture}.{published.tag} of timm" if found else f"{name} of timm, random weights"
    card = Card(f"timm:{name}", summary, _class_names(data, model, classes), _view(settings), sha256=found and found.sha256)
    mean, std = settings["mean"], settings["std"]
    channels = options.get("in_chans") or 3
    require(len(mean) == channels, "in_chans", f"be {len(mean)}, as for the mean on record", channels, "leave it out")
    return Classifier(settled(model), card, mean, std).eval()


def _classes(name: str, published: Any, pretrained: bool, options: Mapping[str, Any]) -> int:
    """How many classes the model will have."""
    usual: int = published.num_classes if published else 1000
    asked = options.get("num_classes")
    count: int = usual if asked is None else asked
    check_classes(name, count)
    rule, remedy = f"be {usual}, as in the published weights", "leave it out, or pass pretrained=False"
    require(not pretrained or count == usual, "num_classes", rule, count, remedy)
    return count


def _weights(name: str, published: Any, download: bool) -> File:
    """The published weights, as data: from the Hugging Face hub, where timm keeps nearly all, else from their address."""
    require(bool(published and published.has_weights), name, "have published weights", "none", "pass pretrained=False")
    if not published.hf_hub_id:
        return from_url(name, published.url, download)
    repository, _, revision = published.hf_hub_id.partition("@")
    file = published.hf_hub_filename or SAFE
    folder = from_hub(name, repository, [file], lambda folder: (folder / file).is_file(), download, revision=revision or None)
    if not (folder / file).is_file():
        require(not download, name, f"have {file} in its repository", "none", "choose another model")
        raise absent(name, file, folder)
    return File(folder / file, digest(folder / file))


def _as_data(path: Path) -> dict[str, Any]:
    """The weights in the form in which timm takes them: a file that cannot hold code, or what was read from one that can."""
    content = {"file": str(path)} if path.suffix == ".safetensors" else {"state_dict": pickled(path)}
    return {**content, "custom_load": False}  # that is for the formats of other frameworks


def _sizes(options: Mapping[str, Any]) -> dict[str, Any]:
    """The size of the images, where the caller asks for another one than timm records."""
    size = options.get("img_size")
    if size is None:
        return {}
    height, width = (size, size) if isinstance(size, int) else size
    return {"input_size": (options.get("in_chans") or 3, height, width)}


def _view(settings: Mapping[str, Any]) -> View | None:
    """How timm resizes and crops; None for the few models whose pictures get a border, or are not square."""
    _, height, width = settings["input_size"]
    scaled = tuple(math.floor(side / settings["crop_pct"]) for side in (height, width))
    mode = settings["crop_mode"]
    if mode == "squash":
        return View(height, width, (scaled[0], scaled[1]), settings["interpolation"])
    if mode == "center" and height == width:
        return View(height, width, scaled[0], settings["interpolation"])
    return None


def _class_names(data: Any, model: Any, count: int) -> tuple[str, ...] | None:
    """What each logit stands for: on record with the weights, or timm's names for an ImageNet of that many classes."""
    names = model.pretrained_cfg.get("label_names")
    if names and len(names) == count:
        return tuple(names)
    if not (subset := data.infer_imagenet_subset(model)):
        return None
    known = data.ImageNetInfo(subset)
    return tuple(known.index_to_description(index) for index in range(count)) if known.num_classes() == count else None


SOURCE = ModelSource("any image classifier of timm", load_timm, "resnet50")
