"""Our own architectures by name, built without values: the weights come from a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import torch
from torch import nn

from drq.errors import nearest, require
from drq.images import View
from drq.models.cifar_resnet import CifarResNet
from drq.models.efficientnet_lite import EfficientNetLite
from drq.models.efficientnet_lite import renamed as without_underscores
from drq.models.preact_resnet import PreActResNet18
from drq.models.resnet import ResNet50
from drq.models.small_networks import LeNet5, PlainResNet, four_layers
from drq.models.wide_resnet import WideResNet, renamed

SMALL_VIEW = View(32, 32, interpolation="bicubic")
GREY_VIEW = View(28, 28, channels=1)
LARGE_VIEW = View(224, 224, resize=256)


class Architecture(NamedTuple):
    """How a network is built, and what it looks at."""

    build: Callable[[int], nn.Module]  # from the number of classes
    view: View = SMALL_VIEW
    rename: Callable[[str], str] = str  # from the published names of its weights to ours


def _lite(width: float, depth: float, pixels: int) -> Architecture:
    """An EfficientNet-Lite, which looks at the whole of a picture but for what a square leaves out."""
    build = partial(EfficientNetLite, width=width, depth=depth)
    return Architecture(build, View(pixels, pixels, interpolation="bicubic"), without_underscores)


ARCHITECTURES: Mapping[str, Architecture] = {
    "preact_resnet18": Architecture(PreActResNet18),  # Rice et al. 2020
    "preact_resnet18_wong": Architecture(lambda classes: PreActResNet18(classes, final_norm=False, from_input=True)),
    "wrn_10_2_half": Architecture(lambda classes: WideResNet(10, 2, classes, "silu", stride=2)),
    "wrn_28_2_swish": Architecture(lambda classes: WideResNet(28, 2, classes, "silu")),
    "wrn_28_10_gowal": Architecture(lambda classes: WideResNet(28, 10, classes, "silu", pad_end=True), rename=renamed),
    "wrn_40_2": Architecture(lambda classes: WideResNet(40, 2, classes)),  # Hendrycks et al. 2020, AugMix
    "resnet20": Architecture(partial(CifarResNet, 20)),  # He et al. 2016
    "resnet56": Architecture(partial(CifarResNet, 56)),
    "resnet_2b": Architecture(partial(PlainResNet, 8, stages=1)),  # Wang et al. 2021
    "resnet_4b": Architecture(partial(PlainResNet, 16, stages=2)),
    "four_layers": Architecture(partial(four_layers, 3, 32)),  # CNN-A of Dathathri et al. 2020
    "four_layers_grey": Architecture(partial(four_layers, 1, 28), GREY_VIEW),  # Wong and Kolter 2018
    "lenet5": Architecture(LeNet5, GREY_VIEW),
    "resnet50": Architecture(ResNet50, LARGE_VIEW),
    "efficientnet_lite0": _lite(1.0, 1.0, 224),
    "efficientnet_lite1": _lite(1.0, 1.1, 240),
    "efficientnet_lite2": _lite(1.1, 1.2, 260),
}


def architecture(name: str) -> Architecture:
    """The architecture of that name."""
    remedy = nearest(name, ARCHITECTURES, "timm:, torchvision: and hf: have more")
    require(name in ARCHITECTURES, "arch", f"be one of {', '.join(ARCHITECTURES)}", repr(name), remedy)
    return ARCHITECTURES[name]


def blank(name: str, classes: int) -> nn.Module:
    """The network without values, so that the global random state rests."""
    require(classes >= 2, "classes", "be at least 2", classes, "count the logits of the model")
    with torch.device("meta"):
        return architecture(name).build(classes)
