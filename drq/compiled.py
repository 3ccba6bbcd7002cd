"""A model compiled once for batches of any size, beside the model itself, which stays as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from drq.adapters import InPrecision
from drq.objectives import Model
from drq.twin import Twin


class Compiled:
    """A model in a precision, compiled at its first call.

    What is compiled is a :class:`drq.twin.Twin`, whose parameters need no gradient: the backward pass stops at the input.
    """

    def __init__(self, model: Model, dtype: torch.dtype | None, layout: torch.memory_format = torch.contiguous_format) -> None:
        self.model, self.dtype, self.layout = model, dtype, layout
        self._shared = _places(model)
        self._twin = Twin(model, dtype, layout)
        precise = InPrecision(self._twin.model, dtype)
        self._call: Callable[[Tensor], Tensor] = alone(lambda x: precise(x))

    def __call__(self, x: Tensor) -> Tensor:
        """The logits (N, C)."""
        if not (torch.is_grad_enabled() and x.requires_grad):  # without a gradient it would be compiled once more
            with torch.enable_grad():
                return self(x.detach().requires_grad_()).detach()
        any_batch([x])
        return self._call(x)

    def follows(self, model: Model, dtype: torch.dtype | None, layout: torch.memory_format) -> bool:
        """Whether it still is that model: the same object, with its weights where they were."""
        return self.model is model and (self.dtype, self.layout) == (dtype, layout) and self._shared == _places(model)

    def refresh(self) -> None:
        """Follow weights that changed where they are."""
        self._twin.refresh()

    @property
    def holds_tensors(self) -> bool:
        """Whether its weights are known; those of a function, say, are not."""
        return bool(self._shared)


def alone(function: Any) -> Any:
    """Compile code of its own: PyTorch counts compilations by code, and would run what shares it with eight others as it is."""
    return torch.compile(FunctionType(function.__code__.replace(), function.__globals__, closure=function.__closure__))


def any_batch(tensors: Iterable[Tensor]) -> None:
    """Let one compilation serve batches of all sizes."""
    dynamo: Any = torch._dynamo
    for each in tensors:
        dynamo.maybe_mark_dynamic(each, 0)


def _places(model: Model) -> list[object]:
    """Where the weights are, and how they lie there."""
    tensors = chain(model.parameters(), model.buffers()) if isinstance(model, nn.Module) else ()
    return [(each.data_ptr(), each.shape, each.stride(), each.dtype, each.device) for each in tensors]
