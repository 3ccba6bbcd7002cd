"""The networks that RobustBench publishes, written down a second time: names and shapes of their weights, and what they compute.

Nothing here comes from the package, so that a mistake there cannot hide.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

Shapes = dict[str, tuple[int, ...]]


def norm(name: str, channels: int) -> Shapes:
    counted = {f"{name}.{each}": (channels,) for each in ("weight", "bias", "running_mean", "running_var")}
    return counted | {f"{name}.num_batches_tracked": ()}


def preact_resnet18(classes: int, final_norm: bool) -> Shapes:
    """``conv1``, ``layer1.0.bn1``, ..., ``linear``; ``bn`` only with a final batch norm."""
    shapes: Shapes = {"conv1.weight": (64, 3, 3, 3)}
    inputs = 64
    for stage, outputs in enumerate((64, 128, 256, 512), 1):
        for block in range(2):
            name = f"layer{stage}.{block}"
            shapes |= norm(f"{name}.bn1", inputs) | {f"{name}.conv1.weight": (outputs, inputs, 3, 3)}
            shapes |= norm(f"{name}.bn2", outputs) | {f"{name}.conv2.weight": (outputs, outputs, 3, 3)}
            if inputs != outputs:
                shapes[f"{name}.shortcut.0.weight"] = (outputs, inputs, 1, 1)
            inputs = outputs
    shapes |= {"linear.weight": (classes, 512), "linear.bias": (classes,)}
    return shapes | (norm("bn", 512) if final_norm else {})


class Names(NamedTuple):
    """What the parts of a wide residual network are called."""

    first: str
    block: str
    norms: tuple[str, str]
    convolutions: tuple[str, str]
    around: str
    norm: str
    last: str


AUGMIX = Names("conv1", "block{0}.layer.{1}", ("bn1", "bn2"), ("conv1", "conv2"), "convShortcut", "bn1", "fc")
GOWAL = Names(
    "init_conv", "layer.{2}.block.{1}", ("batchnorm_0", "batchnorm_1"), ("conv_0", "conv_1"), "shortcut", "batchnorm", "logits"
)


def wide_resnet(depth: int, width: int, classes: int, names: Names) -> Shapes:
    shapes: Shapes = {f"{names.first}.weight": (16, 3, 3, 3)}
    inputs = 16
    for stage, outputs in enumerate((16 * width, 32 * width, 64 * width)):
        for block in range((depth - 4) // 6):
            name = names.block.format(stage + 1, block, stage)
            for place, channels in enumerate((inputs, outputs)):
                shapes |= norm(f"{name}.{names.norms[place]}", channels)
                shapes[f"{name}.{names.convolutions[place]}.weight"] = (outputs, channels, 3, 3)
            if inputs != outputs:
                shapes[f"{name}.{names.around}.weight"] = (outputs, inputs, 1, 1)
            inputs = outputs
    return shapes | norm(names.norm, inputs) | {f"{names.last}.weight": (classes, inputs), f"{names.last}.bias": (classes,)}


def resnet50(classes: int) -> Shapes:
    """torchvision's names."""
    shapes: Shapes = {"conv1.weight": (64, 3, 7, 7)} | norm("bn1", 64)
    inputs = 64
    for stage, (inner, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3)), 1):
        for block in range(blocks):
            name = f"layer{stage}.{block}"
            for place, shape in enumerate(((inner, inputs, 1, 1), (inner, inner, 3, 3), (4 * inner, inner, 1, 1)), 1):
                shapes |= {f"{name}.conv{place}.weight": shape} | norm(f"{name}.bn{place}", shape[0])
            if block == 0:
                around = f"{name}.downsample"
                shapes |= {f"{around}.0.weight": (4 * inner, inputs, 1, 1)} | norm(f"{around}.1", 4 * inner)
            inputs = 4 * inner
    return shapes | {"fc.weight": (classes, 2048), "fc.bias": (classes,)}


