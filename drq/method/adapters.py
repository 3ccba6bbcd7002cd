"""Small wrappers that make a model return what DRQ reads: a tensor of (N, C) logits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from drq.errors import require
from drq.objectives import Model


def channels_last(model: nn.Module) -> nn.Module:
    """The model with its weights laid out as tensor cores convolve fastest."""
    laid: nn.Module = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return laid


class Wrapper(nn.Module):
    """A module around a model. It is in training mode exactly when the model is, since clients ask the outermost module."""

    def __init__(self, model: nn.Module | Model) -> None:
        super().__init__()
        self.model = model
        self.training = bool(getattr(model, "training", False))


class SingleLogit(Wrapper):
    """Two logits from a binary classifier with one, (N,) or (N, 1): class 1 keeps its logit, class 0 gets 0.

    >>> SingleLogit(lambda x: x.sum(1))(torch.tensor([[1.0, 2.0]]))
    tensor([[0., 3.]])
    """

    def forward(self, x: Tensor) -> Tensor:
        logit = self.model(x).reshape(len(x), 1)
        return torch.cat([torch.zeros_like(logit), logit], dim=1)


class FirstOutput(Wrapper):
    """The logits of a model that returns them as ``.logits`` (Hugging Face), under "logits", or as the first entry of a tuple.

    >>> FirstOutput(lambda x: (x, "features"))(torch.tensor([[1.0, 2.0]]))
    tensor([[1., 2.]])
    """

    def forward(self, x: Tensor) -> Tensor:
        output: Any = self.model(x)
        if isinstance(output, dict):
            output = output["logits"]
        elif hasattr(output, "logits"):
            output = output.logits
        logits: Tensor = output if isinstance(output, Tensor) else output[0]
        return logits


class Subset(Wrapper):
    """Some logits of a model, for data that shows only some of its classes, such as ImageNet-A; see drq.data.Relabelled.

    >>> Subset(lambda x: x, [0, 2])(torch.tensor([[1.0, 2.0, 3.0]]))
    tensor([[1., 3.]])
    """

    def __init__(self, model: nn.Module | Model, columns: Sequence[int]) -> None:
        super().__init__(model)
        self.columns = [int(each) for each in columns]
        distinct = len(set(self.columns)) == len(self.columns) >= 2 and min(self.columns) >= 0
        require(distinct, "columns", "be at least two different logits", columns, "data.subset has those of a data set")

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model(x)
        rule = f"have logits up to {max(self.columns)}"
        require(max(self.columns) < logits.shape[1], "model", rule, f"{logits.shape[1]} of them", "it is of other data")
        return logits[:, self.columns]


class Behind(Wrapper):
    """A model that sees what a front makes of its input, such as :class:`drq.Restoration`.

    >>> Behind(lambda x: x / 2, lambda x: x + 1)(torch.tensor([4.0]))
    tensor([3.])
    """

    def __init__(self, front: Callable[[Tensor], Tensor], model: nn.Module | Model) -> None:
        super().__init__(model)
        require(callable(front), "front", "be callable", repr(front), "drq.Restoration() is one")
        self.front = front
        self.training = self.training or bool(getattr(front, "training", False))

    def forward(self, x: Tensor) -> Tensor:
        return self.model(self.front(x))
