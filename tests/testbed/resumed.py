"""Runs that are stopped and go on, and how they are compared."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import torch
from polars.testing import assert_frame_equal
from torch import nn
from torch.utils.data import TensorDataset

import drq
from drq import Run, Spec
from drq.evaluation.engines import Local, Outcome
from drq.evaluation.plan import Shard
from drq.evaluation.records import UNTIMED
from drq.evaluation.resources import WorkerContext

with torch.random.fork_rng():
    torch.manual_seed(0)
    MODEL, OTHER = (nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).eval() for _ in range(2))
    DATA = TensorDataset(torch.rand(8, 1, 2, 2), torch.arange(8) % 3)


FEW = {"norm": "linf", "radius": 0.1, "explore": drq.Gradient(2), "quantify": drq.Gradient(2)}


def ours(**changes: object) -> Spec:
    given = {"models": {"mine": MODEL}, "data": {"mine": DATA}, "defences": {"standard": {}, "drq": FEW}, "shard": 3}
    return Spec(**given | {"threats": {"clean": None, "noise": "gaussian_noise"}, "keep_images": 5} | changes)


def same(run: Run, expected: Run) -> None:
    """Equal in every column but the seconds, and in every image."""
    assert_frame_equal(run.records.select(UNTIMED), expected.records.select(UNTIMED), check_exact=True)
    for task in range(len(expected.about["tasks"])):
        assert np.array_equal(run.images(task), expected.images(task))


def files(run: Path) -> dict[str, bytes]:
    """Every file of a run but the lock and the history."""
    found = {str(each.relative_to(run)): each for each in run.rglob("*") if each.is_file()}
    return {name: each.read_bytes() for name, each in found.items() if name not in (".lock", "history.jsonl")}


class Counting(Local):
    """Remembers what it judged, and is interrupted before the shard after so many."""

    def __init__(self, stop: int = 1000) -> None:
        self.judged: list[str] = []
        self.stop = stop

    def run(self, context: WorkerContext, shards: Iterable[Shard]) -> Iterator[Outcome]:
        for shard, outcome in super().run(context, shards):
            if len(self.judged) == self.stop:
                raise KeyboardInterrupt
            self.judged.append(shard.key)
            yield shard, outcome
