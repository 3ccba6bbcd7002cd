"""Clocks, peaks of memory, and the flags of PyTorch that a measurement must hold still."""

from __future__ import annotations

import gc
import platform
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


@contextmanager
def tf32(convolutions: bool) -> Iterator[None]:
    """Whether float32 convolutions may round to TF32 meanwhile, as they may by PyTorch's default; matrix products may not."""
    found = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = convolutions, False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = found


def finished(device: str) -> None:
    """Wait until a GPU has done what it was told."""
    if device == "cuda":
        torch.cuda.synchronize()


def clocked(work: Callable[[], T], device: str) -> tuple[T, float]:
    """What comes back, and the seconds that it took."""
    finished(device)
    began = time.perf_counter()
    result = work()
    finished(device)
    return result, time.perf_counter() - began


class Memory:
    """The peak of a GPU's memory from now on, beyond what is held now; a CPU's is not measured."""

    def __init__(self, device: str) -> None:
        self.measured = device == "cuda"
        if self.measured:
            gc.collect()
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            self.before = torch.cuda.memory_allocated()

    def peak(self, outputs: Iterable[Tensor | None] = ()) -> int | None:
        """In bytes, without these outputs; None on a CPU."""
        if not self.measured:
            return None
        torch.cuda.synchronize()
        kept = sum(each.untyped_storage().nbytes() for each in outputs if each is not None)
        return max(0, torch.cuda.max_memory_allocated() - self.before - kept)


def compilations() -> int:
    """Graphs that torch.compile has made in this process."""
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])


def has_bfloat16() -> bool:
    """Whether this CPU multiplies bfloat16 itself; others imitate it, and are slower for it."""
    known: list[bool] = [
        getattr(torch.cpu, name)() for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported") if hasattr(torch.cpu, name)
    ]
    return any(known) or any(flag in _processor("flags") for flag in ("avx512_bf16", "amx_bf16"))


def machine(device: str) -> dict[str, Any]:
    """What a record was measured on, and when."""
    facts: dict[str, Any] = {
        "device": device,
        "processor": _processor("model name") or platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "bfloat16": has_bfloat16(),
        "torch": torch.__version__,
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }
    if device == "cuda":
        facts |= {"gpu": torch.cuda.get_device_name(), "cuda": torch.version.cuda}
    return facts


def _processor(field: str) -> str:
    """What Linux says of the first processor; nothing elsewhere."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.partition(":")[0].strip() == field), "")
