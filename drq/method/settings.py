"""The rules for the arguments of DRQ that need no batch to be checked."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from inspect import Parameter
from typing import Any

import torch
from torch import Tensor

from drq.errors import require
from drq.search.loop import Search, check_steps

PRECISIONS = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}


def check_searches(alpha: object, explore: object, quantify: object, classes: int | None) -> None:
    """How it searches, and which classes."""
    share = isinstance(alpha, int | float) and 0 <= alpha <= 1
    require(share, "alpha", "lie in [0, 1]", repr(alpha), "the paper uses 0.5")
    for name, method in (("explore", explore), ("quantify", quantify)):
        stays = isinstance(method, Search) and method.stays_in_ball
        require(stays, name, "be a search within a ball", repr(method), "drq.Gradient(20) is the paper's")
    if classes is not None:
        check_steps("classes", classes, "None searches all classes")


def check_running(prune: object, precision: object, compile: object, chunk: int | None, front: object) -> None:
    """How the model is run, and what comes before it."""
    known = prune in ("none", "exact", "race")
    require(known, "prune", "be 'none', 'exact' or 'race'", repr(prune), "'exact' is the default")
    names = ", ".join(map(repr, PRECISIONS))
    require(precision in PRECISIONS, "precision", f"be one of {names}", repr(precision), "'float32' is the default")
    require(isinstance(compile, bool), "compile", "be True or False", repr(compile), "False is the default")
    require(chunk is None or chunk >= 1, "chunk", "be None or at least 1", chunk, "None chooses by memory")
    require(front is None or callable(front), "front", "be None or callable", repr(front), "drq.Restoration() is one")


def described(settings: Mapping[str, Any], parameters: Mapping[str, Parameter], always: Collection[str]) -> list[str]:
    """Settings as a printed module shows them: those that are not at their defaults, and some always."""
    shown = []
    for name, value in settings.items():
        given = f"a tensor {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)
        if name in always or given != repr(parameters[name].default):
            shown.append(f"{name}={given}")
    return shown
