"""Defences that look at a sample several times, at other views or in noise, and let the looks vote."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from drq.defences.defence import Peer
from drq.defences.defended import Defended, Vote, check_amount, is_number, out_of_range
from drq.errors import require
from drq.search import check_count
from drq.seeds import generator

TINY = 1e-6  # the share of a class that nobody voted for, so that its logarithm is finite


class Looks(Defended):
    """Several looks at a sample. The scores are the logarithms of the mean probabilities, and differentiable."""

    peer: Augmentation | Smoothing

    @abstractmethod
    def view(self, x: Tensor, number: int) -> Tensor:
        """What is seen at look ``number``, which is the same for all samples."""

    def look(self, x: Tensor, number: int) -> Tensor:
        """The logits (N, C) at look ``number``."""
        logits: Tensor = self.model(self.view(x, number))
        return logits

    def forward(self, x: Tensor) -> Tensor:
        """The scores (N, C)."""
        looks = [self.look(x, number).log_softmax(1) for number in range(self.peer.samples)]
        return torch.stack(looks).logsumexp(0) - math.log(len(looks))

    def shortened(self, steps: int) -> Self:
        """The same with at most so many looks, the first ones."""
        return type(self)(self.model, replace(self.peer, samples=min(steps, self.peer.samples)))


class Augmented(Looks):
    """A model behind :class:`Augmentation`."""

    peer: Augmentation

    def view(self, x: Tensor, number: int) -> Tensor:
        """The image first, then its mirror image, then random ones."""
        pixels = self.peer.pixels
        require(x.dim() == 4, "x", "be images of shape (N, C, H, W)", f"shape {tuple(x.shape)}", "only images have views")
        size = min(x.shape[2:])
        require(pixels < size, "pixels", f"be below the size of the image, {size}", pixels, "4 suits images of 32 pixels")
        down, right, mirrored = (0, 0, number) if number < 2 else self._drawn(number)
        rows, columns = (_reflected(length, by, x.device) for length, by in zip(x.shape[2:], (down, right), strict=True))
        return x[:, :, rows[:, None], columns.flip(0) if mirrored else columns]

    def _drawn(self, number: int) -> tuple[int, int, int]:
        """How far a view is shifted, and whether it is mirrored."""
        source, pixels = generator(self.peer.seed, number), self.peer.pixels
        down, right = torch.randint(-pixels, pixels + 1, (2,), generator=source).tolist()
        return down, right, int(torch.randint(2, (), generator=source))


def _reflected(length: int, shift: int, device: torch.device) -> Tensor:
    """Positions from ``shift`` on, folded back at both ends."""
    last = length - 1
    return last - (last - (torch.arange(length, device=device) + shift).abs()).abs()


class Smoothed(Looks):
    """A model behind :class:`Smoothing`."""

    peer: Smoothing

    def view(self, x: Tensor, number: int) -> Tensor:
        """The samples in the noise of this draw."""
        noise = torch.randn(x.shape[1:], generator=generator(self.peer.seed, number), dtype=torch.float64)
        return x + self.peer.deviation * noise.to(x)

    def look(self, x: Tensor, number: int) -> Tensor:
        """Noise leaves every box."""
        return out_of_range(self.model)(self.view(x, number))

    def decide(self, x: Tensor) -> Vote:
        """The majority of hard votes, and where it abstains."""
        votes = sum(self._vote(x, number) for number in range(self.peer.samples))
        assert isinstance(votes, Tensor)
        uncertain = even_odds(votes.topk(2, dim=1).values) > self.peer.alpha
        return Vote(votes.argmax(1), uncertain.to(x.device), (votes / self.peer.samples + TINY).log())

    def _vote(self, x: Tensor, number: int) -> Tensor:
        """1 for the class that is seen at this look, 0 for the others."""
        with torch.no_grad():
            look = self.look(x, number)
            return torch.zeros_like(look).scatter(1, look.argmax(1, keepdim=True), 1)


def even_odds(counts: Tensor) -> Tensor:
    """How often a fair coin falls at least as unevenly as these pairs of counts (N, 2): exact, two-sided, float64 on the CPU.

    >>> even_odds(torch.tensor([[5, 0], [3, 3]]))
    tensor([0.0625, 1.0000], dtype=torch.float64)
    """
    counts = counts.double().cpu()
    total, fewer = counts.sum(1, keepdim=True), counts.amin(1, keepdim=True)
    term = torch.arange(int(max(fewer, default=0)) + 1, dtype=torch.float64)
    ways = torch.lgamma(total + 1) - torch.lgamma(term + 1) - torch.lgamma(total - term + 1)
    tail = (ways - total * math.log(2)).masked_fill(term > fewer, -torch.inf).logsumexp(1)
    return (2 * tail.exp()).clamp(max=1)


@dataclass(frozen=True)
class Augmentation(Peer):
    """Test-time augmentation: the mean of the probabilities over several views of an image.

    The views are the image itself, its mirror image, and images shifted by some pixels, edges reflected, mirrored or not.
    All samples share them. It costs ``samples`` passes.

    Args:
        samples: views of an image, itself included.
        pixels: largest shift, up, down, left or right.
        seed: of the views.
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
        """The model that looks at every view."""
        return Augmented(model, self)


@dataclass(frozen=True)
class Smoothing(Peer):
    """Randomised smoothing (Cohen et al., ICML 2019), its prediction: the majority of hard votes in Gaussian noise.

    It abstains where an exact binomial test cannot tell the two classes with most votes apart. It suits models that were
    trained in such noise. Votes have no slopes: the scores that attackers follow are the logarithms of the mean
    probabilities in the same noise, and their highest may differ from the majority. All samples share the draws. It costs
    ``samples`` passes.

    Args:
        samples: draws of the noise.
        deviation: of the noise, in the units of the input; nothing is clipped.
        alpha: it abstains where the p-value is higher; 1 for never.
        seed: of the noise.
    """

    name: ClassVar[str] = "smoothing"
    summary: ClassVar[str] = "the majority of votes in Gaussian noise, or no answer where it is too close"

    samples: int = 100
    deviation: float = 0.25
    alpha: float = 0.001
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("samples", self.samples, "every draw is a vote", least=1)
        check_amount("deviation", self.deviation, "0 is no noise")
        share = is_number(self.alpha) and 0 < self.alpha <= 1
        require(share, "alpha", "lie above 0 and not above 1", repr(self.alpha), "0.001 is usual, 1 never abstains")
        check_count("seed", self.seed, "0 is the default")

    def around(self, model: nn.Module) -> Smoothed:
        """The model that looks through every draw of the noise."""
        return Smoothed(model, self)
