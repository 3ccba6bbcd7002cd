"""A model compiled once for batches of any size, beside the model itself, which stays as it is."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import suppress
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from drq.adapters import InPrecision
from drq.objectives import Model


class Compiled:
    """A model in a precision, compiled at its first call.

    What is compiled is a twin that shares the memory of all parameters and buffers, so that it follows when weights change, and
    whose parameters need no gradient: the backward pass then stops at the input.
    """

    def __init__(self, model: Model, dtype: torch.dtype | None) -> None:
        self.model, self.dtype = model, dtype
        self._shared = _places(model)
        self._call: Callable[[Tensor], Tensor] = torch.compile(InPrecision(_twin(model), dtype).forward)

    def __call__(self, x: Tensor) -> Tensor:
        """The logits (N, C)."""
        if not (torch.is_grad_enabled() and x.requires_grad):  # without a gradient it would be compiled once more
            with torch.enable_grad():
                return self(x.detach().requires_grad_()).detach()
        dynamo: Any = torch._dynamo
        dynamo.maybe_mark_dynamic(x, 0)  # one compilation serves batches of all sizes
        return self._call(x)

    def follows(self, model: Model, dtype: torch.dtype | None) -> bool:
        """Whether it still is that model: the same object, with its weights where they were."""
        same = self.model is model and self.dtype == dtype
        return same and self._shared == _places(model)

    @property
    def holds_tensors(self) -> bool:
        """Whether its weights are known; those of a function, say, are not."""
        return bool(self._shared)


def _places(model: Model) -> list[object]:
    """Where the weights are, and how they lie there."""
    tensors = chain(model.parameters(), model.buffers()) if isinstance(model, nn.Module) else ()
    return [(each.data_ptr(), each.shape, each.stride(), each.dtype, each.device) for each in tensors]


def _twin(model: Model) -> Model:
    """A copy whose parameters are views of the model's, without gradients; the model itself where it cannot be copied."""
    if not isinstance(model, nn.Module):
        return model
    memo: dict[int, Any] = {id(each): each for each in model.buffers()}
    memo |= {id(each): nn.Parameter(each.detach(), requires_grad=False) for each in model.parameters()}
    with suppress(Exception):  # what a module of somebody else's holds may refuse in its own way
        return copy.deepcopy(model, memo)
    return model
