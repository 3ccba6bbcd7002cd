"""Pictures in files, and the command that answers about them."""

import pytest
from PIL import Image

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
