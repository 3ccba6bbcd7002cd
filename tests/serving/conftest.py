"""Pictures in files, and the command that answers about them."""

import sys

import pytest
from PIL import Image
from testbed.stored import put_bird, saved_tiny

from drq.commands import cli


@pytest.fixture
def picture(tmp_path):
    def write(level, name="picture.png"):
        Image.new("RGB", (20, 16), (level,) * 3).save(tmp_path / name)
        return str(tmp_path / name)

    return write


@pytest.fixture
def command(capfd):
    def run(*arguments):
        status = cli.main(["predict", *arguments])
        return status, *capfd.readouterr()

    return run


@pytest.fixture
def path(tmp_path):
    return tmp_path / "defence.toml"


@pytest.fixture
def saved(path):
    return saved_tiny(path), path


@pytest.fixture
def canary(tmp_path, monkeypatch):
    folder = put_bird(tmp_path / "code")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "bird", raising=False)
    return folder
