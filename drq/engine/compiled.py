"""A model compiled once for batches of any size; the model itself stays as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import chain
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from drq.engine.twin import Twin
from drq.method.execution import InPrecision
from drq.objectives import Model


class Compiled:
    """A model in a precision, compiled at its first call.

    What is compiled is a :class:`drq.engine.twin.Twin`, whose parameters need no gradient: the backward pass stops at the input.
    Models may be anything, so its first answers are held against theirs, and where they differ it is a plain copy, or the model
    itself.
    """

    def __init__(self, model: Model, dtype: torch.dtype | None) -> None:
        self.model, self.dtype = model, dtype
        self._shared = _places(model)
        self._twin: Twin | None = None
        self._call: Callable[[Tensor], Tensor] | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """The logits (N, C)."""
        if not (torch.is_grad_enabled() and x.requires_grad):  # without a gradient it would be compiled once more
            with torch.enable_grad():
                return self(x.detach().requires_grad_()).detach()
        if self._call is None:
            self._twin = self._faithful(x.detach()[:2])
            precise = InPrecision(self._twin.model if self._twin else self.model, self.dtype)
            self._call = alone(lambda x: precise(x))
        any_batch([x])
        return self._call(x)

    def _faithful(self, x: Tensor) -> Twin | None:
        """A twin that answers as the model does, the quickest there is."""

        @torch.no_grad()
        def answer(model: Model, x: Tensor) -> Tensor:
            logits: Tensor = InPrecision(model, self.dtype)(x)
            return logits

        expected = answer(self.model, x)
        near = expected.abs().amax() * torch.finfo(self.dtype or x.dtype).eps ** 0.5
        for quick in (True, False):
            with suppress(Exception):  # a copy of what others made may fail in its own way
                answer(self.model, torch.zeros_like(x))  # what a copy keeps of this pass shall not pass for its own
                twin = Twin(self.model, quick)
                if (answer(twin.model, x) - expected).abs().amax() <= near:
                    return twin
        return None

    def follows(self, model: Model) -> bool:
        """Whether it still is that model: the same object, with its weights where they were."""
        return self.model is model and self._shared == _places(model)

    def refresh(self) -> None:
        """Follow weights that changed where they are."""
        if self._twin is not None:
            self._twin.refresh()

    @property
    def holds_tensors(self) -> bool:
        """Whether its weights are known; those of a function, say, are not."""
        return bool(self._shared)


def alone(function: Any) -> Any:
    """Compile a function as code of its own: PyTorch counts compilations by code, and stops compiling what eight others share."""
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
