"""Environments of Python with nothing in them but what a test installs, and programs run in them far from the clone."""

import os
import subprocess
import sys
from pathlib import Path

import torch

from testbed.repository import ROOT

Done = subprocess.CompletedProcess[str]


def installed(folder: Path, *packages: str) -> Path:
    """The programs of a new environment with these packages, which are those of the lock wherever they are in it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=120)
    here = f"torch=={torch.__version__.partition('+')[0]}"
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "--quiet", "install"]
    command = [*pip, "--no-require-hashes", "-c", str(ROOT / "requirements.lock"), here, *packages]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "bin"


def run(*command: str | Path, folder: Path, seconds: int = 600) -> Done:
    """Run a program in a folder, with that folder as home and without what says where this clone, its models and its data are."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DRQ_", "PYTHON", "PYTEST_"))}
    environment = kept | {"HOME": str(folder), "OMP_NUM_THREADS": "1"}
    told = [str(each) for each in command]
    return subprocess.run(told, cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds, check=False)
