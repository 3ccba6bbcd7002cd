"""Adapt batch norm or weights to test samples without changing the model: what several peers have in common.

Nothing is copied. The model itself is called, with other tensors for its weights, and with hooks on its batch norm that are
removed when the call ends. So all evaluations of the model can be counted. Gradients flow through the last evaluation of a
sample; what was adapted is held constant, except for the statistics of a batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from drq.defences.defended import is_number
from drq.errors import require
from drq.method.execution import check_mode

BATCH_REMEDY = "it needs as many samples at once as its answers shall be fitted to"


@contextmanager
def mixed_statistics(model: nn.Module, share: float, each: bool = False) -> Iterator[None]:
    """Inside the context, mix this share of the batch's statistics into those of batch norm's training.

    With ``each``, every sample has its own statistics.
    """
    check_mode(model)  # it would update its running statistics
    layers = batch_norms(model) if share > 0 else []

    def hook(layer: nn.Module, inputs: tuple[Tensor], _: Tensor) -> Tensor:
        assert isinstance(layer, _BatchNorm)
        return normalise(layer, inputs[0], share, each)

    handles = [layer.register_forward_hook(hook) for layer in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def normalise(layer: _BatchNorm, x: Tensor, share: float, each: bool = False) -> Tensor:
    """Apply the layer to ``x`` with this share of the batch's statistics, which are differentiable, as in training."""
    wide = at_least_float32(x).flatten(2) if x.dim() > 2 else at_least_float32(x)[..., None]  # (N, C, places)
    variance, mean = torch.var_mean(wide, [2] if each else [0, 2], correction=0, keepdim=True)
    if layer.running_mean is not None and layer.running_var is not None:
        mean = share * mean + (1 - share) * layer.running_mean[:, None]
        variance = share * variance + (1 - share) * layer.running_var[:, None]
    output = (wide - mean) * (variance + layer.eps).rsqrt()
    if layer.affine:
        output = output * layer.weight[:, None] + layer.bias[:, None]
    return output.to(x.dtype).view_as(x)


def entropy(logarithms: Tensor) -> Tensor:
    """Return the entropy of probabilities that are given by their logarithms."""
    return -(logarithms.exp() * logarithms).sum(-1)


def at_least_float32(x: Tensor) -> Tensor:
    """Return the tensor in float32 if it is in half precision, which is too short for squares."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def batch_norms(model: nn.Module) -> list[_BatchNorm]:
    """Return the model's layers of batch norm."""
    return [each for each in model.modules() if isinstance(each, _BatchNorm)]


def affine_parameters(model: nn.Module) -> list[tuple[str, Tensor]]:
    """Return the weights and biases of batch norm, with their names in the model."""
    layers = [(name, each) for name, each in model.named_modules() if isinstance(each, _BatchNorm)]
    return [(f"{name}.{kind}".strip("."), value) for name, layer in layers for kind, value in layer.named_parameters()]


def check_not_compiled(model: nn.Module, name: str) -> None:
    """Require a model that is neither compiled nor scripted, since those may ignore other weights and hooks."""
    scripted = any(isinstance(each, torch.jit.ScriptModule) for each in model.modules())
    compiled = any(hasattr(each, "_orig_mod") or each._compiled_call_impl is not None for each in model.modules())
    remedy = f"give {name} the model from which it was made"
    require(not scripted and not compiled, "model", "not be compiled or scripted", "one that is", remedy)


def check_norms(model: nn.Module, name: str) -> None:
    """Require a model that can be adapted through its batch norm."""
    remedy = "memo adapts models without it, from single samples"
    check_not_compiled(model, name)
    require(len(batch_norms(model)) > 0, "model", f"have batch norm for {name}", "no layer of it", remedy)


def check_source(source: float) -> None:
    """Require a valid weight of the training statistics, which is a number of training samples."""
    remedy = "it counts samples of training; inf keeps its statistics alone"
    require(is_number(source) and source >= 0, "source", "be a number of at least 0", repr(source), remedy)
