"""Stand-ins for timm, torchvision, transformers and the Hugging Face hub, as far as they are asked: what else is called fails."""

import enum
import fnmatch
import math
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn


def module(name: str, **contents: Any) -> ModuleType:
    made = ModuleType(name)
    made.__dict__.update(contents)
    return made


class Net(nn.Module):
    """A classifier of images of any size, in training mode as libraries hand them out."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(3, classes)
        self.normalised: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.normalised = x
        return self.head(x.mean((2, 3)))


@dataclass
class Hub:
    """The cache of the hub on this machine, and the hub itself."""

    cached: dict[str, Path] = field(default_factory=dict)
    online: dict[str, Path] = field(default_factory=dict)
    reachable: bool = False
    calls: list[dict[str, Any]] = field(default_factory=list)

    def snapshot_download(
        self,
        repo_id: str,
        *,
        allow_patterns: list[str],
        local_files_only: bool,
        revision: str | None = None,
        token: str | None = None,
    ) -> str:
        self.calls.append({"repo_id": repo_id, "local_files_only": local_files_only, "revision": revision, "token": token})
        if local_files_only:
            if repo_id not in self.cached:
                raise FileNotFoundError("Cannot find an appropriate cached snapshot folder\nand more")
            return str(self.cached[repo_id])
        if not self.reachable:
            raise FileNotFoundError("We went on about the cache") from ConnectionError("Name or service\nnot known")
        folder = self.online[repo_id]
        for file in folder.iterdir():
            if not any(fnmatch.fnmatch(file.name, pattern) for pattern in allow_patterns):
                file.unlink()
        return str(folder)

    @property
    def called_out(self) -> bool:
        return any(not call["local_files_only"] for call in self.calls)


@dataclass
class Published:
    """An entry of timm's records."""

    architecture: str = "netlet"
    tag: str = "a1_in1k"
    num_classes: int = 6
    hf_hub_id: str | None = "timm/netlet.a1_in1k"
    hf_hub_filename: str | None = None
    url: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    label_names: tuple[str, ...] | None = None

    @property
    def has_weights(self) -> bool:
        return bool(self.hf_hub_id or self.url)


class Timm:
    """timm and timm.data, with one architecture."""

    def __init__(self) -> None:
        self.published = Published()
        self.loaded_from: str | None = None
        self.module = module(
            "timm",
            list_models=lambda: ["netlet", "netlet_large"],
            list_pretrained=lambda: ["netlet.a1_in1k"],
            get_pretrained_cfg=self.record,
            create_model=self.create_model,
        )
        self.data = module(
            "timm.data",
            resolve_model_data_config=self.settings,
            infer_imagenet_subset=lambda model: {6: "imagenet-6"}.get(model.num_classes),
            ImageNetInfo=self.names,
        )

    def record(self, name: str) -> Published:
        assert name in ("netlet", "netlet.a1_in1k")
        return self.published

    def names(self, subset: str) -> Any:
        assert subset == "imagenet-6"
        return SimpleNamespace(num_classes=lambda: 6, index_to_description="beast {}".format)

    def create_model(
        self,
        model_name,
        pretrained,
        pretrained_cfg_overlay,
        checkpoint_path,
        cache_dir,
        num_classes=None,
        img_size=None,
        in_chans=3,
    ):
        self.record(model_name)
        assert checkpoint_path is None
        assert cache_dir is None
        model = Net(num_classes or self.published.num_classes)
        model.num_classes = model.head.out_features
        model.pretrained_cfg = {"label_names": self.published.label_names, **(pretrained_cfg_overlay or {})}
        if pretrained:
            overlay = dict(pretrained_cfg_overlay)
            assert overlay.pop("custom_load") is False
            ((self.loaded_from, source),) = overlay.items()
            if self.loaded_from == "file":
                from safetensors.torch import load_file

                source = load_file(source)
            model.load_state_dict(source)
        return model

    def settings(self, model: nn.Module, args: dict[str, Any]) -> dict[str, Any]:
        usual = {"input_size": (3, 32, 32), "interpolation": "bicubic", "crop_pct": 0.9, "crop_mode": "center"}
        return {**usual, "mean": (0.1, 0.2, 0.3), "std": (0.4, 0.5, 0.6), **self.published.settings, **args}


class WeightsEnum(enum.Enum):
    @classmethod
    def verify(cls, entry: Any) -> Any:
        if entry is not None and not isinstance(entry, cls):
            raise TypeError("Invalid Weight class provided")
        return entry

    @property
    def url(self) -> str:
        return self.value.url

    @property
    def meta(self) -> dict[str, Any]:
        return self.value.meta

    @property
    def transforms(self) -> Any:
        return self.value.transforms

    def get_state_dict(self, **_: Any) -> None:
        raise AssertionError("torchvision itself unpickles files as code")


