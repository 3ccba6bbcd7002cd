"""The number of threads that torch uses. It changes the order of sums, so results on a CPU depend on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def threads(count: int) -> Iterator[None]:
    """So many threads meanwhile; one is best for small models, whose matrices gain nothing from more."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
