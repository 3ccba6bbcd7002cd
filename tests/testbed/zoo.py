"""The models that the tests of this folder share: real architectures of real libraries, with random weights."""

import atexit
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from drq.models.classifier import Classifier
from drq.models.libraries import load_huggingface, load_timm, load_torchvision

LIBRARIES = ("timm", "torchvision", "transformers", "huggingface_hub")
timm, torchvision, transformers, huggingface_hub = (
    pytest.importorskip(library, reason="make test-zoo installs timm, torchvision and transformers") for library in LIBRARIES
)

SHORT = {"hidden_sizes": [16, 24, 32, 48], "depths": [1, 1, 2, 1], "num_labels": 12}
CONFIGS: dict[str, tuple[Any, Any]] = {
    "vit": (
        transformers.ViTConfig(
            hidden_size=48,
            num_hidden_layers=3,
            num_attention_heads=3,
            intermediate_size=96,
            image_size=96,
            num_labels=12,
            id2label={index: f"animal {index}" for index in range(12)},
        ),
        transformers.ViTImageProcessor(size={"height": 96, "width": 96}, image_mean=[0.5, 0.4, 0.3], image_std=[0.2, 0.3, 0.4]),
    ),
    "convnext": (
        transformers.ConvNextConfig(**SHORT, layer_scale_init_value=0.5),
        transformers.ConvNextImageProcessor(size={"shortest_edge": 224}, crop_pct=0.875, resample=3),
    ),
    "resnet": (
        transformers.ResNetConfig(**SHORT, embedding_size=16, layer_type="basic"),
        transformers.BitImageProcessor(size={"shortest_edge": 146}, crop_size={"height": 128, "width": 128}),
    ),
}
NAMES = [
    "torchvision:resnet18",
    "torchvision:convnext_tiny",
    "timm:resnet50",
    "timm:vit_tiny_patch16_224",
    "timm:swin_tiny_patch4_window7_224",
    "hf:vit",
    "hf:convnext",
    "hf:resnet",
]
TRAINABLE = {"resnet50": {"zero_init_last": False}}  # or its untrained blocks pass nothing on but every other pixel


def save(kind: str, folder: Path, seed: int = 0, **options: Any) -> nn.Module:
    """A model of Hugging Face, written as one that is published: config.json, model.safetensors, preprocessor_config.json."""
    config, processor = CONFIGS[kind]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = transformers.AutoModelForImageClassification.from_config(config)
    model.eval().save_pretrained(folder, **options)
    processor.save_pretrained(folder)
    return model


@cache
def folder(kind: str) -> Path:
    place = Path(mkdtemp(prefix=f"drq-zoo-{kind}-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    save(kind, place)
    return place


@cache
def load(name: str) -> Classifier:
    kind, _, rest = name.partition(":")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        if kind == "hf":
            return load_huggingface(str(folder(rest)))
        loader, options = (load_timm, TRAINABLE.get(rest, {})) if kind == "timm" else (load_torchvision, {})
        return loader(rest, pretrained=False, **options)


def pipeline(name: str, **options: str) -> Callable[[Image.Image], Tensor]:
    """The library's own preprocessing of this model, normalisation included."""
    kind, _, rest = name.partition(":")
    if kind == "torchvision":
        return torchvision.models.get_model_weights(rest).DEFAULT.transforms()
    if kind == "timm":
        config = timm.data.resolve_model_data_config(timm.create_model(rest))
        return timm.data.create_transform(**config, is_training=False)
    processor = transformers.AutoImageProcessor.from_pretrained(folder(rest), **options)
    return lambda picture: processor(images=picture, return_tensors="pt")["pixel_values"][0]


def check_near(ours: Tensor, theirs: Tensor) -> None:
    """Images in [0, 1] that were resized by PIL and by torch, which round in between, and in another order.

    The order matters more where bicubic interpolation overshoots white or black and is cut off in between: by up to 14 levels
    in noise of full contrast. So compare pictures of less.
    """
    apart = (ours - theirs).abs() * 255
    print(f"levels of 255: {float(apart.max()):.2f} at most, {float(apart.mean()):.4f} on average")
    assert apart.max() < 2.01
    assert (apart > 1.01).float().mean() < 1e-4
    assert apart.mean() < 0.35


def bare(model: Classifier) -> nn.Module:
    """The library's module inside ours."""
    return getattr(model.model, "model", model.model) if "hf:" in model.card.name else model.model


def picture(height: int, width: int, seed: int = 0, contrast: float = 1.0) -> Image.Image:
    """Coarse patches with noise on top: what a resize does to edges and to fine grain shows."""
    random = np.random.default_rng(seed)
    coarse = random.integers(0, 256, (height // 16 + 1, width // 16 + 1, 3)).repeat(16, 0).repeat(16, 1)[:height, :width]
    values = (coarse + random.integers(-40, 40, (height, width, 3))).clip(0, 255)
    return Image.fromarray((127.5 + contrast * (values - 127.5)).astype(np.uint8))


def native(model: Classifier) -> Image.Image:
    """A picture that needs no resizing for this model."""
    resize = model.card.view.resize
    return picture(*(resize if isinstance(resize, tuple) else (resize, resize + 21)), seed=1)
