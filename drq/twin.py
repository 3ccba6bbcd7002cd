"""A copy of a model that computes the same sooner: what a pass would do over again is done once a call.

Where a pass asks for gradients of its input only, weights are constants. Batch normalisation is then a product and a sum, and
weights are rounded and laid out beforehand. All else, and every weight that has no quicker form, is the model's own memory.
"""

from __future__ import annotations

import copy
from contextlib import suppress
from functools import reduce
from itertools import product
from operator import add
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from drq.objectives import Model

ROUNDED = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)  # whose weights autocast rounds at every pass
COLUMNS = 32  # of a matrix of windows
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


class _Stem(nn.Conv2d):
    """The first convolution of small images as a product of matrices: for few channels, cuDNN has no good kernels."""

    def forward(self, input: Tensor) -> Tensor:
        rounded = input.to(self.weight.dtype)
        features: Tensor = _FewChannels.apply(rounded, self.weight, self.padding)  # type: ignore[no-untyped-call]
        return features if self.bias is None else features + self.bias[:, None, None]

    @staticmethod
    def fits(own: nn.Module, dtype: torch.dtype | None) -> bool:
        """Whether the module is such a convolution, in half precision on a GPU."""
        if type(own) is not nn.Conv2d or own.padding_mode != "zeros" or isinstance(own.padding, str):
            return False
        plain = own.stride == own.dilation == (1, 1) and own.groups == 1 and own.kernel_size != (1, 1)
        return plain and own.weight[0].numel() <= COLUMNS and own.weight.is_cuda and dtype is not None


class _FewChannels(torch.autograd.Function):
    """A convolution whose windows are rows of a matrix; they are filled up to a width that tensor cores like."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, padding: tuple[int, int]) -> Tensor:
        channels, (down, right), window = x.shape[1], padding, weight.shape[2:]
        flat = nn.functional.pad(weight.permute(0, 2, 3, 1).flatten(1), (0, COLUMNS - weight[0].numel()))
        ctx.save_for_backward(flat)
        ctx.facts = channels, padding, window
        x = nn.functional.pad(x, (right, right, down, down))
        height, width = x.shape[2] - window[0] + 1, x.shape[3] - window[1] + 1
        places = product(range(window[0]), range(window[1]))
        views = [x[:, :, i : i + height, j : j + width] for i, j in places]
        rows = nn.functional.pad(torch.cat(views, 1), (0, 0, 0, 0, 0, flat.shape[1] - weight[0].numel())).permute(0, 2, 3, 1)
        return (rows.reshape(-1, flat.shape[1]) @ flat.t()).view(len(x), height, width, len(weight)).permute(0, 3, 1, 2)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None, None]:
        (flat,), (channels, (down, right), window) = ctx.saved_tensors, ctx.facts
        rows = slope.permute(0, 2, 3, 1)
        rows = (rows.reshape(-1, rows.shape[3]) @ flat).view(*rows.shape[:3], flat.shape[1])
        far, wide = window[0] - 1, window[1] - 1
        rows = nn.functional.pad(rows, (0, 0, wide, wide, far, far))
        height, width = slope.shape[2] + far - 2 * down, slope.shape[3] + wide - 2 * right
        parts = []
        for number, (i, j) in enumerate(product(range(window[0]), range(window[1]))):
            top, left, first = down + far - i, right + wide - j, number * channels
            parts.append(rows[:, top : top + height, left : left + width, first : first + channels])
        precise = torch.promote_types(slope.dtype, torch.float32)
        total = reduce(add, (part.to(precise) for part in parts))
        return total.to(slope.dtype).permute(0, 3, 1, 2), None, None


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
        if _Stem.fits(own, dtype):
            mine.__class__ = _Stem
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
