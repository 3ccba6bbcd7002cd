"""Fixtures that more than one test file may use."""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from testbed.digits import Digits, trained
from testbed.server import Server

from drq.system import downloads

collect_ignore = ["testbed"]  # what tests share holds none


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
    return trained()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server of files."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(downloads, "PAUSE", 0.0)
    monkeypatch.setattr(downloads, "WAIT", 0.01)
    monkeypatch.setattr(downloads, "TIMEOUT", 2.0)
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join(5)


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
