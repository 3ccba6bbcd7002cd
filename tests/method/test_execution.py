"""How a model is run on many rows: in pieces that caches hold, and in memory that is used again."""

import os
import platform
import subprocess
import sys

import pytest
import torch
from torch import nn

import drq
from drq.method.execution import prepare


class Counted(nn.Module):
    """A small model that tells how many rows came together."""

    def __init__(self):
        super().__init__()
        self.linear, self.sizes = nn.Linear(2, 3), []

    def forward(self, x):
        self.sizes.append(len(x))
        return self.linear(x.tanh())


@pytest.mark.parametrize("radius", [0.1, drq.Calibrated()])
def test_many_rows_of_a_small_model_go_through_it_in_pieces(monkeypatch, radius):
    """All are searched at once nevertheless, with the same result."""
    model, x = Counted().eval(), torch.rand(100, 2, generator=torch.Generator().manual_seed(0))
    robust = drq.DRQ(model, "l2", radius, prune="none")
    whole = robust.decide(x)
    assert max(model.sizes) == 300 if radius == 0.1 else 100
    monkeypatch.setattr("drq.method.execution.AT_ONCE", 32)
    monkeypatch.setattr("drq.method.execution.CACHED", 1)
    model.sizes.clear()
    pieces = drq.DRQ(model, "l2", radius, prune="none").decide(x)
    searched = [each for each in model.sizes if each != len(x)]  # but for the first look, which stores nothing
    assert max(searched) == 32
    assert torch.equal(pieces.label, whole.label)
    assert torch.equal(pieces.passes, whole.passes)
    torch.testing.assert_close(pieces.robustness, whole.robustness, atol=1e-6, rtol=0)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have other rules")
def test_freed_memory_is_used_again():
    """16 MiB that are taken and given back 20 times cost a small part of the page faults of memory that is always new."""
    code = """
import mmap, resource
from drq.method.execution import keep_freed_memory
content = bytes([1]) * 4 * 2**20
def new():
    memory = mmap.mmap(-1, len(content))
    memory.write(content)
    return memory
def taken():
    return bytearray(content)
def faults(take):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        [take() for _ in range(4)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
keep_freed_memory()
faults(taken)
print(faults(new), faults(taken))
"""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD"))
    }
    output = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=120
    ).stdout
    new, kept = map(int, output.split())
    if not new:
        pytest.skip("this system counts no page faults")
    assert kept < new / 10


def test_what_one_row_stores_does_not_depend_on_its_batch():
    """Else the first batch of a model, if it was large, would make all later ones be searched in small pieces."""
    model = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 2)).eval()
    one, many = (prepare(model, torch.rand(count, 2), drq.L2(), (0.0, 1.0), None)[1] for count in (1, 50_000))
    assert (one.chunk, one.at_once) == (many.chunk, many.at_once)
