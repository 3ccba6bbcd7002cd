"""Models of other libraries, and of the caller's own code, by name."""

from __future__ import annotations

import inspect
from typing import Any

from torch import nn

from drq.errors import InputError, one_line, require
from drq.models.huggingface_models import load_huggingface
from drq.models.known import ModelSource
from drq.models.timm_models import load_timm
from drq.models.torchvision_models import load_torchvision
from drq.system.code import load_object

__all__ = ["load_huggingface", "load_python", "load_timm", "load_torchvision"]


def load_python(target: str, /, **options: Any) -> nn.Module:
    """The model that a function makes, in evaluation mode and with its weights fixed.

    It takes whatever inputs it was made for: a :class:`~drq.models.classifier.Classifier` of images with a card, or any module.

    Args:
        target: ``package.module:factory``.
        options: passed to the factory.

    >>> load_python("torch.nn:Linear", in_features=3, out_features=2)
    Linear(in_features=3, out_features=2, bias=True)
    """
    factory = _factory(target)
    try:
        inspect.signature(factory).bind(**options)
    except TypeError as error:
        given = ", ".join(options) or "no options"
        raise InputError(f"{target} must take these options, got {given} ({one_line(error)}): change them") from error
    except ValueError:  # some callables of C have no signature
        pass
    model = factory(**options)
    remedy = "return the model from the factory"
    require(isinstance(model, nn.Module), target, "return a torch.nn.Module", type(model).__name__, remedy)
    settled: nn.Module = model.eval().requires_grad_(False)
    return settled


def _factory(target: str) -> Any:
    found = load_object(target)
    rule = "name a function or class that makes the model"
    made = callable(found) and not isinstance(found, nn.Module)
    require(made, target, rule, type(found).__name__, "write a function that returns it")
    return found


SOURCE = ModelSource("what a function of yours returns", load_python, "package.module:factory", ours=True)
