"""Residual networks for 32 x 32 images as first published (He et al. 2016): skip connections have no weights."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import pad


class Block(nn.Module):
    """Two convolutions with batch norm, and a skip connection.

    Where the image is halved, the skip connection leaves out every second pixel, and its new channels are zeros, half of
    them before the old ones and half after ("option A").
    """

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.stride, self.new = stride, outputs - inputs

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        around = x
        if self.new:
            around = pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.new // 2, self.new // 2))
        result: Tensor = (around + out).relu()
        return result


def stage(blocks: int, inputs: int, outputs: int, stride: int) -> nn.Sequential:
    """Blocks of one width; the first may halve the image."""
    return nn.Sequential(Block(inputs, outputs, stride), *(Block(outputs, outputs, 1) for _ in range(blocks - 1)))


class CifarResNet(nn.Module):
    """Three stages of (depth - 2) / 6 blocks with 16, 32 and 64 channels.

    Args:
        depth: of the network; 6 n + 2.
        classes: number of logits.
    """

    def __init__(self, depth: int, classes: int = 10) -> None:
        super().__init__()
        blocks = (depth - 2) // 6
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = stage(blocks, 16, 16, 1)
        self.layer2 = stage(blocks, 16, 32, 2)
        self.layer3 = stage(blocks, 32, 64, 2)
        self.linear = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.bn1(self.conv1(x)).relu()
        logits: Tensor = self.linear(self.layer3(self.layer2(self.layer1(x))).mean((2, 3)))
        return logits
