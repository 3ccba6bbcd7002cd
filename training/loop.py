"""One loop for all classifiers: (adversarial) training with an average of the weights, as a CUDA graph where there is a GPU."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from drq import Ball, Gradient, away_from
from drq.method.execution import InPrecision
from drq.search.loop import search
from drq.system.progress import Tell


@dataclass(frozen=True)
class Recipe:
    """How a classifier is trained: SGD with Nesterov momentum, the rate going up and down once."""

    arch: str
    epochs: int
    norm: str | None = None  # of the attack that training images come from; None: plain training
    radius: float = 0.0
    steps: int = 0
    step: float = 2.5  # as a multiple of radius / steps
    strong: bool = False  # strong augmentation
    batch: int = 256
    rate: float = 0.2
    decay: float = 5e-4
    label_smoothing: float = 0.0
    averaged: float = 0.0256  # how far the average of the weights reaches back, as a share of the training
    seed: int = 0

    def rate_at(self, progress: float) -> float:
        """The learning rate when this share of the training is done."""
        rise = 0.2
        return self.rate * (progress / rise if progress < rise else (1 - progress) / (1 - rise))


class Training:
    """A model under training. Its batch lies in tensors that stay where they are, so that a step can be replayed as a graph."""

    def __init__(self, model: nn.Module, recipe: Recipe, image: tuple[int, ...], device: str, steps: int) -> None:
        self.recipe, self.device = recipe, device
        # Statistics of batch norm fit averaged weights only where these hardly move any more: near the end.
        self.pull = min(1 / (recipe.averaged * steps), 1.0)
        self.model = model.to(device, memory_format=torch.channels_last)
        self.average = copy.deepcopy(self.model).requires_grad_(False).eval()
        self.logits = InPrecision(self.model, torch.bfloat16 if device == "cuda" else None)
        self.x = torch.zeros(recipe.batch, *image, device=device).contiguous(memory_format=torch.channels_last)
        self.start = torch.zeros_like(self.x)
        self.y = torch.zeros(recipe.batch, dtype=torch.long, device=device)
        self.loss = torch.zeros((), device=device)
        self.ball = Ball(self.x, recipe.radius, recipe.norm or "linf", bounds=(0, 1))
        self.optimizer = torch.optim.SGD(
            self.model.parameters(),
            lr=torch.tensor(0.0, device=device),
            momentum=0.9,
            nesterov=True,
            weight_decay=recipe.decay,
            fused=True,
        )
        floats = [(a, b) for a, b in zip(self.average.state_dict().values(), self.model.state_dict().values(), strict=True)]
        self.averaged = [(a, b) for a, b in floats if a.is_floating_point()]

    def step(self) -> None:
        """One step on the present batch."""
        x = self._attacked() if self.recipe.steps else self.x
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        loss = cross_entropy(self.logits(x), self.y, label_smoothing=self.recipe.label_smoothing)
        loss.backward()
        self.optimizer.step()
        self.loss.copy_(loss.detach())
        with torch.no_grad():
            torch._foreach_lerp_([a for a, _ in self.averaged], [b for _, b in self.averaged], self.pull)

    def _attacked(self) -> Tensor:
        self.model.eval()  # the attack must not count in the statistics of batch norm
        method = Gradient(self.recipe.steps, self.recipe.step)
        return search(method, away_from(self.logits, self.y), self.ball, start=self.start).point

    def replayable(self) -> Callable[[], None]:
        """A step that costs one launch: thousands of small kernels would make the GPU wait for Python."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):  # libraries choose their algorithms before the recording; the rate is 0 meanwhile
                self.step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step()
        return graph.replay


def train(
    model: nn.Module, recipe: Recipe, x: Tensor, y: Tensor, augment: Callable[[Tensor, torch.Generator], Tensor], tell: Tell
) -> nn.Module:
    """The model with the averaged weights, in evaluation mode. ``x`` (N, C, H, W) in [0, 1] and ``y`` lie on the device."""
    device, batches = x.device.type, len(x) // recipe.batch
    training = Training(model, recipe, tuple(x.shape[1:]), device, batches * recipe.epochs)
    draws = torch.Generator(device).manual_seed(recipe.seed)
    step = training.replayable() if device == "cuda" else training.step
    (rate,) = [group["lr"] for group in training.optimizer.param_groups]
    for epoch in range(recipe.epochs):
        order = torch.randperm(len(x), generator=draws, device=x.device)[: batches * recipe.batch]
        for batch, rows in enumerate(order.split(recipe.batch)):
            progress = (epoch + batch / batches) / recipe.epochs
            rate.fill_(recipe.rate_at(progress))
            training.x.copy_(augment(x[rows], draws))
            training.y.copy_(y[rows])
            if recipe.steps:
                random = torch.rand(training.x.shape, generator=draws, device=x.device) * 2 - 1
                training.start.copy_(training.ball.project(training.x + recipe.radius * random))
            step()
        tell((epoch + 1) / recipe.epochs, f"epoch {epoch + 1}, loss {float(training.loss):.3f}")
    return training.average.requires_grad_(False).eval()
