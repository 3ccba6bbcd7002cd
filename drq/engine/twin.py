"""A copy of a model that computes the same faster.

Where a pass asks for gradients of its input only, weights are constants, and what a pass would compute from them over again, for
every value, is computed once a call. Every weight that has no quicker form is the model's own memory.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from drq.objectives import Model


class _Affine(_BatchNorm):
    """Batch normalisation in evaluation mode, without a root and a quotient for every value."""

    scale: Tensor
    shift: Tensor

    def forward(self, input: Tensor) -> Tensor:
        per_channel = (-1, *[1] * (input.dim() - 2))
        return (input * self.scale.view(per_channel) + self.shift.view(per_channel)).to(input.dtype)

    def refresh(self, own: Any) -> None:
        """Follow the weights and statistics of ``own``. What stays is not written: a gradient may be on its way through it."""
        scale = (own.running_var.to(self.scale.dtype) + own.eps).rsqrt()
        scale = scale if own.weight is None else scale * own.weight
        shift = -own.running_mean.to(scale.dtype) * scale
        shift = shift if own.bias is None else shift + own.bias
        for mine, now in ((self.scale, scale), (self.shift, shift)):
            if not torch.equal(mine, now):
                mine.copy_(now)


class _Affine1d(_Affine, nn.BatchNorm1d):
    pass


class _Affine2d(_Affine, nn.BatchNorm2d):
    pass


class _Affine3d(_Affine, nn.BatchNorm3d):
    pass


AFFINE: dict[type[nn.Module], type[_Affine]] = {
    nn.BatchNorm1d: _Affine1d,
    nn.BatchNorm2d: _Affine2d,
    nn.BatchNorm3d: _Affine3d,
}


class _Sampled(nn.Conv2d):
    """A convolution of single pixels with a stride: others are left out first, which cuDNN has no good kernel for."""

    def forward(self, input: Tensor) -> Tensor:
        down, right = self.stride
        kept = input[..., ::down, ::right].clone()
        return nn.functional.conv2d(kept, self.weight, self.bias, groups=self.groups)


class Watcher:
    """A class whose forward hooks only look on: copies of the model leave them out, since they would be compiled."""


class Twin:
    """A copy of ``model`` whose weights need no gradients; with quicker forms of its modules, unless ``quick`` is False.

    Attributes:
        model: the copy; the model itself where it is no module, or cannot be copied.
    """

    def __init__(self, model: Model, quick: bool = True) -> None:
        self.model = model
        self._normalised: list[tuple[nn.Module, _Affine]] = []
        compiled_before = isinstance(model, nn.Module) and any(isinstance(m, torch.jit.ScriptModule) for m in model.modules())
        if not isinstance(model, nn.Module) or compiled_before:  # whose copies would have weights of their own
            return
        copies: dict[int, Any] = {id(each): each for each in model.buffers()}
        with suppress(Exception):  # what a module of somebody else's holds may refuse in its own way
            copies |= {id(each): _constant(each) for each in model.parameters()}
            self.model = copy.deepcopy(model, copies)
            _stop_watching({*self.model.modules()} - {*model.modules()})
            for mine, own in [(copies[id(each)], each) for each in model.modules() if id(each) in copies and quick]:
                self._quicken(mine, own)
        self.refresh()

    def _quicken(self, mine: nn.Module, own: nn.Module) -> None:
        """Give a module of the copy its quicker form; subclasses, and what is computed before a pass, may be anything."""
        if mine is own or own._forward_pre_hooks or "weight" not in own._parameters:
            return
        if type(own) in AFFINE and isinstance(own.running_var, Tensor):
            kind = torch.promote_types(own.running_var.dtype, torch.float32)
            for name in ("scale", "shift"):
                mine.register_buffer(name, torch.empty_like(own.running_var, dtype=kind), persistent=False)
            mine.__class__ = AFFINE[type(own)]
            assert isinstance(mine, _Affine)
            self._normalised.append((own, mine))
        if type(own) is nn.Conv2d and own.kernel_size == (1, 1) and own.padding == (0, 0) and own.stride != (1, 1):
            mine.__class__ = _Sampled

    @torch.no_grad()
    def refresh(self) -> None:
        """Follow the model's weights, which may have changed where they are."""
        for own, mine in self._normalised:
            mine.refresh(own)


def _stop_watching(modules: Iterable[nn.Module]) -> None:
    for module in modules:
        for key, hook in [*module._forward_hooks.items()]:
            if isinstance(getattr(hook, "__self__", None), Watcher):
                del module._forward_hooks[key]
                module._forward_hooks_with_kwargs.pop(key, None)


def _constant(parameter: nn.Parameter) -> nn.Parameter:
    """The same memory, without a gradient."""
    twin = nn.Parameter(parameter.detach(), requires_grad=False)
    twin.__dict__.update(parameter.__dict__)
    return twin
