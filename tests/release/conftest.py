"""What a release ships, built once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from testbed.repository import ROOT


@pytest.fixture(scope="session")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the wheel and the sdist: the one that `make release` has filled, or one of our own."""
    if given := os.environ.get("DRQ_DIST"):
        return ROOT / given
    pytest.importorskip("build", reason="build is not installed: make test installs it")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return folder


@pytest.fixture(scope="session")
def wheel(shipped: Path) -> Path:
    (path,) = shipped.glob("*.whl")
    return path


@pytest.fixture(scope="session")
def sdist(shipped: Path) -> Path:
    (path,) = shipped.glob("*.tar.gz")
    return path
