"""A denoiser in front of a classifier (paper, Section 5.1 and Appendix C): DnCNN of Zhang et al. 2017."""

from __future__ import annotations

from torch import Tensor, nn

from drq.method.adapters import Behind
from drq.objectives import Model


class DnCNN(nn.Module):
    """Predicts the noise of an image and takes it away.

    Args:
        layers: convolutions; all but the first and the last have batch norm.
        width: channels between them.
        channels: of the image.
    """

    def __init__(self, layers: int = 17, width: int = 64, channels: int = 3) -> None:
        super().__init__()
        inner = [
            part
            for _ in range(layers - 2)
            for part in (nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        ]
        first, last = nn.Conv2d(channels, width, 3, padding=1), nn.Conv2d(width, channels, 3, padding=1)
        self.noise = nn.Sequential(first, nn.ReLU(), *inner, last)

    def forward(self, x: Tensor) -> Tensor:
        clean: Tensor = x - self.noise(x)
        return clean


class Denoised(Behind):
    """A classifier that sees the image without what the denoiser takes for noise. DRQ searches in front of both.

    Args:
        denoiser: images to images.
        model: the classifier.
        bounds: what the classifier accepts, to which the denoised image is clipped; None where it accepts everything.

    >>> Denoised(lambda x: x / 2, lambda x: x + 1)(Tensor([0.5, 4.0]))
    tensor([1.2500, 2.0000])
    """

    def __init__(
        self, denoiser: nn.Module | Model, model: nn.Module | Model, bounds: tuple[float, float] | None = (0.0, 1.0)
    ) -> None:
        super().__init__(denoiser, model)
        self.bounds = bounds

    def forward(self, x: Tensor) -> Tensor:
        clean = self.front(x)
        return self.model(clean if self.bounds is None else clean.clamp(*self.bounds))
