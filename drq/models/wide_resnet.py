"""Wide residual networks for 32 x 32 images (Zagoruyko and Komodakis 2016), with the names that AugMix's weights have."""

from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor, nn
from torch.nn.functional import pad, relu, silu

ACTIVATIONS = {"relu": relu, "silu": silu}


class Block(nn.Module):
    """Two convolutions, each behind batch norm and activation, and a skip connection."""

    def __init__(self, inputs: int, outputs: int, stride: int, activation: str, pad_end: bool) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.pad_end = pad_end and stride == 2
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 0 if self.pad_end else 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.changes_shape = inputs != outputs
        if self.changes_shape:
            self.convShortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
        self.activation = ACTIVATIONS[activation]

    def forward(self, x: Tensor) -> Tensor:
        active = self.activation(self.bn1(x))
        around = self.convShortcut(active) if self.changes_shape else x
        out = self.conv1(pad(active, (0, 1, 0, 1)) if self.pad_end else active)
        result: Tensor = around + self.conv2(self.activation(self.bn2(out)))
        return result


class Stage(nn.Module):
    """Blocks of one width; the first may halve the image."""

    def __init__(self, blocks: int, inputs: int, outputs: int, stride: int, activation: str, pad_end: bool) -> None:
        super().__init__()
        first = Block(inputs, outputs, stride, activation, pad_end)
        self.layer = nn.Sequential(first, *(Block(outputs, outputs, 1, activation, pad_end) for _ in range(blocks - 1)))

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.layer(x)
        return result


class WideResNet(nn.Module):
    """WRN-depth-width: three stages of (depth - 4) / 6 blocks.

    Args:
        depth: of the network; 6 n + 4.
        width: multiplies the channels 16, 32 and 64 of the stages.
        classes: number of logits.
        activation: "relu", or "silu" (Swish, as in Gowal et al. 2020).
        pad_end: where an image is halved, pad it below and to the right only, as TensorFlow's "same" does (Gowal et al. 2020).
        stride: of the first convolution; 2 halves the image at once, which takes a quarter of the time.
    """

    def __init__(
        self, depth: int, width: int, classes: int = 10, activation: str = "relu", pad_end: bool = False, stride: int = 1
    ) -> None:
        super().__init__()
        blocks, outputs = (depth - 4) // 6, [16 * width, 32 * width, 64 * width]
        self.conv1 = nn.Conv2d(3, 16, 3, stride, 1, bias=False)
        self.block1 = Stage(blocks, 16, outputs[0], 1, activation, pad_end)
        self.block2 = Stage(blocks, outputs[0], outputs[1], 2, activation, pad_end)
        self.block3 = Stage(blocks, outputs[1], outputs[2], 2, activation, pad_end)
        self.bn1 = nn.BatchNorm2d(outputs[2])
        self.fc = nn.Linear(outputs[2], classes)
        self.activation = ACTIVATIONS[activation]

    def forward(self, x: Tensor) -> Tensor:
        x = self.block3(self.block2(self.block1(self.conv1(x))))
        logits: Tensor = self.fc(self.activation(self.bn1(x)).mean((2, 3)))
        return logits


DEEPMIND = {  # the names of Gowal et al. 2020, and ours
    r"^init_conv\.": "conv1.",
    r"^layer\.0\.block\.": "block1.layer.",
    r"^layer\.1\.block\.": "block2.layer.",
    r"^layer\.2\.block\.": "block3.layer.",
    r"\.batchnorm_0\.": ".bn1.",
    r"\.batchnorm_1\.": ".bn2.",
    r"\.conv_0\.": ".conv1.",
    r"\.conv_1\.": ".conv2.",
    r"\.shortcut\.": ".convShortcut.",
    r"^batchnorm\.": "bn1.",
    r"^logits\.": "fc.",
}


def renamed(name: str, names: Mapping[str, str] = DEEPMIND) -> str:
    """A weight's name in this file, from its name in another's.

    >>> renamed("layer.1.block.0.batchnorm_0.weight")
    'block2.layer.0.bn1.weight'
    """
    for theirs, ours in names.items():
        name = re.sub(theirs, ours, name)
    return name
