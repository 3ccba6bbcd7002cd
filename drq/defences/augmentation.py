"""Define test-time augmentation, which averages over several views of a sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from drq.defences.defence import Peer
from drq.defences.votes import MultiView
from drq.errors import require
from drq.search.loop import check_count
from drq.seeds import generator


@dataclass(frozen=True)
class Augmentation(Peer):
    """Test-time augmentation: the mean of the probabilities over several views of an image.

    The views are the image itself, its mirror image, and images shifted by some pixels, edges reflected, mirrored or not.
    All samples share them. It costs ``samples`` passes.

    Args:
        samples: the number of views of an image, itself included.
        pixels: the largest shift, up, down, left or right.
        seed: the seed of the views.
    """

    name: ClassVar[str] = "augmentation"
    summary: ClassVar[str] = "the mean of the probabilities over shifted and mirrored views"

    samples: int = 10
    pixels: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("samples", self.samples, "1 is the image alone", least=1)
        check_count("pixels", self.pixels, "0 shifts nothing")
        check_count("seed", self.seed, "0 is the default")

    def around(self, model: nn.Module) -> Augmented:
        """Return the model that classifies every view."""
        return Augmented(model, self)


class Augmented(MultiView):
    """A model defended by :class:`Augmentation`."""

    peer: Augmentation

    def view(self, x: Tensor, number: int) -> Tensor:
        """Return a view: the first is the image, the second its mirror image, all others are random."""
        pixels = self.peer.pixels
        require(x.dim() == 4, "x", "be images of shape (N, C, H, W)", f"shape {tuple(x.shape)}", "only images have views")
        size = min(x.shape[2:])
        require(pixels < size, "pixels", f"be below the size of the image, {size}", pixels, "4 suits images of 32 pixels")
        down, right, mirrored = (0, 0, number) if number < 2 else self._drawn(number)
        rows, columns = (_reflected(length, by, x.device) for length, by in zip(x.shape[2:], (down, right), strict=True))
        return x[:, :, rows[:, None], columns.flip(0) if mirrored else columns]

    def _drawn(self, number: int) -> tuple[int, int, int]:
        """Draw how far a view is shifted, and whether it is mirrored."""
        source, pixels = generator(self.peer.seed, number), self.peer.pixels
        down, right = torch.randint(-pixels, pixels + 1, (2,), generator=source).tolist()
        return down, right, int(torch.randint(2, (), generator=source))


def _reflected(length: int, shift: int, device: torch.device) -> Tensor:
    """Return positions from ``shift`` on, reflected at both ends."""
    last = length - 1
    return last - (last - (torch.arange(length, device=device) + shift).abs()).abs()
