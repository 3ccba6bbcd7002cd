"""Define MEMO, which fits all weights to one sample by the entropy of the mean prediction over its views."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import pad

from drq.defences.adaptation import check_not_compiled, check_source, entropy, mixed_statistics
from drq.defences.defence import Peer
from drq.defences.defended import Defended, check_amount, is_number
from drq.errors import require
from drq.search.loop import check_count, check_steps
from drq.seeds import generator


@dataclass(frozen=True)
class Memo(Peer):
    """Marginal entropy minimisation with one test point (Zhang et al. 2021).

    Views of a sample are made, plain gradient steps of all weights lower the entropy of their mean prediction, and the sample is
    classified with these weights, which are then discarded. Samples are independent: all get the same random draws.

    The defaults are the authors' for residual networks on CIFAR-10; on ImageNet they use a rate of 0.00025, 64 views and a
    source of 16. Their views are AugMix mixtures of random crops and mirror images; here they are mirror images, crops and small
    changes of brightness and contrast. It costs ``steps * samples + 1`` passes a sample, all but one with a backward pass.

    Args:
        steps: the steps of the weights, each with new views.
        rate: the learning rate; 0 answers like the model.
        samples: the number of views for each step.
        source: the weight of the training statistics in batch norm, where the sample has weight 1; infinity for those alone.
        crop: how far a crop goes beyond the image, which is continued by reflection, as a share of its side.
        light: the largest change of brightness, as a share of the image's range, and of contrast, as a share of itself.
        seed: the seed of the views.
    """

    name: ClassVar[str] = "memo"
    summary: ClassVar[str] = "all weights fitted to one sample by the entropy over its views (Zhang et al. 2021)"
    changes_weights: ClassVar[bool] = True

    steps: int = 1
    rate: float = 5e-3
    samples: int = 32
    source: float = math.inf
    crop: float = 0.125
    light: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        check_steps("steps", self.steps, "a rate of 0 is what changes nothing")
        check_steps("samples", self.samples, "the entropy is that of their mean prediction")
        check_amount("rate", self.rate, "0 changes nothing")
        check_source(self.source)
        for name, share in {"crop": self.crop, "light": self.light}.items():
            right = is_number(share) and 0 <= share <= 0.5
            require(right, name, "be a number from 0 to 0.5", repr(share), "it is a share, of the side or of the range")
        check_count("seed", self.seed, "any other number gives other views")

    def around(self, model: nn.Module) -> nn.Module:
        """Return the model that is adapted anew to every sample."""
        check_not_compiled(model, self.name)
        return MemoAdapted(model, self)


class MemoAdapted(Defended):
    """A model defended by :class:`Memo`."""

    model: nn.Module
    peer: Memo

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores (N, C), computed sample by sample."""
        require(x.dim() == 4, "x", "be images of shape (N, C, H, W) for memo", tuple(x.shape), "other samples have no crops")
        with mixed_statistics(self.model, 1 / (self.peer.source + 1)):
            return torch.cat([functional_call(self.model, self.fit(row), (row,)) for row in torch.split(x, 1)])

    def fit(self, x: Tensor) -> dict[str, Tensor]:
        """Return the weights for one sample (1, C, H, W)."""
        draws = generator(self.peer.seed)
        weights = {name: value.detach() for name, value in self.model.named_parameters() if value.is_floating_point()}
        for _ in range(self.peer.steps):
            with torch.inference_mode(False), torch.enable_grad():
                leaves = {name: value.detach().requires_grad_() for name, value in weights.items()}
                augmented = views(x.detach().clone(), self.peer.samples, self.peer.crop, self.peer.light, draws)
                scores = functional_call(self.model, leaves, (augmented,))
                mean = scores.log_softmax(1).logsumexp(0) - math.log(len(scores))
                gradients = torch.autograd.grad(entropy(mean), list(leaves.values()), materialize_grads=True)
                weights = {name: weights[name] - self.peer.rate * each for name, each in zip(weights, gradients, strict=True)}
        return weights


def views(x: Tensor, count: int, crop: float, light: float, draws: torch.Generator) -> Tensor:
    """Return random mirror images and crops of one image (1, C, H, W), slightly brighter or darker, within the image's range."""
    low, high = x.aminmax()
    height, width = x.shape[-2:]
    rows, columns = round(crop * height), round(crop * width)
    wide = pad(x, (columns, columns, rows, rows), mode="reflect")
    made = []
    for top, left, mirror, brightness, contrast in torch.rand(count, 5, generator=draws, dtype=torch.float64).tolist():
        first, second = int(top * (2 * rows + 1)), int(left * (2 * columns + 1))
        view = wide[..., first : first + height, second : second + width]
        view = view.flip(-1) if mirror < 0.5 else view
        view = view.mean() + (1 + light * (2 * contrast - 1)) * (view - view.mean())
        made.append(view + light * (2 * brightness - 1) * (high - low))
    return torch.cat(made).clamp(low, high)
