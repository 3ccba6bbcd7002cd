"""Tent: batch norm's weights descend the entropy of the answers, batch after batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

from drq.defences.adaptation import GROUPED, affine, check_norms, entropy, mixed_norms, widened
from drq.defences.defence import Peer
from drq.defences.defended import Defended, check_amount
from drq.errors import require
from drq.search.loop import check_count, check_steps


@dataclass(frozen=True)
class Tent(Peer):
    """Entropy minimisation over batches (Wang et al. 2021).

    Batch norm uses the statistics of the batch alone. Its weights and biases follow Adam down the mean entropy of the answers,
    from batch to batch of one call. The answer to a batch is that of its last pass, before the update that this pass leads to:
    with one step, the first batch is answered with the weights of training, and later ones profit from those before.

    Every call starts from the weights of training: an answer depends on the samples of the call, and on nothing before. The
    authors go on through a whole stream instead, so a call should have several batches, or this more than one step. They also
    leave dropout on, which is off here. It costs ``steps`` passes a sample, each with a backward pass.

    Args:
        steps: passes over every batch.
        rate: of Adam.
        batch: samples of one batch at most, in the order given.
    """

    name: ClassVar[str] = "tent"
    summary: ClassVar[str] = "batch norm trained on the entropy of the answers, batch by batch (Wang et al. 2021)"
    changes_weights: ClassVar[bool] = True

    steps: int = 1
    rate: float = 1e-3
    batch: int = 200

    def __post_init__(self) -> None:
        check_steps("steps", self.steps, "every step is a pass over the batch; bn-adapt is what updates nothing")
        check_amount("rate", self.rate, "0 changes nothing")
        check_count("batch", self.batch, GROUPED, least=1)

    @property
    def needs_batch(self) -> bool:
        """It learns from all of them."""
        return True

    def around(self, model: nn.Module) -> nn.Module:
        """The model, adapted anew in every call."""
        check_norms(model, self.name)
        known = len(affine(model)) > 0
        require(known, "model", "have weights in its batch norm for tent", "none", "bn-adapt trains nothing")
        return TentAdapted(model, self)


class TentAdapted(Defended):
    """A model behind :class:`Tent`."""

    model: nn.Module
    peer: Tent

    def forward(self, x: Tensor) -> Tensor:
        """Scores (N, C), batch by batch, each with what was learned before it."""
        followed = torch.is_grad_enabled() and x.requires_grad
        with torch.inference_mode(False), torch.enable_grad(), mixed_norms(self.model, 1.0):
            scores = torch.cat(list(self._online(x.clone() if x.is_inference() else x, followed)))
        return scores if followed else scores.detach()

    def _online(self, x: Tensor, followed: bool) -> Iterator[Tensor]:
        """The scores of one batch after the other, which keep their graph if somebody follows it."""
        own = dict(affine(self.model))
        weights = {name: widened(value.detach()).clone().requires_grad_() for name, value in own.items()}
        adam = torch.optim.Adam(weights.values(), self.peer.rate)
        scores: Tensor | None = None
        for part in torch.split(x, self.peer.batch):
            for _ in range(self.peer.steps):
                if scores is not None:  # only now: no look follows the last one, which thus needs no update
                    update(adam, weights, scores, followed)
                given = {name: value.clone().to(own[name].dtype) for name, value in weights.items()}  # updates spare the graph
                scores = functional_call(self.model, given, (part,))
            assert scores is not None
            yield scores


def update(adam: torch.optim.Adam, weights: Mapping[str, Tensor], scores: Tensor, keep: bool) -> None:
    """One step down the mean entropy of these scores."""
    loss = entropy(scores.log_softmax(1)).mean()
    slopes = torch.autograd.grad(loss, list(weights.values()), retain_graph=keep, materialize_grads=True)
    for value, slope in zip(weights.values(), slopes, strict=True):
        value.grad = slope
    adam.step()