def torchvision(address: str = "https://example.invalid/models/netlet-{}.pth") -> ModuleType:
    """torchvision.models with an architecture of two published weights, and one of features only."""

    def entry(digits: str, resize: int, interpolation: str, categories: list[str] | None) -> SimpleNamespace:
        preset = SimpleNamespace(
            crop_size=[28],
            resize_size=[resize],
            mean=[0.1, 0.2, 0.3],
            std=[0.4, 0.5, 0.6],
            interpolation=SimpleNamespace(value=interpolation),
        )
        meta = {"categories": categories, "min_size": (28, 28)}
        return SimpleNamespace(url=address.format(digits), transforms=lambda: preset, meta=meta)

    names = ["netlet", "vit_netlet"]
    beasts = ["ant", "bee", "cat"]
    first, second = entry("00000001", 32, "bilinear", beasts), entry("00000002", 30, "bicubic", beasts)
    members = {"V1": first, "V2": second, "FEATURES": entry("00000003", 32, "bilinear", None), "DEFAULT": second}
    entries = WeightsEnum("Netlet_Weights", members)

    def get_model(name: str, *, weights: Any, num_classes: int | None = None, image_size: int = 0) -> nn.Module:
        assert name in names
        weights = entries.verify(weights)
        if weights is not None:
            num_classes = len(weights.meta["categories"])
        model = Net(num_classes or 3)
        model.image_size = image_size
        if weights is not None:
            model.load_state_dict(weights.get_state_dict(progress=True, check_hash=True))
        return model

    models = module("torchvision.models", get_model=get_model)
    models.get_model_weights = dict.fromkeys(names, entries).__getitem__
    models.list_models = lambda module: names if module is models else [*names, "segmenter"]
    return models


@dataclass
class Processor:
    """An image processor as the library has them: PIL resizes, what is left over at odd sizes is cut off at the end."""

    settings: dict[str, Any]
    flipped: bool = False

    def to_dict(self) -> dict[str, Any]:
        return self.settings

    def __call__(self, *, images: Image.Image, return_tensors: str) -> dict[str, Tensor]:
        assert return_tensors == "pt"
        size, settings = self.settings["size"], self.settings
        width, height = images.size
        if edge := size.get("shortest_edge"):
            scale = int(edge / settings["crop_pct"]) if "crop_pct" in settings else edge
            wanted = (math.floor(scale * height / min(height, width)), math.floor(scale * width / min(height, width)))
        else:
            wanted = (size["height"], size["width"])
        images = images.resize(wanted[::-1], settings["resample"])
        crop = (
            settings["crop_size"] if settings.get("do_center_crop") else {"height": edge or wanted[0], "width": edge or wanted[1]}
        )
        top, left = (wanted[0] - crop["height"]) // 2, (wanted[1] - crop["width"]) // 2
        pixels = torch.from_numpy(np.array(images)).permute(2, 0, 1)[:, top : top + crop["height"], left : left + crop["width"]]
        x = pixels.flip(0).double() if self.flipped else pixels.double()
        x = x * settings["rescale_factor"] if settings["do_rescale"] else x
        if settings["do_normalize"]:
            mean, std = (torch.tensor(settings[key]).view(3, 1, 1) for key in ("image_mean", "image_std"))
            x = (x - mean) / std
        return {"pixel_values": x.float()[None]}


class Transformers:
    """The three Auto classes. What they are asked is kept."""

    def __init__(self) -> None:
        self.processor = Processor(
            {
                "do_resize": True,
                "size": {"height": 24, "width": 20},
                "resample": 2,
                "do_rescale": True,
                "rescale_factor": 1 / 255,
                "do_normalize": True,
                "image_mean": [0.1, 0.2, 0.3],
                "image_std": [0.4, 0.5, 0.6],
            }
        )
        self.id2label = {0: "ant", 1: "bee", 2: "cat"}
        self.missing: set[str] = set()
        self.mismatched: set[Any] = set()
        self.asked: dict[str, dict[str, Any]] = {}
        self.verbosity, self.bars = 30, True
        self.module = module(
            "transformers",
            logging=SimpleNamespace(
                CRITICAL=50,
                get_verbosity=lambda: self.verbosity,
                set_verbosity=lambda level: setattr(self, "verbosity", level),
                is_progress_bar_enabled=lambda: self.bars,
                disable_progress_bar=lambda: setattr(self, "bars", False),
                enable_progress_bar=lambda: setattr(self, "bars", True),
            ),
            AutoConfig=SimpleNamespace(from_pretrained=self.config),
            AutoImageProcessor=SimpleNamespace(from_pretrained=self.image_processor),
            AutoModelForImageClassification=SimpleNamespace(from_pretrained=self.model, from_config=self.random),
        )

    def config(self, folder, *, return_unused_kwargs, trust_remote_code, local_files_only, num_labels=None, **rest):
        assert return_unused_kwargs
        self.asked["config"] = {"folder": folder, "trust": trust_remote_code, "local": local_files_only}
        count = num_labels or len(self.id2label)
        labels = self.id2label if count == len(self.id2label) else {index: f"LABEL_{index}" for index in range(count)}
        return SimpleNamespace(num_labels=count, id2label=labels), rest

    def image_processor(self, folder, *, trust_remote_code, local_files_only):
        self.asked["processor"] = {"folder": folder, "trust": trust_remote_code, "local": local_files_only}
        return self.processor

    def model(self, folder, *, config, use_safetensors, output_loading_info, trust_remote_code, local_files_only, attention=None):
        assert output_loading_info
        self.asked["model"] = {"folder": folder, "trust": trust_remote_code, "local": local_files_only, "safe": use_safetensors}
        from safetensors.torch import load_file

        self.asked["quiet"] = {"verbosity": self.verbosity, "bars": self.bars}
        model = Logits(config.num_labels)
        model.load_state_dict(load_file(folder / "model.safetensors"))
        return model.bfloat16(), {"missing_keys": self.missing, "mismatched_keys": self.mismatched, "unexpected_keys": {"old"}}

    def random(self, config, *, trust_remote_code, attention=None):
        self.asked["random"] = {"trust": trust_remote_code}
        return Logits(config.num_labels)


class Logits(Net):
    """Logits as transformers returns them."""

    def forward(self, x: Tensor) -> Any:
        return SimpleNamespace(logits=super().forward(x))
