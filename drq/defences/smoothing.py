"""Define randomised smoothing: a majority vote over Gaussian noise, which abstains where the vote is too close."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from drq.defences.defence import Peer
from drq.defences.defended import Vote, check_amount, is_number, without_range_warning
from drq.defences.votes import TINY, MultiView
from drq.errors import require
from drq.search.loop import check_count
from drq.seeds import generator


@dataclass(frozen=True)
class Smoothing(Peer):
    """Prediction by randomised smoothing (Cohen et al., ICML 2019): the majority of hard votes in Gaussian noise.

    It abstains where an exact binomial test cannot tell the two classes with most votes apart. It suits models that were
    trained in such noise. Votes have no gradients: the scores that attackers follow are the logarithms of the mean
    probabilities in the same noise, and their highest may differ from the majority. All samples share the draws. It costs
    ``samples`` passes.

    Args:
        samples: the number of draws of noise.
        deviation: the standard deviation of the noise, in the units of the input; nothing is clipped.
        alpha: the p-value above which it abstains; 1 for never.
        seed: the seed of the noise.
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
        """Return the model that votes over all draws of noise."""
        return Smoothed(model, self)


class Smoothed(MultiView):
    """A model defended by :class:`Smoothing`."""

    peer: Smoothing

    def view(self, x: Tensor, number: int) -> Tensor:
        """Return the samples with this draw of noise."""
        noise = torch.randn(x.shape[1:], generator=generator(self.peer.seed, number), dtype=torch.float64)
        return x + self.peer.deviation * noise.to(x)

    def view_logits(self, x: Tensor, number: int) -> Tensor:
        """Return the logits of a view, without a warning, since noise leaves the bounds of inputs."""
        return without_range_warning(self.model)(self.view(x, number))

    def decide(self, x: Tensor) -> Vote:
        """Return the majority of hard votes, and where it abstains."""
        votes = sum(self._vote(x, number) for number in range(self.peer.samples))
        assert isinstance(votes, Tensor)
        uncertain = fair_coin_p_value(votes.topk(2, dim=1).values) > self.peer.alpha
        return Vote(votes.argmax(1), uncertain.to(x.device), (votes / self.peer.samples + TINY).log())

    def _vote(self, x: Tensor, number: int) -> Tensor:
        """Return 1 for the class that is predicted for this view, 0 for the others."""
        with torch.no_grad():
            logits = self.view_logits(x, number)
            return torch.zeros_like(logits).scatter(1, logits.argmax(1, keepdim=True), 1)


def fair_coin_p_value(counts: Tensor) -> Tensor:
    """Return the two-sided p-values of the exact binomial test for pairs of counts (N, 2), in float64 on the CPU.

    >>> fair_coin_p_value(torch.tensor([[5, 0], [3, 3]]))
    tensor([0.0625, 1.0000], dtype=torch.float64)
    """
    counts = counts.double().cpu()
    total, fewer = counts.sum(1, keepdim=True), counts.amin(1, keepdim=True)
    term = torch.arange(int(max(fewer, default=0)) + 1, dtype=torch.float64)
    ways = torch.lgamma(total + 1) - torch.lgamma(term + 1) - torch.lgamma(total - term + 1)
    tail = (ways - total * math.log(2)).masked_fill(term > fewer, -torch.inf).logsumexp(1)
    return (2 * tail.exp()).clamp(max=1)
