"""Define what a threat is: a frozen dataclass that makes inputs harder, called as ``threat(model, x, y, index=...) -> x'``."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import Field, dataclass, field, fields, is_dataclass, replace
from numbers import Real
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from drq.errors import require
from drq.method.execution import Execution, checked, prepare
from drq.norms import Ball, Bounds, Norm, as_norm, check_bounds
from drq.objectives import Model
from drq.rows import Rows
from drq.views import Gate, Views


@dataclass(frozen=True, eq=False)
class Shifted(Rows):
    """The result of a threat on N samples. Indexing selects samples."""

    x: Tensor  # (N, ...) the harder inputs
    passes: Tensor  # (N,) evaluations of the model that were made


class Threat(ABC):
    """A way to make inputs harder: an attack, a corruption, a spatial shift.

    Calling it never changes the model, the labels or any global state, and the result for a sample does not depend on the rest
    of the batch: randomness belongs to the seed, or to the seed and the sample's ``index``. Third-party attacks whose draws
    depend on the shape of the batch have ``batch_dependent`` set.
    """

    batch_dependent: ClassVar[bool] = False
    bounds: Bounds | None = (0.0, 1.0)  # bounds of the input, before and after

    def __call__(self, model: nn.Module | Model | None, x: Tensor, y: Tensor | None, *, index: Tensor | None = None) -> Tensor:
        """Return the harder inputs (N, ...).

        Args:
            model: the classifier under threat; may be None for threats that do not use it.
            x: (N, ...) inputs within the bounds.
            y: (N,) true labels; may be None for threats that do not use them.
            index: (N,) positions in the dataset, to which randomness belongs; 0, 1, 2, ... when None.
        """
        return self.run(model, x, y, index=index).x

    def run(self, model: nn.Module | Model | None, x: Tensor, y: Tensor | None, *, index: Tensor | None = None) -> Shifted:
        """Return the harder inputs with the number of passes; arguments are those of a call."""
        with torch.inference_mode(False), torch.no_grad():
            x = checked(x, self.bounds, None)
            require(len(x) > 0, "x", "have at least one sample", f"shape {tuple(x.shape)}", "leave empty batches out")
            y = None if y is None else check_labels("y", y, x)
            index = torch.arange(len(x)) if index is None else check_labels("index", index, x).cpu()
            shifted = self.shift(model, x, y, index)
        fits = isinstance(shifted, Shifted) and shifted.x.shape == x.shape
        require(fits, "shift", "return a drq.threats.Shifted with as many inputs", type(shifted).__name__, "see docs/threats.md")
        return shifted

    @abstractmethod
    def shift(self, model: nn.Module | Model | None, x: Tensor, y: Tensor | None, index: Tensor) -> Shifted:
        """Do the work of :meth:`run`, with checked arguments and gradients off."""

    @property
    def record(self) -> dict[str, Any]:
        """The name and every setting, as values that JSON can hold."""
        values = {each.name: plain(getattr(self, each.name)) for each in settings(type(self))}
        return {"threat": type(self).__name__, "batch_dependent": self.batch_dependent} | values


def settings(kind: type[Threat]) -> list[Field[Any]]:
    """Return the fields of a threat that are settings, all of which are recorded; callbacks for progress are not."""
    return [each for each in fields(kind) if each.compare]  # type: ignore[arg-type]  # every threat is a dataclass


def check_labels(name: str, values: Tensor, x: Tensor) -> Tensor:
    """Check for one whole number of at least 0 for every row of ``x``, and return them on its device."""
    given = type(values).__name__
    if isinstance(values, Tensor):
        lowest = f" with {values.min().item()}" if values.numel() and not values.is_complex() else ""
        given = f"{values.dtype} of shape {tuple(values.shape)}{lowest}"
    whole = isinstance(values, Tensor) and not (values.is_floating_point() or values.is_complex() or values.dtype == torch.bool)
    valid = whole and values.shape == x.shape[:1] and bool((values >= 0).all())
    require(valid, name, f"be a tensor of {len(x)} whole numbers of at least 0", given, "give one for each sample of x")
    return values.to(x.device, torch.long, copy=True)  # one made in inference mode could not be used in a graph


def check_batch(
    model: nn.Module | Model | None,
    x: Tensor,
    y: Tensor | None,
    norm: Norm,
    bounds: Bounds | None,
    frozen: Tensor | None = None,
    chunk: int | None = None,
) -> tuple[Tensor, Tensor, Execution]:
    """Check model, batch and labels for a threat that uses all of them; return batch, labels and how the model is run."""
    require(callable(model), "model", "be callable", type(model).__name__, "this threat needs the classifier")
    require(y is not None, "y", "be a tensor of labels", "None", "this threat needs the true labels")
    assert model is not None
    assert y is not None
    x, execution = prepare(model, x, norm, bounds, frozen, chunk)
    known = int(y.max()) < execution.classes
    require(known, "y", f"lie below {execution.classes}, the model's classes", int(y.max()), "check the order of classes")
    return x, y, execution


def plain(value: object) -> Any:
    """Return a setting as a value that JSON can hold."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no infinity
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, tuple | list):
        return [plain(each) for each in value]
    if isinstance(value, Views):
        return str(value)
    if isinstance(value, Gate):
        return {name: plain(each) for name, each in value.record.items()}
    if is_dataclass(value) and not isinstance(value, type):  # its own repr would hold addresses of functions
        held = ", ".join(f"{each.name}={plain(getattr(value, each.name))!r}" for each in fields(value) if each.repr)
        return f"{type(value).__name__}({held})"
    return getattr(value, "__name__", None) or repr(value)


