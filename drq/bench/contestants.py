"""Name the implementations that are measured against each other: the naive loop and DRQ in its several settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor, nn

from drq.bench.naive import Answer, Naive
from drq.bench.timing import has_bfloat16, tf32_convolutions
from drq.drq import DRQ

REFERENCE = "float32 none"  # the others' labels are compared with its labels
NAIVE = "naive float32"  # the others' speeds are compared with its speed
Decide = Callable[[Tensor], Answer]


@dataclass(frozen=True)
class Contestant:
    """An implementation of DRQ that is measured: the naive loop, or :class:`drq.DRQ` with certain settings.

    Args:
        name: its name in tables.
        settings: arguments of :class:`drq.DRQ`; None for the naive loop.
        share: its expected share of the naive loop's time, from which the time left is estimated.
        default_tf32: whether float32 convolutions may round to TF32, which is PyTorch's default.
    """

    name: str
    settings: Mapping[str, Any] | None = field(default_factory=dict)
    share: float = 1.0
    default_tf32: bool = False

    @property
    def naive(self) -> bool:
        """Whether this is the naive loop."""
        return self.settings is None

    @property
    def compiled(self) -> bool:
        """Whether this is DRQ with the compiled engine."""
        return bool((self.settings or {}).get("compile"))

    def build(self, model: nn.Module, norm: str, radius: float, chunk: int | None = None) -> Decide:
        """Return the function that decides on images, run with this contestant's setting of TF32."""
        if self.settings is None:
            return self._with_tf32(Naive(model, norm, radius).decide)
        robust = DRQ(model, norm, radius, chunk=chunk, **self.settings)

        def decide(x: Tensor) -> Answer:
            decision = robust.decide(x)
            return Answer(decision.label, decision.log_odds, decision.passes)

        return self._with_tf32(decide)

    def _with_tf32(self, decide: Decide) -> Decide:
        def decide_with_flags(x: Tensor) -> Answer:
            with tf32_convolutions(self.default_tf32):
                return decide(x)

        return decide_with_flags


def _drq(precision: str, prune: str, share: float, **settings: Any) -> Contestant:
    name = f"{'compiled ' if settings else ''}{precision} {prune}"
    return Contestant(name, {"precision": precision, "prune": prune, **settings}, share)


def contestants(device: str) -> list[Contestant]:
    """Return all contestants for this kind of machine, the naive loop first.

    >>> [each.name for each in contestants("cuda")][:4]
    ['naive float32', 'naive default TF32', 'float32 none', 'float32 exact']
    """
    eager = [_drq("float32", "none", 0.7), _drq("float32", "exact", 0.35), _drq("float32", "race", 0.15)]
    if device == "cpu":
        compiled = [_drq("float32", "exact", 0.35, compile=True), _drq("float32", "race", 0.15, compile=True)]
        half = [_drq("bfloat16", "exact", 0.2), _drq("bfloat16", "race", 0.1)] if has_bfloat16() else []
        return [Contestant(NAIVE, None), *eager, *compiled, *half]
    return [
        Contestant(NAIVE, None),
        Contestant("naive default TF32", None, 0.6, default_tf32=True),
        *eager,
        _drq("float16", "exact", 0.04, compile=True),
        _drq("float16", "race", 0.02, compile=True),
        _drq("bfloat16", "exact", 0.04, compile=True),
        replace(_drq("float32", "exact", 0.08, compile=True), name="compiled TF32 exact", default_tf32=True),
    ]


def fastest(device: str) -> list[Contestant]:
    """Return the two fastest contestants, with exact and with race pruning: the growth of cost is measured with them."""
    if device == "cpu":
        return [_drq("float32", "exact", 0.35), _drq("float32", "race", 0.15)]
    return [_drq("float16", "exact", 0.04, compile=True), _drq("float16", "race", 0.02, compile=True)]
