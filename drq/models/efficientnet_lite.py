"""EfficientNet-Lite (Tan and Le 2019; the variant of 2020 for phones): no squeeze and excitation, ReLU6, fixed stem and head."""

from __future__ import annotations

import math
import re

from torch import Tensor, nn
from torch.nn.functional import pad, relu6

# Expansion, kernel, stride, channels and blocks of each stage of EfficientNet-B0; the first and last keep their number of blocks.
STAGES = (
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)
STEM, HEAD = 32, 1280
EPSILON = 1e-3  # of batch norm, as published


def same_padding(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """What TensorFlow's "same" adds before and after ``size`` values, so that every ``stride``-th has an output.

    Where the sum is odd, the larger half comes after.

    >>> same_padding(224, kernel=3, stride=2), same_padding(15, kernel=5, stride=2), same_padding(7, kernel=5, stride=1)
    ((0, 1), (2, 2), (2, 2))
    """
    missing = max((math.ceil(size / stride) - 1) * stride + kernel - size, 0)
    return missing // 2, missing - missing // 2


class SameConv2d(nn.Conv2d):
    """A convolution that pads as TensorFlow's "same" does: with a stride, that depends on the size of the image."""

    def forward(self, x: Tensor) -> Tensor:
        rows, columns = (same_padding(*each) for each in zip(x.shape[-2:], self.kernel_size, self.stride, strict=True))
        return super().forward(pad(x, (*columns, *rows)))


def convolution(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    """With "same" padding, which is the same on all sides unless there is a stride."""
    if stride == 1:
        return nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, groups=groups, bias=False)
    return SameConv2d(inputs, outputs, kernel, stride, groups=groups, bias=False)


def norm(channels: int) -> nn.BatchNorm2d:
    """Batch norm with the published epsilon."""
    return nn.BatchNorm2d(channels, eps=EPSILON)


class Block(nn.Module):
    """Channels grow, are filtered one by one, and shrink; with a skip connection where shapes allow one.

    Args:
        inputs, outputs: channels.
        expansion: how many times the channels grow; 1 leaves that convolution out.
        kernel, stride: of the filters.
    """

    def __init__(self, inputs: int, outputs: int, expansion: int, kernel: int, stride: int) -> None:
        super().__init__()
        inner = inputs * expansion
        self.expands = expansion != 1
        if self.expands:
            self.expand_conv = convolution(inputs, inner, 1)
            self.bn0 = norm(inner)
        self.depthwise_conv = convolution(inner, inner, kernel, stride, groups=inner)
        self.bn1 = norm(inner)
        self.project_conv = convolution(inner, outputs, 1)
        self.bn2 = norm(outputs)
        self.keeps_shape = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        out = relu6(self.bn0(self.expand_conv(x))) if self.expands else x
        out = relu6(self.bn1(self.depthwise_conv(out)))
        out = self.bn2(self.project_conv(out))
        result: Tensor = x + out if self.keeps_shape else out
        return result


class EfficientNetLite(nn.Module):
    """Seven stages of blocks between a stem and a head.

    Args:
        classes: number of logits.
        width: multiplies the channels of the stages, rounded to eights.
        depth: multiplies the blocks of the stages but the first and the last, rounded up.
    """

    def __init__(self, classes: int = 1000, width: float = 1.0, depth: float = 1.0) -> None:
        super().__init__()
        self.conv_stem = convolution(3, STEM, 3, stride=2)
        self.bn0 = norm(STEM)
        self.blocks = nn.ModuleList()
        inputs = STEM
        for number, (expansion, kernel, stride, channels, blocks) in enumerate(STAGES):
            outputs = in_eights(channels * width)
            fixed = number in (0, len(STAGES) - 1)
            for place in range(blocks if fixed else math.ceil(blocks * depth)):
                self.blocks.append(Block(inputs, outputs, expansion, kernel, stride if place == 0 else 1))
                inputs = outputs
        self.conv_head = convolution(inputs, HEAD, 1)
        self.bn1 = norm(HEAD)
        self.fc = nn.Linear(HEAD, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = relu6(self.bn0(self.conv_stem(x)))
        for block in self.blocks:
            x = block(x)
        x = relu6(self.bn1(self.conv_head(x)))
        logits: Tensor = self.fc(x.mean((2, 3)))
        return logits


def in_eights(channels: float) -> int:
    """The nearest multiple of 8, which must not lose more than a tenth.

    >>> [in_eights(1.1 * channels) for channels in (24, 40, 80, 112)], in_eights(1.2 * 16)
    ([24, 48, 88, 120], 24)
    """
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded if rounded >= 0.9 * channels else rounded + 8


def renamed(name: str) -> str:
    """Our name for a published one.

    >>> renamed("_blocks.0._bn1.running_mean")
    'blocks.0.bn1.running_mean'
    """
    return re.sub(r"(^|\.)_", r"\1", name)
