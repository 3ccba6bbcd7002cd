"""Who is measured: the naive loop, and DRQ as it reads and as it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor, nn

from drq.bench.naive import Answer, Naive
from drq.bench.timing import has_bfloat16, tf32
from drq.drq import DRQ

REFERENCE = "float32 none"  # whose labels the others are compared with
NAIVE = "naive float32"  # whose speed the others are compared with
Decide = Callable[[Tensor], Answer]


@dataclass(frozen=True)
class Contestant:
    """One way to the same labels.

    Args:
        name: what it is called in tables.
        settings: of :class:`drq.DRQ`; None for the naive loop.
        share: of the naive loop's time that it is expected to take, for the time left.
        default_tf32: whether float32 convolutions may round to TF32, as PyTorch lets them.
    """

    name: str
    settings: Mapping[str, Any] | None = field(default_factory=dict)
    share: float = 1.0
    default_tf32: bool = False

    @property
    def naive(self) -> bool:
        """Whether it is the naive loop."""
        return self.settings is None

    @property
    def compiled(self) -> bool:
        """Whether it is the engine."""
        return bool((self.settings or {}).get("compile"))

    def around(self, model: nn.Module, norm: str, radius: float, chunk: int | None = None) -> Decide:
        """What decides on images, with the flags of PyTorch as this contestant wants them."""
        if self.settings is None:
            return self._flagged(Naive(model, norm, radius).decide)
        robust = DRQ(model, norm, radius, chunk=chunk, **self.settings)

        def decide(x: Tensor) -> Answer:
            decision = robust.decide(x)
            return Answer(decision.label, decision.log_odds, decision.passes)

        return self._flagged(decide)

    def _flagged(self, decide: Decide) -> Decide:
        def flagged(x: Tensor) -> Answer:
            with tf32(self.default_tf32):
                return decide(x)

        return flagged


def _drq(precision: str, prune: str, share: float, **more: Any) -> Contestant:
    name = f"{'compiled ' if more else ''}{precision} {prune}"
    return Contestant(name, {"precision": precision, "prune": prune, **more}, share)


def contestants(device: str) -> list[Contestant]:
    """All that run on this machine, the naive loop first.

    >>> [each.name for each in contestants("cuda")][:4]
    ['naive float32', 'naive default TF32', 'float32 none', 'float32 exact']
    """
    eager = [_drq("float32", "none", 0.7), _drq("float32", "exact", 0.35), _drq("float32", "race", 0.15)]
    if device == "cpu":
        compiled = [_drq("float32", "exact", 0.35, compile=True), _drq("float32", "race", 0.15, compile=True)]
        quicker = [_drq("bfloat16", "exact", 0.2), _drq("bfloat16", "race", 0.1)] if has_bfloat16() else []
        return [Contestant(NAIVE, None), *eager, *compiled, *quicker]
    return [
        Contestant(NAIVE, None),
        Contestant("naive default TF32", None, 0.6, default_tf32=True),
        *eager,
        _drq("float16", "exact", 0.04, compile=True),
        _drq("float16", "race", 0.02, compile=True),
        _drq("bfloat16", "exact", 0.04, compile=True),
        replace(_drq("float32", "exact", 0.08, compile=True), name="compiled TF32 exact", default_tf32=True),
    ]


def quickest(device: str) -> list[Contestant]:
    """The two that growth is measured with: exact and race."""
    if device == "cpu":
        return [_drq("float32", "exact", 0.35), _drq("float32", "race", 0.15)]
    return [_drq("float16", "exact", 0.04, compile=True), _drq("float16", "race", 0.02, compile=True)]
