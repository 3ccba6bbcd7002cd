"""Fixtures that more than one test file may use."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from drq.system.threads import threads

missing = "DRQ_TEST_ASSETS is not set: it names the folder of trained models and CIFAR-10"
needs_assets = pytest.mark.skipif("DRQ_TEST_ASSETS" not in os.environ, reason=missing)


class Digits(NamedTuple):
    """A small classifier in evaluation mode, and images that it was not trained on."""

    model: nn.Module
    x: Tensor  # (N, 1, 8, 8) in [0, 1]
    y: Tensor


@pytest.fixture(scope="module")  # while it is there, its thread can run no other event loop
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("chromium is not installed")
    with playwright.sync_playwright() as started:
        running = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(scope="session")
def digits() -> Digits:
    data = load_digits()
    x, y = torch.tensor(data.images / 16, dtype=torch.float32)[:, None], torch.tensor(data.target)
    train = 1500
    with threads(1), torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(
            *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU()),
            *(nn.Flatten(), nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 10)),
        )
        optimiser = torch.optim.Adam(model.parameters(), lr=2e-3)
        for _ in range(8):
            for rows in torch.randperm(train).split(100):
                optimiser.zero_grad()
                nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
                optimiser.step()
    return Digits(model.eval().requires_grad_(False), x[train:], y[train:])


@pytest.fixture(scope="module")
def assets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the data. While it is asked for, models and data are found by name among the assets."""
    folder = Path(os.environ["DRQ_TEST_ASSETS"])
    data = tmp_path_factory.mktemp("data")
    unpack = [sys.executable, str(folder / "data" / "unpack.py"), str(data)]
    subprocess.run(unpack, check=True, capture_output=True, timeout=300)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DRQ_MODELS", str(folder / "weights"))
        patch.setenv("DRQ_DATA", str(data))
        yield data
