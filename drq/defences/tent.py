"""Define Tent, which trains batch norm's weights on the entropy of its predictions, batch after batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call

from drq.defences.adaptation import BATCH_REMEDY, affine_parameters, at_least_float32, check_norms, entropy, mixed_statistics
from drq.defences.defence import Peer
from drq.defences.defended import Defended, check_amount
from drq.errors import require
from drq.search.loop import check_count, check_steps


@dataclass(frozen=True)
class Tent(Peer):
    """Entropy minimisation over batches (Wang et al. 2021).

    Batch norm uses the statistics of the batch alone. Adam updates its weights and biases to lower the mean entropy of the
    predictions, from batch to batch of one call. The answer to a batch is that of its last pass, before the update by this pass:
    with one step, the first batch is answered with the trained weights, and later ones with the updates from those before.

    Every call starts from the trained weights: an answer depends on the samples of the call alone. The authors adapt to a whole
    stream instead, so a call should have several batches, or ``steps`` be above 1. They also leave dropout on, which is off here.
    It costs ``steps`` passes a sample, each with a backward pass.

    Args:
        steps: the passes over every batch.
        rate: the learning rate of Adam.
        batch: the most samples of a batch, in the order given.
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
        check_count("batch", self.batch, BATCH_REMEDY, least=1)

    @property
    def needs_batch(self) -> bool:
        """Return True: it learns from all samples of a batch."""
        return True

    def around(self, model: nn.Module) -> nn.Module:
        """Return the model that is adapted anew in every call."""
        check_norms(model, self.name)
        trainable = len(affine_parameters(model)) > 0
        require(trainable, "model", "have weights in its batch norm for tent", "none", "bn-adapt trains nothing")
        return TentAdapted(model, self)


class TentAdapted(Defended):
    """A model defended by :class:`Tent`."""

    model: nn.Module
    peer: Tent

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores (N, C), batch by batch, each with what was learned before it."""
        keep_graph = torch.is_grad_enabled() and x.requires_grad
        with torch.inference_mode(False), torch.enable_grad(), mixed_statistics(self.model, 1.0):
            scores = torch.cat(list(self._online(x.clone() if x.is_inference() else x, keep_graph)))
        return scores if keep_graph else scores.detach()

    def _online(self, x: Tensor, keep_graph: bool) -> Iterator[Tensor]:
        """Yield the scores of one batch after the other, with their graph if gradients are needed."""
        own = dict(affine_parameters(self.model))
        weights = {name: at_least_float32(value.detach()).clone().requires_grad_() for name, value in own.items()}
        adam = torch.optim.Adam(weights.values(), self.peer.rate)
        scores: Tensor | None = None
        for part in torch.split(x, self.peer.batch):
            for _ in range(self.peer.steps):
                if scores is not None:  # only before the next pass, so that the last pass causes no update
                    update(adam, weights, scores, keep_graph)
                # Copies, since updates in place would invalidate the graph.
                current = {name: value.clone().to(own[name].dtype) for name, value in weights.items()}
                scores = functional_call(self.model, current, (part,))
            assert scores is not None
            yield scores


def update(adam: torch.optim.Adam, weights: Mapping[str, Tensor], scores: Tensor, keep: bool) -> None:
    """Take one step of Adam down the mean entropy of these scores."""
    loss = entropy(scores.log_softmax(1)).mean()
    gradients = torch.autograd.grad(loss, list(weights.values()), retain_graph=keep, materialize_grads=True)
    for value, gradient in zip(weights.values(), gradients, strict=True):
        value.grad = gradient
    adam.step()
