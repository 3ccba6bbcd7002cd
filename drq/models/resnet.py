"""ResNet-50 for ImageNet (He et al. 2016), with torchvision's names and its place of the stride, without torchvision."""

from __future__ import annotations

from torch import Tensor, nn


class Bottleneck(nn.Module):
    """A 1 x 1, a 3 x 3 and a 1 x 1 convolution, and a skip connection. The 3 x 3 convolution has the stride."""

    def __init__(self, inputs: int, inner: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * inner
        self.conv1 = nn.Conv2d(inputs, inner, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(inner)
        self.conv3 = nn.Conv2d(inner, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample: nn.Sequential | None = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        out = self.bn1(self.conv1(x)).relu()
        out = self.bn2(self.conv2(out)).relu()
        around = x if self.downsample is None else self.downsample(x)
        result: Tensor = (around + self.bn3(self.conv3(out))).relu()
        return result


def stage(inputs: int, inner: int, blocks: int, stride: int) -> nn.Sequential:
    """Blocks of one width; the first may halve the image."""
    return nn.Sequential(Bottleneck(inputs, inner, stride), *(Bottleneck(4 * inner, inner, 1) for _ in range(blocks - 1)))


class ResNet50(nn.Module):
    """Four stages of 3, 4, 6 and 3 blocks behind a convolution and a pooling that reduce the image by 4."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = stage(64, 64, 3, 1)
        self.layer2 = stage(256, 128, 4, 2)
        self.layer3 = stage(512, 256, 6, 2)
        self.layer4 = stage(1024, 512, 3, 2)
        self.fc = nn.Linear(2048, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.bn1(self.conv1(x)).relu())
        logits: Tensor = self.fc(self.layer4(self.layer3(self.layer2(self.layer1(x)))).mean((2, 3)))
        return logits
