"""Small published networks, written down a second time: names and shapes of their weights, and what they compute.

Nothing here comes from the package, so that a mistake there cannot hide.
"""

import torch
from torch import Tensor
from torch.nn.functional import conv2d, max_pool2d

from testbed.robustbench_networks import Network, Shapes, norm

Weights = dict[str, Tensor]


def biased(name: str, *shape: int) -> Shapes:
    return {f"{name}.weight": shape, f"{name}.bias": shape[:1]}


def convolved(weights: Weights, name: str, x: Tensor, stride: int, padding: int) -> Tensor:
    return conv2d(x, weights[f"{name}.weight"], weights[f"{name}.bias"], stride, padding)


def linear(weights: Weights, name: str, x: Tensor) -> Tensor:
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def resnet(depth: int) -> Shapes:
    """He et al. 2016 on CIFAR-10, shortcuts without weights."""
    shapes: Shapes = {"conv1.weight": (16, 3, 3, 3)} | norm("bn1", 16)
    inputs = 16
    for stage, outputs in enumerate((16, 32, 64), 1):
        for block in range((depth - 2) // 6):
            for place, each in enumerate((inputs, outputs), 1):
                shapes[f"layer{stage}.{block}.conv{place}.weight"] = (outputs, each, 3, 3)
                shapes |= norm(f"layer{stage}.{block}.bn{place}", outputs)
            inputs = outputs
    return shapes | biased("linear", 10, 64)


def run_resnet(weights: Weights, x: Tensor) -> Tensor:
    net = Network(weights)
    x = torch.relu(net.norm("bn1", net.conv("conv1", x, padding=1)))
    for stage in (1, 2, 3):
        block = 0
        while f"layer{stage}.{block}.conv1.weight" in weights:
            name, halves = f"layer{stage}.{block}", stage > 1 and block == 0
            around = x
            if halves:
                around = x[:, :, ::2, ::2]
                zeros = torch.zeros_like(around)[:, : around.shape[1] // 2]
                around = torch.cat([zeros, around, zeros], 1)
            out = torch.relu(net.norm(f"{name}.bn1", net.conv(f"{name}.conv1", x, 2 if halves else 1, 1)))
            x = torch.relu(around + net.norm(f"{name}.bn2", net.conv(f"{name}.conv2", out, 1, 1)))
            block += 1
    return net.linear("linear", x)


def plain_resnet(width: int, stages: int) -> Shapes:
    """ResNet-2B and -4B of Wang et al. 2021."""
    shapes, wide = biased("conv1", width, 3, 3, 3), 2 * width
    for stage in range(1, stages + 1):
        name, inputs = f"layer{stage}", width if stage == 1 else wide
        shapes |= biased(f"{name}.0.conv1", wide, inputs, 3, 3) | biased(f"{name}.0.conv2", wide, wide, 3, 3)
        shapes |= biased(f"{name}.0.shortcut.0", wide, inputs, 1, 1)
        shapes |= biased(f"{name}.1.conv1", wide, wide, 3, 3) | biased(f"{name}.1.conv2", wide, wide, 3, 3)
    pixels = {1: 8, 2: 4}[stages]
    return shapes | biased("linear1", 100, wide * pixels * pixels) | biased("linear2", 10, 100)


def run_plain_resnet(weights: Weights, x: Tensor) -> Tensor:
    x = torch.relu(convolved(weights, "conv1", x, 2, 1))
    for name in ("layer1.0", "layer1.1", "layer2.0", "layer2.1"):
        if f"{name}.conv1.weight" in weights:
            first = name.endswith("0")
            around = convolved(weights, f"{name}.shortcut.0", x, 2, 0) if first else x
            out = torch.relu(convolved(weights, f"{name}.conv1", x, 2 if first else 1, 1))
            x = torch.relu(around + convolved(weights, f"{name}.conv2", out, 1, 1))
    return linear(weights, "linear2", torch.relu(linear(weights, "linear1", x.flatten(1))))


def four_layers(channels: int, pixels: int) -> Shapes:
    """Places in a row, with activations and the flattening between them."""
    inner = 32 * (pixels // 4) ** 2
    return biased("0", 16, channels, 4, 4) | biased("2", 32, 16, 4, 4) | biased("5", 100, inner) | biased("7", 10, 100)


def run_four_layers(weights: Weights, x: Tensor) -> Tensor:
    x = torch.relu(convolved(weights, "0", x, 2, 1))
    x = torch.relu(convolved(weights, "2", x, 2, 1))
    return linear(weights, "7", torch.relu(linear(weights, "5", x.flatten(1))))


def lenet5() -> Shapes:
    inner = biased("linear1", 200, 64 * 7 * 7) | biased("linear2", 10, 200)
    return biased("conv1", 32, 1, 3, 3) | biased("conv2", 64, 32, 3, 3) | inner


def run_lenet5(weights: Weights, x: Tensor) -> Tensor:
    """Pooled before ReLU, which is the same."""
    x = torch.relu(max_pool2d(convolved(weights, "conv1", x, 1, 1), 2))
    x = torch.relu(max_pool2d(convolved(weights, "conv2", x, 1, 1), 2))
    return linear(weights, "linear2", torch.relu(linear(weights, "linear1", x.flatten(1))))
