"""Provide what benchmarks have in common: options, test images, accuracy, and writing a record."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import drq
from drq.images import View
from tools import ROOT

RESULTS = ROOT / "results"


def arguments(description: str | None, images: int = 500) -> argparse.ArgumentParser:
    """Return a parser with the options that all benchmarks have."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=images, help="how many images of the test set, from the first on")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the record")
    return parser


def first_images(count: int, device: str, name: str = "cifar10", view: View | None = None) -> tuple[Tensor, Tensor]:
    """Return the first test images in [0, 1], or all where there are fewer, and their labels."""
    data = drq.load_data(name, view=view)
    x, y = data.batch(range(min(count, len(data))))
    return x.to(device), y.to(device)


def accuracy(model: nn.Module, x: Tensor, y: Tensor, batch: int = 500) -> float:
    """Return the accuracy in percent."""
    with torch.no_grad():
        right = [(model(a).argmax(1) == b).sum() for a, b in zip(x.split(batch), y.split(batch), strict=True)]
    return 100 * int(sum(right)) / len(y)


def write(out: Path, name: str, record: dict[str, Any]) -> None:
    """Write the record as JSON, with the machine and the version of torch."""
    machine = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    record = {"machine": machine, "torch": torch.__version__} | record
    text = json.dumps(record, indent=1)
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.json").write_text(text + "\n")
