"""Classifiers of the Hugging Face hub, or from a folder laid out like a repository of it, with their own preprocessing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from drq.errors import InputError, one_line, require
from drq.images import View
from drq.method.adapters import FirstOutput
from drq.models.classifier import Card, Classifier
from drq.models.known import ModelSource
from drq.models.third_party import building, check_classes, from_hub, imported, settled
from drq.system.files import digest

SAFE, SHARDED = "model.safetensors", "model.safetensors.index.json"
WEIGHTS = (SAFE, SHARDED)  # one of them
PREPROCESSING = ("preprocessor_config.json", "processor_config.json")  # one of them
CONFIG = "config.json"
RESAMPLING = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")  # by PIL's numbers
CODE = {"code_revision", "allow_all_kernels", "use_kernels", "kernel_config"}  # what lets some in, beside trust_remote_code
OF_THE_HUB = ("revision", "token", "cache_dir")
SQUASHED = 384  # from this size on, ConvNeXt's preprocessing takes the whole picture and not its centre


def load_huggingface(name: str, /, *, download: bool = False, pretrained: bool = True, **options: Any) -> Classifier:
    """A classifier of the Hugging Face hub. Only safetensors are read, and no code of a repository is run.

    Args:
        name: a repository, such as ``google/vit-base-patch16-224``, or a folder laid out like one.
        download: fetch what is not in the cache.
        pretrained: False for random weights; the configuration is still looked for in the cache, or fetched.
        options: ``revision``, ``token`` and ``cache_dir`` say where to look; all others are passed to the model.
    """
    transformers, title = imported("transformers"), f"hf:{name}"
    _check_no_code(title, options)
    place = {key: options.pop(key) for key in OF_THE_HUB if key in options}
    folder = _folder(name, title, download, pretrained, place)
    with building(title, options), _quiet(transformers):
        config, model, processor = _built(transformers, title, folder, pretrained, options)
    view, mean, std = preprocessing(title, processor)
    summary = f"{type(model).__name__} of Hugging Face" + ("" if pretrained else ", random weights")
    single = pretrained and (folder / SAFE).is_file()
    card = Card(title, summary, _class_names(config), view, sha256=digest(folder / SAFE) if single else None)
    return Classifier(FirstOutput(settled(model)), card, mean, std).eval()


def _check_no_code(title: str, options: Mapping[str, Any]) -> None:
    """Refuse what would have transformers fetch code, as modules of Python or as kernels."""
    asked = sorted(CODE & options.keys())
    asked += [name for name, value in options.items() if name.endswith("_implementation") and "/" in str(value)]
    require(not asked, title, "run no code from the hub", ", ".join(asked), "leave it out")


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Without transformers' reports of many lines: what matters of them is an error of one."""
    log = transformers.logging
    verbosity, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity(log.CRITICAL)
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(verbosity)
        if bars:
            log.enable_progress_bar()


