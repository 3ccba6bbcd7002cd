"""Let PyTorch print, save, compile, trace and transform a module whose scores are searched for, or say in a line what works."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import torch
from torch import Tensor, nn

from drq.errors import InputError, require
from drq.method.adapters import Wrapper

Result = TypeVar("Result")

logger = logging.getLogger("drq")

ADVICE = "drq.DRQ(model, compile=True) compiles its searches, and torch.compile(robust.exportable()) DRQ over views"
REMEDIES = {
    "torch.func": "robust(x) answers for a whole batch, and torch.autograd.grad differentiates it",
    "torch.jit": "trace robust.model, and let DRQ search around it in Python",
    "torch.export": "export robust.model, and let DRQ search around it in Python",
}


class Searched(Wrapper):
    """A module around a model whose scores are searched for, so that values are looked at, which a trace does not have."""

    def __init__(self, model: nn.Module | Callable[[Tensor], Tensor]) -> None:
        super().__init__(model)
        self._was_advised = False

    def __repr__(self) -> str:
        """One line: the name of the model, not its layers, and the settings."""
        card = getattr(self.model, "card", None)
        name = getattr(card, "name", None) or getattr(self.model, "__name__", None) or type(self.model).__name__
        return f"{type(self).__name__}({', '.join(filter(None, (name, self.extra_repr())))})"

    @abstractmethod
    def scored(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Scores (N, C), and the passes of the model that they took (N,)."""

    @abstractmethod
    def exportable(self) -> nn.Module:
        """The same scores as tensor operations alone, where they can be had so."""

    def without_trace(self, x: Tensor) -> Tensor:
        """The scores, in a way that what traces the call understands."""
        if torch.compiler.is_dynamo_compiling() and not exporting():
            scores: Tensor = self.uncompiled(self.scored)(x)[0]
            return scores
        return self.exportable()(x)  # type: ignore[no-any-return]

    def uncompiled(self, function: Callable[..., Result]) -> Callable[..., Result]:
        """The function as it is, whatever torch.compile would make of it."""

        def call(*arguments: Any) -> Result:
            if not self._was_advised:
                self._was_advised = True
                logger.warning("drq: torch.compile leaves DRQ as it is; %s", ADVICE)
            return function(*arguments)

        alone: Callable[..., Result] = torch.compiler.disable(call)  # type: ignore[no-untyped-call]
        return alone

    def __prepare_scriptable__(self) -> NoReturn:
        """Asked by torch.jit.script."""
        raise InputError(
            "robust must not be scripted, got torch.jit.script: torch.jit.trace takes DRQ over views, or robust.model"
        )


def traced_by() -> str | None:
    """What traces or transforms this call; None for a usual one."""
    if torch.compiler.is_compiling():
        return "torch.export"
    if torch._C._get_tracing_state() is not None:
        return "torch.jit"
    return "torch.func" if torch._C._are_functorch_transforms_active() else None


def exporting() -> bool:
    """Whether a graph of the whole call is wanted; torch.compile can do without."""
    asked: Callable[[], bool] = getattr(torch.compiler, "is_exporting", lambda: False)  # which torch 2.4 has not
    return asked()


def refuse_ball(searched: bool) -> None:
    """A ball is searched in steps that depend on values, so that there is no graph of it."""
    by = traced_by() or "torch.export"
    rule, remedy = f"look at views alone (views=, no radius) for {by}", REMEDIES[by]
    require(not searched, "robust", rule, "a ball, whose search looks at values", remedy)
