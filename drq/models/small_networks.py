"""Small networks without batch norm, from the literature on verified and on adversarial training: seconds on any machine."""

from __future__ import annotations

from torch import Tensor, nn


class PlainBlock(nn.Module):
    """Two convolutions and a skip connection, which has a convolution where the first has a stride."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1)
        self.shortcut = nn.Sequential()
        if stride != 1:
            self.shortcut.append(nn.Conv2d(inputs, outputs, 1, stride))

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = (self.shortcut(x) + self.conv2(self.conv1(x).relu())).relu()
        return result


def plain_stage(inputs: int, outputs: int) -> nn.Sequential:
    """Two blocks; the first halves the image."""
    return nn.Sequential(PlainBlock(inputs, outputs, 2), PlainBlock(outputs, outputs, 1))


class PlainResNet(nn.Module):
    """ResNet-2B and -4B for 32 x 32 images (Wang et al. 2021): the image is halved at once, and again by each stage.

    Args:
        width: channels of the first convolution; stages have twice as many.
        classes: number of logits.
        stages: 1 or 2, of two blocks each.
    """

    def __init__(self, width: int, classes: int = 10, stages: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, 2, 1)
        self.layer1 = plain_stage(width, 2 * width)
        self.layer2 = plain_stage(2 * width, 2 * width) if stages == 2 else nn.Sequential()
        pixels = 16 // 2**stages
        self.linear1 = nn.Linear(2 * width * pixels**2, 100)
        self.linear2 = nn.Linear(100, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer2(self.layer1(self.conv1(x).relu()))
        logits: Tensor = self.linear2(self.linear1(x.flatten(1)).relu())
        return logits


def four_layers(channels: int, pixels: int, classes: int = 10) -> nn.Sequential:
    """Two convolutions that halve the image each, and two linear layers (Wong and Kolter 2018; CNN-A of Dathathri et al. 2020).

    Args:
        channels: of the images.
        pixels: of their height and width.
        classes: number of logits.
    """
    return nn.Sequential(
        nn.Conv2d(channels, 16, 4, 2, 1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 4, 2, 1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * (pixels // 4) ** 2, 100),
        nn.ReLU(),
        nn.Linear(100, classes),
    )


class LeNet5(nn.Module):
    """For grey 28 x 28 images: two convolutions, each followed by the largest of four pixels, and two linear layers."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.largest = nn.MaxPool2d(2)
        self.linear1 = nn.Linear(64 * 7 * 7, 200)
        self.linear2 = nn.Linear(200, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.largest(self.conv2(self.largest(self.conv1(x).relu())).relu())
        logits: Tensor = self.linear2(self.linear1(x.flatten(1)).relu())
        return logits
