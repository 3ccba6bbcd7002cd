"""A copy of a model that computes the same sooner: what a pass would do over again is done once a call.

Where a pass asks for gradients of its input only, weights are constants. Batch normalisation is then a product and a sum, and
weights are rounded and laid out beforehand. All else, and every weight that has no quicker form, is the model's own memory.
"""

from __future__ import annotations

import copy
from contextlib import suppress
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from drq.objectives import Model

ROUNDED = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)  # whose weights autocast rounds at every pass
NORMALISED = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class _Affine(_BatchNorm):
    """Batch normalisation in evaluation mode, without a root and a quotient for every value."""

    scale: Tensor
    shift: Tensor

    def forward(self, input: Tensor) -> Tensor:
        per_channel = (-1, *[1] * (input.dim() - 2))
        return (input * self.scale.view(per_channel) + self.shift.view(per_channel)).to(input.dtype)


class _Sampled(nn.Conv2d):
    """A convolution of single pixels with a stride: others are left out first, which cuDNN has no good kernel for."""

    def forward(self, input: Tensor) -> Tensor:
        down, right = self.stride
        kept = input[..., ::down, ::right].clone()
        return nn.functional.conv2d(kept, self.weight, self.bias, groups=self.groups)


class Twin:
    """A copy of ``model`` for passes under autocast to ``dtype``, or as it is when None, of points that lie in ``layout``.

    Attributes:
        model: the copy; the model itself where it is no module, or cannot be copied.
    """

    def __init__(self, model: Model, dtype: torch.dtype | None, layout: torch.memory_format) -> None:
        self.model = model
        self._normalised: list[tuple[Any, _Affine]] = []
        self._rounded: list[tuple[Tensor, Tensor]] = []
        if not isinstance(model, nn.Module):
            return
        copies: dict[int, Any] = {id(each): each for each in model.buffers()}
        copies |= {id(each): nn.Parameter(each.detach(), requires_grad=False) for each in model.parameters()}
        with suppress(Exception):  # what a module of somebody else's holds may refuse in its own way
            self.model = copy.deepcopy(model, copies)
            for mine, own in [(copies[id(each)], each) for each in model.modules() if id(each) in copies]:
                self._quicken(mine, own, dtype, layout)
        self.refresh()

    def _quicken(self, mine: nn.Module, own: nn.Module, dtype: torch.dtype | None, layout: torch.memory_format) -> None:
        """Give a module of the copy its quicker form; subclasses may do anything, so they keep theirs."""
        if type(mine) in NORMALISED and isinstance(mine.running_var, Tensor):
            kind = torch.promote_types(mine.running_var.dtype, torch.float32)
            for name in ("scale", "shift"):
                mine.register_buffer(name, torch.empty_like(mine.running_var, dtype=kind), persistent=False)
            mine.__class__ = _Affine
            self._normalised.append((own, cast(_Affine, mine)))
        if type(mine) in ROUNDED and dtype is not None:
            for name, weight in list(mine.named_parameters(recurse=False)):
                if weight.dtype == torch.float32:
                    form = layout if weight.dim() == 4 else torch.contiguous_format
                    rounded = torch.empty_like(weight, dtype=dtype, memory_format=form)
                    setattr(mine, name, nn.Parameter(rounded, requires_grad=False))
                    self._rounded.append((weight, rounded))
        if type(mine) is nn.Conv2d and mine.kernel_size == (1, 1) and mine.padding == (0, 0) and mine.stride != (1, 1):
            mine.__class__ = _Sampled

    @torch.no_grad()
    def refresh(self) -> None:
        """Follow the model's weights, which may have changed where they are."""
        for own, mine in self._normalised:
            variance, kind = own.running_var, mine.scale.dtype
            weight, bias = (getattr(own, name) for name in ("weight", "bias"))
            scale = (variance.to(kind) + mine.eps).rsqrt()
            mine.scale.copy_(scale if weight is None else scale * weight)
            shift = -own.running_mean.to(kind) * mine.scale
            mine.shift.copy_(shift if bias is None else shift + bias)
        for weight, rounded in self._rounded:
            rounded.copy_(weight)
