"""Small wrappers that make a model return what DRQ reads: a tensor of (N, C) logits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from drq.errors import InputError, require
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

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """As every module does; where the keys are those of another one, an error in one line says which takes them."""
        try:
            return super().load_state_dict(state_dict, strict, assign)
        except RuntimeError as error:
            if self.state_dict().keys() == state_dict.keys():
                raise  # it is the shapes that differ
            raise InputError(_other_keys(self, state_dict)) from error


def _other_keys(module: Wrapper, given: Mapping[str, Any]) -> str:
    """Which module takes these keys: one inside, one around it, or one of another architecture."""
    own, name = module.state_dict().keys(), type(module).__name__
    first = next(iter(own), "none")
    got = f"state_dict must have the keys of this {name}, such as {first!r}, got {next(iter(given), 'none')!r}"
    for place, inside in _inside(module):
        if inside.state_dict().keys() == given.keys():
            return f"{got}, those of the model in it: load them with {place}.load_state_dict(...)"
    for before in {key.removesuffix(first) for key in given if key.endswith(f".{first}")}:
        if {f"{before}{key}" for key in own} == given.keys():
            return f"{got}, those of a module around it: take {before!r} off them, or load them there"
    unknown, missing = len(given.keys() - own), len(own - given.keys())
    return f"{got}, {unknown} unknown and {missing} missing: they are of another architecture"


def _inside(module: Wrapper) -> Iterator[tuple[str, nn.Module]]:
    """The models that it wraps, from the outermost on, and where they are."""
    place, inside = ".model", getattr(module, "model", None)
    while isinstance(inside, nn.Module):
        yield place, inside
        place, inside = f"{place}.model", getattr(inside, "model", None)


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


class Probabilities(Wrapper):
    """The logits of a model that returns probabilities: their logarithms.

    A softmax rounds: where it returned 0 or 1, nothing can be ranked or followed any more. Leave it out where you can.

    >>> Probabilities(lambda x: x)(torch.tensor([[0.25, 0.75]])).softmax(1)
    tensor([[0.2500, 0.7500]])
    """

    def forward(self, x: Tensor) -> Tensor:
        probabilities: Tensor = self.model(x)
        return probabilities.clamp(min=torch.finfo(probabilities.dtype).tiny).log()


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
