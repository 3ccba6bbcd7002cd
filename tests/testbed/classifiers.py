"""Small classifiers that many tests share, in float64, from a seed."""

import torch
from torch import Tensor, nn


def linear(weight: Tensor, bias: float = 0.0) -> nn.Linear:
    """Two classes whose log-odds are exactly w.x + b for class 1."""
    model = nn.Linear(len(weight), 2).double().eval()
    model.weight.data = torch.stack([torch.zeros_like(weight), weight])
    model.bias.data = torch.tensor([0.0, bias], dtype=torch.float64)
    return model


def network(seed: int, features: int = 4, classes: int = 4, width: int = 24, gain: float = 2.5) -> nn.Sequential:
    """A smooth random network with curved decision regions."""
    generator = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Linear(features, width), nn.Tanh(), nn.Linear(width, classes)).double().eval()
    for parameter in model.parameters():
        scale = gain / parameter.shape[-1] ** 0.5
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * scale
    with torch.no_grad():  # every class gets its share of the unit cube
        model[-1].bias -= model(inputs(seed, 1000, features)).mean(0)
    return model


def inputs(seed: int, *shape: int) -> Tensor:
    """Uniform in [0, 1]."""
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
