"""The wheel: it holds what it needs, and answers about a picture with nothing but its own dependencies."""

import json
import os
import subprocess
import sys
import zipfile

import pytest
from PIL import Image
from testbed.repository import ROOT

NEEDED = [
    "drq/py.typed",
    "drq/models/cifar10-small.safetensors",
    "drq/models/cifar10-tiny.safetensors",
    "drq/models/cifar10-denoiser.safetensors",
    "drq/data/imagenet_wnids.txt",
]
EXTRAS = ["sklearn", "scipy", "transformers", "timm", "torchvision", "foolbox", "pyautoattack", "polars", "matplotlib", "cv2"]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    (path,) = folder.glob("*.whl")
    return path


def test_it_holds_what_it_needs_and_is_small(wheel):
    with zipfile.ZipFile(wheel) as archive:
        assert set(NEEDED) <= set(archive.namelist())
        assert not [name for name in archive.namelist() if name.startswith(("tests", "training", "examples"))]
    assert wheel.stat().st_size < 5_000_000


def test_it_answers_without_extras(wheel, tmp_path):
    """Extras cannot be imported, and neither models nor data are set: only the wheel is there."""
    site = tmp_path / "site"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), str(wheel)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    blocked = "\n".join(f"sys.modules[{name!r}] = None" for name in EXTRAS)
    (site / "sitecustomize.py").write_text(f"import sys\n{blocked}\n")
    Image.new("RGB", (60, 40), (90, 120, 200)).save(tmp_path / "photo.jpg")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DRQ_")}
    environment |= {"PYTHONPATH": str(site), "HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "drq", "predict", "photo.jpg", "--json"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)
    assert found["model"] == "cifar10-small"
    assert len(found["classes"]) == 10
    where = [sys.executable, "-c", "import drq; print(drq.__file__)"]
    assert str(site) in subprocess.run(where, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout
