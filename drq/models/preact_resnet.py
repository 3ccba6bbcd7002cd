"""PreActResNet-18 for 32 x 32 images (He et al. 2016), in the two variants of robust models that were published."""

from __future__ import annotations

from torch import Tensor, nn


class Block(nn.Module):
    """Two convolutions, each behind batch norm and ReLU, and a skip connection.

    Args:
        from_input: where the skip connection needs a convolution, it takes the input itself (Wong et al. 2020), else the
            activated input (Rice et al. 2020).
    """

    def __init__(self, inputs: int, outputs: int, stride: int, from_input: bool) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.from_input = from_input
        self.changes_shape = stride != 1 or inputs != outputs
        if self.changes_shape:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        active = self.bn1(x).relu()
        around = x
        if self.changes_shape:
            around = self.shortcut(x if self.from_input else active)
        result: Tensor = around + self.conv2(self.bn2(self.conv1(active)).relu())
        return result


def stage(inputs: int, outputs: int, stride: int, from_input: bool) -> nn.Sequential:
    """Two blocks; the first may halve the image."""
    return nn.Sequential(Block(inputs, outputs, stride, from_input), Block(outputs, outputs, 1, from_input))


class PreActResNet18(nn.Module):
    """Four stages of two blocks with 64 to 512 channels.

    Args:
        classes: number of logits.
        final_norm: batch norm and ReLU before the pooling.
        from_input: see :class:`Block`.
    """

    def __init__(self, classes: int = 10, final_norm: bool = True, from_input: bool = False) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        self.layer1 = stage(64, 64, 1, from_input)
        self.layer2 = stage(64, 128, 2, from_input)
        self.layer3 = stage(128, 256, 2, from_input)
        self.layer4 = stage(256, 512, 2, from_input)
        if final_norm:
            self.bn = nn.BatchNorm2d(512)
        self.final_norm = final_norm
        self.linear = nn.Linear(512, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer4(self.layer3(self.layer2(self.layer1(self.conv1(x)))))
        if self.final_norm:
            x = self.bn(x).relu()
        logits: Tensor = self.linear(x.mean((2, 3)))
        return logits