@dataclass(frozen=True)
class BallThreat(Threat):
    """A threat within a ball around every sample; what all attacks have in common.

    Args:
        norm: "linf", "l2", "l1" or a :class:`drq.Norm`.
        radius: the radius of the ball; 0 changes nothing.
        bounds: the lowest and the highest value of the input, as numbers or per feature; None for no limit.
        frozen: boolean mask of features that must not change.
        chunk: how many rows are attacked at once; None chooses by memory.
    """

    norm: str | Norm
    radius: float
    bounds: Bounds | None = field(default=(0.0, 1.0), kw_only=True)
    frozen: Tensor | None = field(default=None, kw_only=True)
    chunk: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "norm", as_norm(self.norm))
        number = isinstance(self.radius, Real) and not isinstance(self.radius, bool)
        require(number, "radius", "be a number", repr(self.radius), "float(radius), the same for all samples")
        valid = 0 <= float(self.radius) < math.inf
        require(valid, "radius", "be finite and at least 0", self.radius, "0 changes nothing, 8/255 is usual for images in linf")
        check_bounds(self.bounds)
        if self.frozen is not None:
            object.__setattr__(self, "frozen", torch.as_tensor(self.frozen))
        require(self.chunk is None or self.chunk >= 1, "chunk", "be None or at least 1", self.chunk, "None chooses by memory")

    def prepare_batch(self, model: nn.Module | Model | None, x: Tensor, y: Tensor | None) -> tuple[Tensor, Tensor, Execution]:
        """Check the batch and its labels against the model; return both, and how the model is run."""
        return check_batch(model, x, y, as_norm(self.norm), self.bounds, self.frozen, self.chunk)

    def ball(self, x: Tensor) -> Ball:
        """Return the ball in which the attack may move."""
        return Ball(x, self.radius, self.norm, self.bounds, self.frozen)


@dataclass(frozen=True)
class Attack(BallThreat):
    """An attack on the scores of the model that it is given, piece by piece."""

    def shift(self, model: nn.Module | Model | None, x: Tensor, y: Tensor | None, index: Tensor) -> Shifted:
        x, y, execution = self.prepare_batch(model, x, y)
        parts = [self.attack(execution, x[rows], y[rows], index[rows]) for rows in execution.pieces(len(x))]
        shifted = parts[0].joined(parts[1:])
        return replace(shifted, x=shifted.x.contiguous())  # in contiguous memory, whichever format the model is fast with

    @abstractmethod
    def attack(self, execution: Execution, x: Tensor, y: Tensor, index: Tensor) -> Shifted:
        """Attack one piece of the batch that fits in memory."""
