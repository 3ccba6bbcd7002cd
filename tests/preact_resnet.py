"""PreActResNet-18 (He et al. 2016) for CIFAR-10, with the names of the state dicts among the test assets."""

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        active = self.bn1(x).relu()
        around = self.shortcut(active) if hasattr(self, "shortcut") else x
        return self.conv2(self.bn2(self.conv1(active)).relu()) + around


class PreActResNet18(nn.Module):
    mean = (0.4914, 0.4822, 0.4465)
    std = (0.2471, 0.2435, 0.2616)

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        width = 64
        for stage, (outputs, stride) in enumerate([(64, 1), (128, 2), (256, 2), (512, 2)], 1):
            setattr(self, f"layer{stage}", nn.Sequential(Block(width, outputs, stride), Block(outputs, outputs, 1)))
            width = outputs
        self.bn = nn.BatchNorm2d(512)
        self.linear = nn.Linear(512, 10)

    def forward(self, x: Tensor) -> Tensor:
        mean, std = (torch.tensor(each, dtype=x.dtype, device=x.device).view(3, 1, 1) for each in (self.mean, self.std))
        x = self.conv1((x - mean) / std)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.linear(functional.adaptive_avg_pool2d(self.bn(x).relu(), 1).flatten(1))


def load(path: str) -> PreActResNet18:
    model = PreActResNet18()
    model.load_state_dict({name: weight.float() for name, weight in load_file(path).items()})
    return model.eval()
