"""What DRQ sees of every class under many settings, kept so that rules of decision can be tried without a GPU.

``python benchmarks/variants.py record cifar10-linf --first 0 --count 300 --out seen.npz`` keeps log-odds of all classes at the
input, at the explored and at the quantified points, for clean, corrupted, turned and moved images; a GPU takes half a minute.
``python benchmarks/variants.py try seen.npz`` prints the mean accuracy of each rule. Rules are chosen on the images below 5000
and ``cifar10-linf`` alone, and reported on others.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import drq
from drq import threats
from drq.threats.corruptions.constants import KINDS

Settings = tuple[str, float, float, int, int]  # norm, radius, alpha, steps of exploration and of quantification
SETTINGS: dict[str, Settings] = {
    "paper": ("linf", 16 / 255, 0.5, 20, 20),
    "l2": ("l2", 1.0, 0.5, 20, 20),
    "5+5": ("linf", 16 / 255, 0.5, 5, 5),
    "1+20": ("linf", 16 / 255, 0.5, 1, 20),
    "20+1": ("linf", 16 / 255, 0.5, 20, 1),
    "1+1": ("linf", 16 / 255, 0.5, 1, 1),
    "1+1 l2": ("l2", 1.0, 0.5, 1, 1),
    "1+1 at 4/255": ("linf", 4 / 255, 0.5, 1, 1),
    "1+1 at 8/255": ("linf", 8 / 255, 0.5, 1, 1),
    "1+1 at 24/255": ("linf", 24 / 255, 0.5, 1, 1),
    "1+1, alpha 0.25": ("linf", 16 / 255, 0.25, 1, 1),
    "1+1, alpha 1": ("linf", 16 / 255, 1.0, 1, 1),
}
WEIGHTS = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0)  # of the log-odds at the input, beside those of a search


def conditions(model: torch.nn.Module, index: Tensor, device: str) -> Iterator[tuple[str, Tensor, Tensor]]:
    """The images as they are, and under every shift; with their labels."""
    x, y = (each.to(device) for each in drq.load_data("cifar10").batch(index.tolist()))
    yield "clean", x, y
    for kind in KINDS:
        yield kind, drq.load_data(f"cifar10-c/{kind}/5").batch(index.tolist())[0].to(device), y
    yield "rotations", threats.RotationTranslation(20, worst_of=15)(model, x, y, index=index), y
    yield "translations", threats.Translation(grid=2, padding="border")(model, x, y, index=index), y
    yield "PGD", threats.PGD("linf", 8 / 255, steps=100)(model, x, y, index=index), y


def record(name: str, first: int, count: int, out: Path, device: str) -> None:
    """Keep what DRQ sees, (conditions, settings, images, classes)."""
    model = drq.load_model(name).to(device).eval()
    quick: dict[str, Any] = {"precision": "float16", "compile": True} if device == "cuda" else {}
    robust = drq.DRQ(model, "linf", 16 / 255, prune="none", **quick)
    variants = {
        title: robust.variant(norm=norm, radius=radius, alpha=alpha, explore=drq.Gradient(e), quantify=drq.Gradient(q))
        for title, (norm, radius, alpha, e, q) in SETTINGS.items()
    }
    parts: dict[str, list[NDArray[np.float16]]] = {"base": [], "explored": [], "quantified": []}
    titles, labels = [], np.zeros(0)
    for title, x, y in conditions(model, torch.arange(first, first + count), device):
        found = [each.decide(x) for each in variants.values()]
        seen = {"explored": [each.explored_log_odds for each in found], "quantified": [each.log_odds for each in found]}
        seen["base"] = [found[0].base_log_odds]
        for key, tensors in seen.items():
            parts[key].append(torch.stack(tensors).clamp(min=-60000).cpu().numpy().astype(np.float16))
        titles.append(title)
        labels = y.cpu().numpy()
        print(
            f"{title}: {(found[0].base_label == y).float().mean():.3f} -> {(found[0].label == y).float().mean():.3f}", flush=True
        )
    arrays: dict[str, Any] = {key: np.stack(each) for key, each in parts.items()}
    np.savez_compressed(out, labels=labels, conditions=titles, settings=[*SETTINGS], model=name, first=first, **arrays)


def rules(seen: dict[str, NDArray[np.floating]]) -> Iterator[tuple[str, NDArray[np.floating]]]:
    """Scores (conditions, images, classes), by what they are made of."""
    base = seen["base"][:, 0]
    yield "the model alone", base
    for number, setting in enumerate(seen["settings"]):
        for kind in ("explored", "quantified"):
            for weight in WEIGHTS:
                yield f"{kind}, {setting}, and {weight:g} times the model", seen[kind][:, number] + weight * base


def attempt(path: Path, most: int) -> None:
    """Print the rules that are right most often over all shifts but attacks, beside the paper's."""
    with np.load(path) as file:
        seen = {key: file[key].astype(np.float32) if file[key].dtype == np.float16 else file[key] for key in file.files}
    titles, labels = seen["conditions"].tolist(), seen["labels"]
    shown = {"clean": ["clean"], "corrupted": [*KINDS], "turned": ["rotations"], "moved": ["translations"], "PGD": ["PGD"]}
    places = {key: [titles.index(each) for each in names] for key, names in shown.items()}
    rows = []
    for name, scores in rules(seen):
        right = 100 * (scores.argmax(2) == labels).mean(1)
        values = {key: right[numbers].mean() for key, numbers in places.items()}
        shifts = [*places["corrupted"], *places["turned"], *places["moved"]]
        rows.append((right[shifts].mean(), name, values))
    paper = "quantified, paper, and 0 times the model"
    for mean, name, values in sorted(rows, reverse=True):
        if most > 0 or name in (paper, "the model alone"):
            print(f"{mean:6.2f}  {'  '.join(f'{key} {value:5.1f}' for key, value in values.items())}  {name}")
        most -= 1


def main() -> None:
    """Record, or try."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    recorder = parts.add_parser("record")
    recorder.add_argument("model")
    recorder.add_argument("--first", type=int, default=0)
    recorder.add_argument("--count", type=int, default=300)
    recorder.add_argument("--out", type=Path, required=True)
    trier = parts.add_parser("try")
    trier.add_argument("file", type=Path)
    trier.add_argument("--most", type=int, default=25, help="rules that are printed")
    given = parser.parse_args()
    if given.part == "try":
        attempt(given.file, given.most)
    else:
        record(given.model, given.first, given.count, given.out, "cuda" if torch.cuda.is_available() else "cpu")


if __name__ == "__main__":
    main()
