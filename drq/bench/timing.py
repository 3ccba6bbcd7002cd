"""Measure time and peak memory, and set the PyTorch flags that affect them."""

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
def tf32_convolutions(allowed: bool) -> Iterator[None]:
    """Inside the context, let float32 convolutions round to TF32 (PyTorch's default) or not; matrix products never do."""
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = allowed, False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


def synchronize(device: str) -> None:
    """Wait until a GPU has finished its work."""
    if device == "cuda":
        torch.cuda.synchronize()


def timed_call(work: Callable[[], T], device: str) -> tuple[T, float]:
    """Call a function; return its result and the seconds it took."""
    synchronize(device)
    began = time.perf_counter()
    result = work()
    synchronize(device)
    return result, time.perf_counter() - began


class PeakMemory:
    """The peak of a GPU's memory from construction on, beyond what was allocated then; not measured on a CPU."""

    def __init__(self, device: str) -> None:
        self.measured = device == "cuda"
        if self.measured:
            gc.collect()
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            self.before = torch.cuda.memory_allocated()

    def peak(self, outputs: Iterable[Tensor | None] = ()) -> int | None:
        """Return the peak in bytes, not counting these outputs; None on a CPU."""
        if not self.measured:
            return None
        torch.cuda.synchronize()
        kept = sum(each.untyped_storage().nbytes() for each in outputs if each is not None)
        return max(0, torch.cuda.max_memory_allocated() - self.before - kept)


def compilations() -> int:
    """Return how many graphs torch.compile has made in this process."""
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])


def has_bfloat16() -> bool:
    """Return whether this CPU has bfloat16 instructions; others emulate them and are slower with bfloat16."""
    supported: list[bool] = [
        getattr(torch.cpu, name)() for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported") if hasattr(torch.cpu, name)
    ]
    return any(supported) or any(flag in _processor("flags") for flag in ("avx512_bf16", "amx_bf16"))


def machine(device: str) -> dict[str, Any]:
    """Describe the machine, torch and the date for a record."""
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
    """Return a field of /proc/cpuinfo for the first processor; empty on systems other than Linux."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.partition(":")[0].strip() == field), "")
