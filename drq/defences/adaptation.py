"""What peers share that fit batch norm or weights to what is asked, and leave the model as it was.

Nothing is copied. The model itself is called, with other tensors for its weights, and with hooks on its batch norm that leave
when the call ends. So whoever counts the evaluations of the model counts these, too. Gradients follow a point through the last
look at it; what was adapted is held constant, save the statistics of a batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from drq.defences.defended import is_number
from drq.errors import require

GROUPED = "it needs as many samples at once as its answers shall be fitted to"


@contextmanager
def mixed_norms(model: nn.Module, share: float, each: bool = False) -> Iterator[None]:
    """Meanwhile batch norm has this share of the statistics of what it sees, and takes the rest from those of training.

    With ``each``, it has those of every sample for that sample.
    """
    training = any(part.training for part in model.modules())  # it would keep what it sees
    require(not training, "model", "be in evaluation mode", "a module in training mode", "call model.eval() first")
    layers = norms(model) if share > 0 else []

    def hook(layer: nn.Module, inputs: tuple[Tensor], _: Tensor) -> Tensor:
        assert isinstance(layer, _BatchNorm)
        return normalised(layer, inputs[0], share, each)

    handles = [layer.register_forward_hook(hook) for layer in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def normalised(layer: _BatchNorm, x: Tensor, share: float, each: bool = False) -> Tensor:
    """What the layer makes of ``x`` with this share of its statistics. They are differentiable, as in training."""
    wide = widened(x).flatten(2) if x.dim() > 2 else widened(x)[..., None]  # (N, C, places)
    variance, mean = torch.var_mean(wide, [2] if each else [0, 2], correction=0, keepdim=True)
    if layer.running_mean is not None and layer.running_var is not None:
        mean = share * mean + (1 - share) * layer.running_mean[:, None]
        variance = share * variance + (1 - share) * layer.running_var[:, None]
    found = (wide - mean) * (variance + layer.eps).rsqrt()
    if layer.affine:
        found = found * layer.weight[:, None] + layer.bias[:, None]
    return found.to(x.dtype).view_as(x)


def entropy(logarithms: Tensor) -> Tensor:
    """Of probabilities that are given by their logarithms."""
    return -(logarithms.exp() * logarithms).sum(-1)


def widened(x: Tensor) -> Tensor:
    """At least in float32: halves are too short for squares."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def norms(model: nn.Module) -> list[_BatchNorm]:
    """The layers of batch norm."""
    return [each for each in model.modules() if isinstance(each, _BatchNorm)]


def affine(model: nn.Module) -> list[tuple[str, Tensor]]:
    """Weights and biases of batch norm, by their names in the model."""
    layers = [(name, each) for name, each in model.named_modules() if isinstance(each, _BatchNorm)]
    return [(f"{name}.{kind}".strip("."), value) for name, layer in layers for kind, value in layer.named_parameters()]


def check_open(model: nn.Module, name: str) -> None:
    """A model that heeds other weights and hooks. What was compiled need not, or would keep them."""
    scripted = any(isinstance(each, torch.jit.ScriptModule) for each in model.modules())
    compiled = any(hasattr(each, "_orig_mod") or each._compiled_call_impl is not None for each in model.modules())
    remedy = f"give {name} the model from which it was made"
    require(not scripted and not compiled, "model", "not be compiled or scripted", "one that is", remedy)


def check_norms(model: nn.Module, name: str) -> None:
    """A model that can be adapted by them."""
    remedy = "memo adapts models without it, from single samples"
    check_open(model, name)
    require(len(norms(model)) > 0, "model", f"have batch norm for {name}", "no layer of it", remedy)


def check_source(source: float) -> None:
    """How many samples of training the statistics of training count as."""
    remedy = "it counts samples of training; inf keeps its statistics alone"
    require(is_number(source) and source >= 0, "source", "be a number of at least 0", repr(source), remedy)