def _built(transformers: Any, title: str, folder: Path, pretrained: bool, options: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    """Configuration, model and image processor, by transformers' own means and from the folder alone."""
    auto = transformers.AutoModelForImageClassification
    safe = {"trust_remote_code": False, "local_files_only": True}
    config, rest = transformers.AutoConfig.from_pretrained(folder, return_unused_kwargs=True, **safe, **options)
    check_classes(title, config.num_labels)
    if pretrained:
        asked = {"use_safetensors": True, "output_loading_info": True}
        model, report = auto.from_pretrained(folder, config=config, **asked, **safe, **rest)
        _check_complete(title, report)
    else:
        model = auto.from_config(config, trust_remote_code=False, **rest)
    return config, model, transformers.AutoImageProcessor.from_pretrained(folder, **safe)


def _folder(name: str, title: str, download: bool, pretrained: bool, place: Mapping[str, Any]) -> Path:
    """Where all the files are: no library is left to look for others, or to convert what is not safe."""
    folder = Path(name).expanduser()
    needed = [*([WEIGHTS] if pretrained else []), (CONFIG,), PREPROCESSING]
    remedy = "choose another, or write them with save_pretrained"
    if not folder.is_dir():
        path = name.startswith(("/", ".", "~")) or name.count("/") > 1
        require(not path, "name", "be a repository or a folder", repr(name), "there is no such folder: check its name")
        files = [*(file for choice in needed for file in choice), *(["model-*-of-*.safetensors"] if pretrained else [])]
        folder = from_hub(title, name, files, lambda held: not _missing(held, needed), download, **place)
        remedy = remedy if download else "download=True (--download) fetches what is missing"
    for choice in _missing(folder, needed):
        why = ", since pickled weights can run code" if choice == WEIGHTS else ""
        raise InputError(f"{title} must have {' or '.join(choice)}{why}, got none in {folder}: {remedy}")
    return folder


def _missing(folder: Path, needed: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The needed files that the folder lacks; of each choice it must have one."""
    return [choice for choice in needed if not any((folder / file).is_file() for file in choice)]


def _check_complete(title: str, report: Mapping[str, Any]) -> None:
    """Refuse weights that leave a part of the model random, as those of a model without a head do."""
    unfit = (each if isinstance(each, str) else each[0] for each in report["mismatched_keys"])  # or with their shapes
    missing = sorted({*report["missing_keys"], *unfit})
    got = f"none for {', '.join(missing[:3])}{' and others' if len(missing) > 3 else ''}"
    remedy = "it was not trained to classify; choose a model that was"
    require(not missing, title, "have weights for the whole classifier", got, remedy)


def _class_names(config: Any) -> tuple[str, ...] | None:
    names = tuple(str(config.id2label[index]) for index in range(config.num_labels))
    invented = all(name == f"LABEL_{index}" for index, name in enumerate(names))  # where a configuration has none
    return None if invented else names


def preprocessing(title: str, processor: Any) -> tuple[View, list[float], list[float]]:
    """An image processor as a view, a mean and a standard deviation; an error where it does something else besides."""
    settings = processor.to_dict()
    try:
        view = _view(settings)
        scale = 255 * settings["rescale_factor"] if settings.get("do_rescale") else 255.0  # of an image in [0, 1]
        mean, std = [0.0] * 3, [1.0] * 3
        if settings.get("do_normalize"):
            mean, std = list(settings["image_mean"]), list(settings["image_std"])
        mean, std = [each / scale for each in mean], [each / scale for each in std]
        _check_alike(processor, view, mean, std)
    except (KeyError, TypeError, ValueError, IndexError, RuntimeError, AttributeError) as error:
        rule = "resize, crop at the centre and normalise pictures, and do nothing else"
        remedy = "look for the model in timm or torchvision, or write a factory for python:"
        kind = type(processor).__name__
        raise InputError(f"{title} must {rule}, got {kind} ({one_line(error)}): {remedy}") from error
    return view, mean, std


def _view(settings: Mapping[str, Any]) -> View:
    if not settings.get("do_resize"):
        raise ValueError("it does not resize")
    size, edge = settings["size"], settings["size"].get("shortest_edge")
    crop = settings.get("crop_size") if settings.get("do_center_crop") else None
    resize = edge or (size["height"], size["width"])
    if edge and settings.get("crop_pct"):  # of ConvNeXt and its relatives, which crop without saying so
        crop = {"height": edge, "width": edge}
        resize = (edge, edge) if edge >= SQUASHED else int(edge / settings["crop_pct"])
    if edge and not crop:
        raise ValueError("it does not crop, so that inputs would have different shapes")
    crop = crop or size
    return View(crop["height"], crop["width"], resize, RESAMPLING[int(settings["resample"])], rounded_down=True)


def _check_alike(processor: Any, view: View, mean: list[float], std: list[float]) -> None:
    """Compare with the processor itself, on noise of a size that needs no resizing: there nothing may differ."""
    image = imported("PIL.Image")
    if isinstance(view.resize, tuple):
        height, width = view.resize
    else:
        height = view.resize or view.height
        width = height + 33 + (2 - height + view.width) % 4  # so that it matters how the crop is rounded
    noise = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    picture = image.fromarray(noise)
    theirs = torch.as_tensor(processor(images=picture, return_tensors="pt")["pixel_values"])[0]
    ours = (view(picture) - torch.tensor(mean).view(-1, 1, 1)) / torch.tensor(std).view(-1, 1, 1)
    if theirs.shape != ours.shape:
        raise ValueError(f"its inputs have the shape {tuple(theirs.shape)}, not {tuple(ours.shape)}")
    furthest = float((theirs - ours).abs().max())
    if not furthest <= 1e-4:
        raise ValueError(f"its inputs differ by up to {furthest:.3g}")


SOURCE = ModelSource(
    "any image classifier on the Hugging Face hub, or in a folder of its layout",
    load_huggingface,
    "google/vit-base-patch16-224",
)
