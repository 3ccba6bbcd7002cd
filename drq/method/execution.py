"""How a model is run on a batch: both are checked, with errors that name the remedy; precision and memory layout are chosen.

This is the one place that knows how many rows fit in memory at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import NamedTuple

import torch
from torch import Tensor, nn

from drq.errors import InputError, require
from drq.method.mistakes import check_batched, warn_of_probabilities
from drq.norms import Ball, Bounds, Linf, Norm, Space, check_features
from drq.objectives import Model
from drq.search.loop import Problems, Progress, solve
from drq.system.progress import Meter

# How far searching in a lower precision moves log-odds, in rounding errors of the largest logit; measured, see docs/speed.md.
MOVED = {torch.float16: 20, torch.bfloat16: 8}
AT_ONCE, CACHED = 4096, 2**24  # rows that go through a model on a CPU together, at least; the bytes that they may store
GUESSED = 16  # times an input that a layer holds, where it cannot be seen
FORWARD_BYTES = 2**22  # of the largest layer of rows that go forward through a model on a CPU together: more leave its caches

TOLERANCE = 1e-6  # by which an input may leave its bounds, as images do after a round trip through other formats


class InPrecision(nn.Module):
    """The model under autocast to ``dtype`` (as it is when None); its output comes back in the precision of its input."""

    def __init__(self, model: nn.Module | Model, dtype: torch.dtype | None) -> None:
        super().__init__()
        self.model, self.dtype = model, dtype
        self.training = bool(getattr(model, "training", False))

    def forward(self, x: Tensor) -> Tensor:
        with nullcontext() if self.dtype is None else torch.autocast(x.device.type, self.dtype):
            output = self.model(x)
        return output.to(x.dtype) if isinstance(output, Tensor) else output


@dataclass(frozen=True)
class Execution:
    """How a model is run: in which precision, in which space around its inputs, and on how many rows together."""

    model: Model  # in the precision in which it is searched
    searched: Model  # the same, compiled where it is
    exact: Model  # in the precision of its input
    rounding: float  # how far searching with the former two moves log-odds, relative to the largest logit; 0 for not at all
    exact_layout: torch.memory_format  # order in memory with which the latter is fast
    space: Space
    classes: int
    chunk: int
    together: int = 1  # chunks of rows that a block of samples may have: their points are small beside what a pass stores
    spare: int = 0  # so many rows take no longer than one
    at_once: int | None = None  # rows that go through the model together, of those that are searched at once; None for all
    meter: Meter | None = None  # counts the passes of a call, where somebody wants to know how far it is
    forward_rows: int | None = None  # rows of passes without gradients that are quickest together; None for a chunk

    @property
    def small(self) -> bool:
        """Whether it is on a CPU, and so small that its caches hold what many rows store."""
        return self.at_once is not None and self.at_once > AT_ONCE

    @property
    def solve(self) -> Callable[[Problems], Progress]:
        """:func:`drq.search.loop.solve` with as many rows at once as fit."""
        return partial(solve, chunk=self.chunk, at_once=self.at_once, count=None if self.meter is None else self.meter.count)

    def logits(self, x: Tensor) -> Tensor:
        """The logits (N, C) of the whole batch."""
        if not len(x):
            return x.new_zeros(0, self.classes)
        logits = torch.cat([self.model(rows) for rows in torch.split(x, self.chunk)])
        shape, rule = f"shape {tuple(logits.shape)} for {len(x)} samples", "return one row of logits for each sample"
        require(logits.shape == (len(x), self.classes), "model", rule, shape, "check what its forward pass flattens or averages")
        finite = bool(logits.isfinite().all())
        require(finite, "model", "return finite logits", "NaN or infinity", "check its weights, and that it takes x as given")
        return self._settled(x, logits) if self.rounding else logits

    def _settled(self, x: Tensor, logits: Tensor) -> Tensor:
        """The logits, in the precision of x where rounding cannot tell the two highest apart."""
        first, second = logits.topk(2).values.unbind(1)
        close = (first - second <= self.near(logits)).nonzero()[:, 0]
        for rows in self.pieces(len(close)):
            if len(close[rows]):
                again = self.exact(x[close[rows]].contiguous(memory_format=self.exact_layout))
                logits = logits.index_put((close[rows],), again)
        return logits

    def near(self, logits: Tensor) -> Tensor:
        """(N,) the largest difference of log-odds that may be due to rounding."""
        return self.rounding * logits.detach().abs().amax(1)

    def pieces(self, count: int, size: int = 1) -> list[slice]:
        """Slices that make up ``count`` items of ``size`` rows each, no more rows in one than fit; one empty slice for none."""
        stride = max(1, self.chunk // size)
        return [slice(first, min(first + stride, count)) for first in range(0, max(count, 1), stride)]


def prepare(
    model: Model,
    x: Tensor,
    norm: Norm,
    bounds: Bounds | None,
    frozen: Tensor | None,
    chunk: int | None = None,
    dtype: torch.dtype | None = None,
    known: dict[object, Facts] | None = None,
    gradients: bool = True,
) -> tuple[Tensor, Execution]:
    """Check the batch and the model; return a copy of the batch inside its bounds, and how the model is run on it.

    ``known`` remembers what one row showed of the model, so that later batches of the same kind need not try again. Who asks for
    no ``gradients`` may run models that have none.
    """
    frozen = None if frozen is None else torch.as_tensor(frozen)
    x, exact = checked(x, bounds, frozen), InPrecision(model, None)
    form = tuple(each.shape for each in model.parameters()) if isinstance(model, nn.Module) else ()  # a head may be replaced
    kind = (id(model), form, x.shape[1:], x.dtype, x.device, dtype, gradients)
    facts = (known or {}).get(kind) or examine(InPrecision(model, dtype), x, gradients)
    check_mode(exact)
    if known is not None:
        known[kind] = facts
    quick = InPrecision(model, dtype)
    exact = exact if facts.full else quick
    rounding = 0.0 if dtype is None or not facts.full else MOVED[dtype] * torch.finfo(dtype).eps
    chunk = chunk or facts.rows
    layout, together = _best(facts, x, None), min(8, max(1, facts.row_bytes // facts.point_bytes))
    at_once = max(AT_ONCE, CACHED // facts.row_bytes) if x.device.type == "cpu" else None
    if x.device.type == "cpu":
        keep_freed_memory()
    space = Space(norm, bounds, frozen)
    forward = min(chunk, max(1, FORWARD_BYTES // facts.layer_bytes)) if x.device.type == "cpu" else None
    execution = Execution(
        *(quick, quick, exact, rounding, layout, space, facts.classes, chunk, together, 0, at_once), forward_rows=forward
    )
    return x.contiguous(memory_format=_best(facts, x, dtype)), execution


def checked(x: Tensor, bounds: Bounds | None, frozen: Tensor | None) -> Tensor:
    """A copy of the batch ``x`` inside the bounds, or an error that says what is wrong with it."""
    require(isinstance(x, Tensor), "x", "be a tensor", type(x).__name__, "convert with torch.as_tensor; torch.stack for a list")
    floating = x.dtype in (torch.float32, torch.float64)
    remedy = "convert with x.float(), and divide 8-bit images by 255; for half precision see DRQ(precision=...)"
    require(floating, "x", "be float32 or float64", x.dtype, remedy)
    require(x.dim() >= 2, "x", "be a batch of shape (N, ...)", f"shape {tuple(x.shape)}", "add a dimension with x[None]")
    finite = bool(x.isfinite().all())
    require(finite, "x", "be finite", "NaN or infinity", "clean the input before it is classified")
    check_features(x, bounds, frozen)
    inside = Ball(x, 0.0, Linf(), bounds).clip(x)
    outside = (x - inside).abs()
    if x.numel() and outside.max() > TOLERANCE:
        row, *feature = (int(each) for each in torch.unravel_index(outside.argmax(), x.shape))
        worst = f"{x[row, *feature].item():.6g} in sample {row} at feature {feature[0] if len(feature) == 1 else tuple(feature)}"
        limits = f"bounds={bounds}" if bounds and not isinstance(bounds[0], Tensor) else "its bounds"
        remedy = "scale x (8-bit images by 1/255), normalise inside the model, or pass other bounds; None for no limit"
        require(False, "x", f"lie within {limits}", worst, remedy)
    return inside.clone()


def check_radius(radius: float | Tensor, x: Tensor | None = None) -> Tensor:
    """The radius of every row of ``x`` (N,); without ``x`` only the values are checked."""
    number = isinstance(radius, Real | Tensor) and not isinstance(radius, bool)
    require(number, "radius", "be a number, one per sample, or drq.Calibrated()", repr(radius), "drq.Calibrated() is the default")
    given = torch.as_tensor(radius, dtype=torch.float64)  # a Python float would become float32
    valid = bool((given.isfinite() & (given >= 0)).all())
    remedy = "0 is the undefended classifier, twice the training radius suits adversarially trained models"
    require(valid, "radius", "be finite and at least 0", radius, remedy)
    if x is None:
        return given
    fits = given.dim() == 0 or given.shape == x.shape[:1]
    require(fits, "radius", f"be a number or have shape ({len(x)},)", f"shape {tuple(given.shape)}", "give one per sample")
    return given.detach().to(x.device, x.dtype).expand(len(x))


def keep_freed_memory() -> None:
    """Let the C library use freed memory again, instead of asking the system for pages that it has to clear every time.

    glibc does so for pieces up to the largest that was ever freed, but for none above 32 MiB. Nothing is written to this one.
    """
    torch.empty(31 * 2**20, dtype=torch.uint8)


def _best(facts: Facts, x: Tensor, dtype: torch.dtype | None) -> torch.memory_format:
    """The order in memory with which the model is fast: on GPUs, full float32 knows no fast kernels with channels last."""
    full = x.is_cuda and dtype is None and not torch.backends.cudnn.allow_tf32
    return torch.contiguous_format if full else facts.layout


class Facts(NamedTuple):
    """Properties of a model that one row through it shows."""

    classes: int
    rows: int  # that may be searched at once: kept, since what the first ones leave reserved would count as taken
    row_bytes: int  # stored between the forward and the backward pass of a row
    point_bytes: int  # of the points, gradients and log-odds that a search holds for a row
    layer_bytes: int  # of the largest of the tensors between its layers, for a row
    layout: torch.memory_format  # channels last where it may have it so
    full: bool  # whether it also runs in the precision of its input


def examine(model: nn.Module, x: Tensor, gradients: bool = True) -> Facts:
    """Run one row forward and backward: the model must be in evaluation mode, return (N, C) logits and pass gradients on.

    Where no ``gradients`` are wanted it need not have any; then what it stores is guessed.
    """
    check_mode(model)
    wanted = gradients
    row = x[:1] if len(x) else x.new_zeros(1, *x.shape[1:])
    layout = _layout(model, row)
    gradients = gradients or _follows(model, row)
    row = row.detach().clone(memory_format=layout).requires_grad_(gradients)  # a view would store the whole batch
    with torch.enable_grad(), _stored(model) as stored:
        try:
            logits = model(row)
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, TypeError, ValueError, LookupError) as error:
            check_batched(model, x)
            given = f"shape {tuple(row.shape)} and {row.dtype} for one row"
            remedy = "check the batch dimension (x[None] makes a batch of one sample) and the dtype (x.float())"
            raise InputError(f"model must accept x, got {given}: {remedy}; its own error was: {error}") from error
        _check_logits(logits, row, partial(check_batched, model, x))
        slopes = torch.autograd.grad(logits.sum(), row, allow_unused=True) if wanted and logits.requires_grad else [None]
    remedy = "remove .detach(), torch.no_grad() or non-differentiable steps from its forward pass"
    warn_of_probabilities(model, row.detach(), logits.detach())
    reached = not wanted or slopes[0] is not None
    require(reached, "model", "let gradients reach its input", "an output detached from it", remedy)
    guessed = GUESSED * row.numel() * row.element_size()
    layer_bytes = max(stored.values(), default=guessed)
    row_bytes = sum(stored.values()) if stored or wanted else guessed
    if stored and isinstance(model, InPrecision) and model.dtype is not None:  # rounded weights, stored once a batch, cancel
        with torch.enable_grad(), _stored(model) as stored_for_two:
            model(torch.cat([row, row]))
        row_bytes = max(0, sum(stored_for_two.values()) - row_bytes)
    point_bytes = 8 * (row.numel() + logits.numel()) * row.element_size()
    row_bytes += point_bytes
    rows, full = rows_that_fit(row_bytes, row.device), _runs_in_full(model, row.detach())
    return Facts(logits.shape[1], rows, row_bytes, point_bytes, layer_bytes, layout, full)


def _follows(model: nn.Module, row: Tensor) -> bool:
    """Whether the model takes a row that asks for a gradient, which code outside of torch may refuse."""
    try:
        with torch.enable_grad():
            model(row.detach().clone().requires_grad_())
    except torch.OutOfMemoryError:
        raise
    except Exception:  # whatever it is: the model is asked again without
        return False
    return True


def _runs_in_full(model: nn.Module, row: Tensor) -> bool:
    """Whether the model takes inputs outside autocast, which one with weights in half precision does not."""
    if not isinstance(model, InPrecision) or model.dtype is None:
        return True
    try:
        with torch.no_grad():
            InPrecision(model.model, None)(row)
    except RuntimeError:
        return False
    return True


@contextmanager
def _stored(model: nn.Module) -> Iterator[dict[int, int]]:
    """The bytes that autograd stores, by address, but for the model's own."""
    own = {each.untyped_storage().data_ptr() for each in (*model.parameters(), *model.buffers())}
    stored: dict[int, int] = {}

    def store(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            stored[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(store, lambda tensor: tensor):
        yield stored


def check_mode(model: Model, name: str = "model") -> None:
    """Nothing in it is in training mode."""
    own = model.model if isinstance(model, InPrecision) else model
    parts = own.named_modules() if isinstance(own, nn.Module) else ()
    place, part = next(((place, each) for place, each in parts if each.training), ("", None))
    found = f"{f'{name}.{place}'.rstrip('.')} ({type(part).__name__}) in training mode"
    require(part is None, name, "be in evaluation mode", found, f"call {name}.eval() first, or its answers depend on the batch")


def _layout(model: nn.Module, row: Tensor) -> torch.memory_format:
    """Channels last where there are convolutions, which are faster so, and where the model takes it: ``view`` may refuse."""
    if row.dim() != 4 or not any(isinstance(module, nn.Conv2d) for module in model.modules()):
        return torch.contiguous_format
    try:
        with torch.no_grad():
            model(row.contiguous(memory_format=torch.channels_last))
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:
        return torch.contiguous_format
    return torch.channels_last


def _check_logits(logits: object, row: Tensor, otherwise: Callable[[], None]) -> None:
    """Logits are those of one row; where they are those of something without rows, ``otherwise`` looks why."""
    wrap = "wrap it in drq.FirstOutput, which takes .logits or the first entry"
    require(isinstance(logits, Tensor), "model", "return a tensor of logits", type(logits).__name__, wrap)
    assert isinstance(logits, Tensor)
    shape = f"shape {tuple(logits.shape)} for input {tuple(row.shape)}"
    single = "wrap a model with a single logit in drq.SingleLogit; otherwise check the batch dimension of x"
    single_row = logits.dim() == 2 and len(logits) == 1
    if logits.dim() == 1 and len(logits) > 1:
        otherwise()
    require(single_row, "model", "return logits of shape (N, C)", shape, single)
    require(logits.shape[1] >= 2, "model", "have at least 2 classes", shape, single)


def rows_that_fit(row_bytes: int, device: torch.device) -> int:
    """How many rows may be searched at once: half of the free GPU memory; on a CPU what keeps its cores busy."""
    memory = torch.cuda.mem_get_info(device)[0] // 2 if device.type == "cuda" else 3 * 2**28
    return max(1, memory // (2 * row_bytes))  # twice: the backward pass holds as much again at its peak