def values(shapes: Shapes, seed: int = 0) -> dict[str, Tensor]:
    """Weights of these shapes, with which a network neither dies nor explodes."""
    draws = torch.Generator().manual_seed(seed)
    found = {}
    for name, shape in shapes.items():
        if name.endswith("num_batches_tracked"):
            found[name] = torch.tensor(7)
        elif name.endswith("running_var"):
            found[name] = 0.5 + torch.rand(shape, generator=draws)
        else:
            fan_in = torch.tensor(shape[1:]).prod().item() if len(shape) > 1 else 4
            found[name] = torch.randn(shape, generator=draws) / max(fan_in, 1) ** 0.5
    return found


class Network:
    """Computes with named weights."""

    def __init__(self, weights: dict[str, Tensor]) -> None:
        self.weights = weights

    def norm(self, name: str, x: Tensor) -> Tensor:
        mean, variance, scale, shift = (
            self.weights[f"{name}.{each}"].view(-1, 1, 1) for each in ("running_mean", "running_var", "weight", "bias")
        )
        return (x - mean) / (variance + 1e-5).sqrt() * scale + shift

    def conv(self, name: str, x: Tensor, stride: int = 1, padding: int = 0) -> Tensor:
        return functional.conv2d(x, self.weights[f"{name}.weight"], stride=stride, padding=padding)

    def linear(self, name: str, x: Tensor) -> Tensor:
        return x.mean((2, 3)) @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]


def run_preact_resnet18(weights: dict[str, Tensor], x: Tensor, final_norm: bool, shortcut_from_input: bool) -> Tensor:
    net = Network(weights)
    x = net.conv("conv1", x, padding=1)
    for stage in range(1, 5):
        for block in range(2):
            name, stride = f"layer{stage}.{block}", 2 if stage > 1 and block == 0 else 1
            active = torch.relu(net.norm(f"{name}.bn1", x))
            around = x
            if f"{name}.shortcut.0.weight" in weights:
                around = net.conv(f"{name}.shortcut.0", x if shortcut_from_input else active, stride)
            out = torch.relu(net.norm(f"{name}.bn2", net.conv(f"{name}.conv1", active, stride, 1)))
            x = around + net.conv(f"{name}.conv2", out, 1, 1)
    return net.linear("linear", torch.relu(net.norm("bn", x)) if final_norm else x)


def run_wide_resnet(weights: dict[str, Tensor], x: Tensor, depth: int, names: Names) -> Tensor:
    """Gowal's has Swish, and pads a halved image below and to the right only."""
    net, gowal = Network(weights), names is GOWAL
    active: Callable[[Tensor], Tensor] = (lambda x: x * torch.sigmoid(x)) if gowal else torch.relu
    x = net.conv(names.first, x, padding=1)
    for stage in range(3):
        for block in range((depth - 4) // 6):
            name, stride = names.block.format(stage + 1, block, stage), 2 if stage > 0 and block == 0 else 1
            inner = active(net.norm(f"{name}.{names.norms[0]}", x))
            around = net.conv(f"{name}.{names.around}", inner, stride) if f"{name}.{names.around}.weight" in weights else x
            edges = (0, 1, 0, 1) if gowal and stride == 2 else (1, 1, 1, 1)
            out = net.conv(f"{name}.{names.convolutions[0]}", functional.pad(inner, edges), stride)
            x = around + net.conv(f"{name}.{names.convolutions[1]}", active(net.norm(f"{name}.{names.norms[1]}", out)), 1, 1)
    return net.linear(names.last, active(net.norm(names.norm, x)))


def run_resnet50(weights: dict[str, Tensor], x: Tensor) -> Tensor:
    net = Network(weights)
    x = functional.max_pool2d(torch.relu(net.norm("bn1", net.conv("conv1", x, 2, 3))), 3, 2, 1)
    for stage, blocks in enumerate((3, 4, 6, 3), 1):
        for block in range(blocks):
            name, stride = f"layer{stage}.{block}", 2 if stage > 1 and block == 0 else 1
            around = net.norm(f"{name}.downsample.1", net.conv(f"{name}.downsample.0", x, stride)) if block == 0 else x
            out = torch.relu(net.norm(f"{name}.bn1", net.conv(f"{name}.conv1", x)))
            out = torch.relu(net.norm(f"{name}.bn2", net.conv(f"{name}.conv2", out, stride, 1)))
            x = torch.relu(around + net.norm(f"{name}.bn3", net.conv(f"{name}.conv3", out)))
    return net.linear("fc", x)
