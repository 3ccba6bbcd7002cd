"""Measure which reading of the paper's "random rotations and translations" comes closest to its spatial table.

A single random draw lowers the accuracy of a robust model far less than the table says, so something harder was measured: the
worst of several draws, or of a grid, with one padding or another. Each reading is measured on three CIFAR-10 models that stand
in for the paper's; the worst of k draws is taken for all k at once. ``python -m tools.benchmarks.spatial`` writes
results/spatial.json.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

import drq
from drq.objectives import log_odds
from drq.threats.spatial import Movement, Rotation, RotationTranslation, Spatial, Translation, warp
from tools.benchmarks.assets import arguments, first_images, write

READINGS: dict[str, Spatial] = {
    "rotation": Rotation(20),
    "rotation, nearest pixel": Rotation(20, interpolation="nearest"),
    "rotation, border": Rotation(20, padding="border"),
    "rotation, reflection": Rotation(20, padding="reflection"),
    "rotation, both ends": Rotation(20, grid=2),
    "rotation, both ends, nearest pixel": Rotation(20, grid=2, interpolation="nearest"),
    "translation": Translation(4),
    "translation, fractions": Translation(4, whole=False),
    "translation, border": Translation(4, padding="border"),
    "translation, reflection": Translation(4, padding="reflection"),
    "translation, corners": Translation(4, grid=2),
    "translation, corners, border": Translation(4, grid=2, padding="border"),
    "rotation and translation": RotationTranslation(20, 4),  # for either column of the table
    "rotation and translation, border": RotationTranslation(20, 4, padding="border"),
    "rotation and translation, reflection": RotationTranslation(20, 4, padding="reflection"),
    "rotation and translation, corners": RotationTranslation(20, 4, grid=2),
}  # padded with zeros, bilinear and in whole pixels where nothing else is said
PAPER = {  # the model that each of ours stands in for; its accuracies: clean, rotations, translations
    "cifar10-linf": ("Wong2020Fast", 83.34, 43.74, 59.08),
    "cifar10-l2": ("Rice2020Overfitting, l2", 88.67, 43.49, 63.96),
    "cifar10-augment": ("AugMix", 95.08, 74.93, 92.08),
}
WORST_OF = (1, 2, 3, 5, 10, 15, 20, 30, 50, 100)
ROWS = 100


@torch.no_grad()
def answers(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return (2, N): the log-odds of the true label, and whether it is the answer."""
    parts = [model(part.contiguous(memory_format=torch.channels_last)) for part in x.split(ROWS)]
    logits = torch.cat(parts).double()
    return torch.stack([log_odds(logits, y), (logits.argmax(1) == y).double()])


def candidates(name: str, count: int, draws: int) -> tuple[Spatial, list[Movement]]:
    """Return the threat of a reading and all of its movements of ``count`` images."""
    threat = READINGS[name]
    threat = replace(threat, worst_of=draws if threat.grid is None else 1)
    return threat, threat.movements(torch.arange(count), 32)


def accuracies(name: str, model: nn.Module, x: Tensor, y: Tensor, draws: int) -> Iterator[tuple[Spatial, float]]:
    """Yield the reading with each number of draws, or with its grid, and the accuracy under it."""
    threat, movements = candidates(name, len(x), draws)
    seen = [answers(model, warp(x, *each, threat.padding, threat.interpolation), y) for each in movements]
    odds, correct = torch.stack(seen, 1)
    counts = [len(movements)] if threat.grid else [count for count in WORST_OF if count <= draws]
    for count in counts:
        kept = odds[:count].argmin(0, keepdim=True)
        accuracy = 100 * correct.gather(0, kept).mean().item()
        yield (threat if threat.grid else replace(threat, worst_of=count)), accuracy


def measure(model: nn.Module, name: str, x: Tensor, y: Tensor, readings: list[str], draws: int) -> Iterator[dict[str, Any]]:
    """Yield one record for each reading and number of draws."""
    stands_for, *published = PAPER[name]
    shared = {"model": name, "stands_for": stands_for, "images": len(x)}
    clean = 100 * answers(model, x, y)[1].mean().item()
    yield {"reading": "clean", **shared, "setting": None, "accuracy": clean, "paper": {"clean": published[0]}}
    for reading in readings:
        columns = {"rotation": published[1], "translation": published[2]}
        columns = {key: value for key, value in columns.items() if key in reading}
        for threat, accuracy in accuracies(reading, model, x, y, draws):
            yield {"reading": reading, **shared, "setting": threat.record, "accuracy": accuracy, "paper": columns}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--draws", type=int, default=20, help="draws of every random reading")
    parser.add_argument("--models", nargs="+", choices=PAPER, default=list(PAPER))
    parser.add_argument("--readings", nargs="+", choices=READINGS, default=list(READINGS))
    given = parser.parse_args()
    x, y = first_images(given.images, given.device)
    records = []
    for name in given.models:
        model = drq.load_model(name).to(given.device, memory_format=torch.channels_last)
        for record in measure(model, name, x, y, given.readings, given.draws):
            records.append(record)
            print(f"{name}: {record['reading']}, {record['accuracy']:.1f}", file=sys.stderr, flush=True)
    write(given.out, "spatial", {"images": given.images, "draws": given.draws, "readings": records})


if __name__ == "__main__":
    main()
