"""EfficientNet-Lite as published, written down a second time: names and shapes of its weights, and what it computes.

Nothing here comes from the package, so that a mistake there cannot hide.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from testbed.robustbench_networks import Shapes, norm


class Variant(NamedTuple):
    """What differs between the networks: channels and blocks of the seven stages, and how large the images are."""

    channels: tuple[int, ...]
    blocks: tuple[int, ...]
    pixels: int
    parameters: int


VARIANTS = {
    0: Variant((16, 24, 40, 80, 112, 192, 320), (1, 2, 2, 3, 3, 4, 1), 224, 4_652_008),
    1: Variant((16, 24, 40, 80, 112, 192, 320), (1, 3, 3, 4, 4, 5, 1), 240, 5_416_680),
    2: Variant((16, 24, 48, 88, 120, 208, 352), (1, 3, 3, 4, 4, 5, 1), 260, 6_092_072),
}
KERNELS, STRIDES = (3, 3, 5, 3, 5, 5, 3), (1, 2, 2, 2, 1, 2, 1)


class Step(NamedTuple):
    """One block."""

    inputs: int
    inner: int
    outputs: int
    kernel: int
    stride: int


def steps(variant: Variant) -> list[Step]:
    found, inputs = [], 32
    for stage, (outputs, blocks) in enumerate(zip(variant.channels, variant.blocks, strict=True)):
        for block in range(blocks):
            inner = inputs * (6 if stage else 1)
            found.append(Step(inputs, inner, outputs, KERNELS[stage], 1 if block else STRIDES[stage]))
            inputs = outputs
    return found


def shapes(variant: Variant) -> Shapes:
    """Under the names in the published files."""
    found: Shapes = {"_conv_stem.weight": (32, 3, 3, 3)} | norm("_bn0", 32)
    for number, step in enumerate(steps(variant)):
        name = f"_blocks.{number}."
        if step.inner != step.inputs:
            found |= {f"{name}_expand_conv.weight": (step.inner, step.inputs, 1, 1)} | norm(f"{name}_bn0", step.inner)
        found |= {f"{name}_depthwise_conv.weight": (step.inner, 1, step.kernel, step.kernel)} | norm(f"{name}_bn1", step.inner)
        found |= {f"{name}_project_conv.weight": (step.outputs, step.inner, 1, 1)} | norm(f"{name}_bn2", step.outputs)
    found |= {"_conv_head.weight": (1280, variant.channels[-1], 1, 1)} | norm("_bn1", 1280)
    return found | {"_fc.weight": (1000, 1280), "_fc.bias": (1000,)}


def edges(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """TensorFlow's own words for "same": by the remainder of the size, with the odd one at the end."""
    whole = max(kernel - (size % stride or stride), 0)
    return whole // 2, whole - whole // 2


def run(weights: dict[str, Tensor], x: Tensor, variant: Variant) -> Tensor:
    def convolved(name: str, x: Tensor, stride: int = 1, groups: int = 1) -> Tensor:
        weight = weights[f"{name}.weight"]
        rows, columns = (edges(size, weight.shape[-1], stride) for size in x.shape[2:])
        return functional.conv2d(functional.pad(x, (*columns, *rows)), weight, stride=stride, groups=groups)

    def normalised(name: str, x: Tensor) -> Tensor:
        mean, variance, scale, shift = (
            weights[f"{name}.{each}"].view(-1, 1, 1) for each in ("running_mean", "running_var", "weight", "bias")
        )
        return (x - mean) / (variance + 0.001).sqrt() * scale + shift

    def clipped(x: Tensor) -> Tensor:
        return x.clamp(0, 6)

    x = clipped(normalised("_bn0", convolved("_conv_stem", x, 2)))
    for number, step in enumerate(steps(variant)):
        name, out = f"_blocks.{number}.", x
        if step.inner != step.inputs:
            out = clipped(normalised(f"{name}_bn0", convolved(f"{name}_expand_conv", out)))
        out = clipped(normalised(f"{name}_bn1", convolved(f"{name}_depthwise_conv", out, step.stride, step.inner)))
        out = normalised(f"{name}_bn2", convolved(f"{name}_project_conv", out))
        x = x + out if step.stride == 1 and step.inputs == step.outputs else out
    x = clipped(normalised("_bn1", convolved("_conv_head", x)))
    return torch.einsum("nc,kc->nk", x.mean((2, 3)), weights["_fc.weight"]) + weights["_fc.bias"]
