"""What `make release` has built, in empty environments: every command of the wheel works, and the sdist passes its own tests."""

import json
import os
import shutil
import tarfile

import pytest
from PIL import Image
from testbed.empty_environments import installed, run
from testbed.repository import ROOT

import drq
from drq.commands.cli import COMMANDS

NAMES = [each.__name__.rpartition(".")[2] for each in COMMANDS]
PART = ["tests/search", "tests/method"]  # of the tests of the sdist, beside those at the top
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("DRQ_DIST" not in os.environ, reason="make release sets DRQ_DIST: what it has built is tested"),
]


@pytest.fixture(scope="module")
def command(wheel, tmp_path_factory):
    """Run drq in an environment that has the wheel and what it asks for, and nothing else."""
    folder = tmp_path_factory.mktemp("wheel")
    programs, far = installed(folder / "environment", str(wheel)), tmp_path_factory.mktemp("far")
    yield lambda *arguments, folder=far: run(programs / "drq", *arguments, folder=folder)
    shutil.rmtree(folder)


def test_it_is_the_wheel_that_answers(command, wheel):
    done = command("--version")
    assert (done.returncode, done.stdout) == (0, f"drq {drq.__version__}\n")
    assert drq.__version__ in wheel.name


@pytest.mark.parametrize("name", NAMES)
def test_every_command_explains_itself(command, name):
    done = command(name, "--help")
    assert done.returncode == 0, done.stderr
    assert f"drq {name}" in done.stdout.partition("\n\n")[0]


@pytest.mark.parametrize(("listing", "one"), [("models", "cifar10-small"), ("data", "cifar10"), ("threats", "PGD")])
def test_what_there_is_can_be_listed(command, listing, one):
    done = command(listing)
    assert done.returncode == 0, done.stderr
    assert one in done.stdout
    assert one in {entry["name"] for entry in json.loads(command(listing, "--json").stdout)}


def test_a_picture_is_answered(command, tmp_path):
    Image.new("RGB", (60, 40), (90, 120, 200)).save(tmp_path / "photo.jpg")
    done = command("predict", "photo.jpg", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)
    assert found["model"] == "cifar10-small"
    assert command("predict", "photo.jpg", folder=tmp_path).returncode == 0


@pytest.mark.parametrize("arguments", [("demo",), ("play",), ("report", ".")])
def test_a_missing_extra_is_named_in_one_line(command, arguments):
    done = command(*arguments)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


def test_the_sdist_passes_its_own_tests(sdist, tmp_path):
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    unpacked = tmp_path / sdist.name.removesuffix(".tar.gz")
    programs = installed(tmp_path / "environment", f"{sdist}[attacks,demo]", "pytest", "hypothesis")
    top = [f"tests/{path.name}" for path in sorted((unpacked / "tests").glob("test_*.py"))]
    assert len(top) == len([*(ROOT / "tests").glob("test_*.py")])
    tests = ["-m", "pytest", "-m", "not slow", "-p", "no:cacheprovider", *top, *PART]  # with tools beside drq, as in a clone
    done = run(programs / "python", *tests, folder=unpacked, seconds=1800)
    assert done.returncode == 0, done.stdout[-5000:]
    print(done.stdout.splitlines()[-1])
    shutil.rmtree(tmp_path / "environment")
