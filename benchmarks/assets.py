"""The trained CIFAR-10 models and the data that benchmarks measure on; see CONTRIBUTING.md for where they are looked for."""

from __future__ import annotations

import argparse
import json
import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from preact_resnet import load

RESULTS = Path(__file__).parent.parent / "results"


def arguments(description: str | None) -> argparse.ArgumentParser:
    """What all benchmarks on these models ask for."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--assets", type=Path, default=os.environ.get("DRQ_TEST_ASSETS"), help="folder with weights/ and data/")
    parser.add_argument("--images", type=int, default=500, help="of the test set, from the first on")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the record")
    return parser


def classifier(assets: Path, name: str, device: str) -> nn.Module:
    """A trained PreActResNet-18."""
    return load(str(Path(assets) / "weights" / f"{name}.safetensors")).requires_grad_(False).to(device)


def test_images(assets: Path, count: int, device: str) -> tuple[Tensor, Tensor]:
    """The first test images of CIFAR-10 in [0, 1], and their labels."""
    unpacked = Path(assets) / "data" / "cifar-10-batches-py" / "test_batch"
    with tempfile.TemporaryDirectory() as folder:
        if not unpacked.exists():
            subprocess.run([sys.executable, str(Path(assets) / "data" / "unpack.py"), folder], check=True, capture_output=True)
            unpacked = Path(folder) / "cifar-10-batches-py" / "test_batch"
        batch = pickle.loads(unpacked.read_bytes(), encoding="bytes")
    x = torch.tensor(batch[b"data"][:count]).reshape(-1, 3, 32, 32).float() / 255
    return x.to(device), torch.tensor(batch[b"labels"][:count]).to(device)


def accuracy(model: nn.Module, x: Tensor, y: Tensor, batch: int = 500) -> float:
    """In percent."""
    with torch.no_grad():
        right = [(model(a).argmax(1) == b).sum() for a, b in zip(x.split(batch), y.split(batch), strict=True)]
    return 100 * int(sum(right)) / len(y)


def write(out: Path, name: str, record: dict[str, Any]) -> None:
    """The record as JSON, with what it was measured on."""
    machine = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    record = {"machine": machine, "torch": torch.__version__} | record
    text = json.dumps(record, indent=1)
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.json").write_text(text + "\n")
