"""``drq bench``: what it measures, shows and writes, and its mistakes."""

import json
import re
import subprocess
import sys

import pytest

from drq.bench.measure import read
from drq.commands import cli

MISTAKES = {
    ("--parts", "sped"): "parts must be among speed.*got 'sped': did you mean speed",
    ("--images", "0"): "images must be at least 1, got 0",
    ("--device", "abacus"): "device must be cpu, or cuda.*got 'abacus'",
    ("--read", "nowhere.json"): "file must be a record that drq bench wrote.*nowhere.json",
    ("--model", "cifar10-smal"): "cifar10-smal",
}


@pytest.mark.parametrize("arguments", MISTAKES, ids=" ".join)
def test_a_mistake_is_one_line_and_status_2(arguments, capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["bench", "--quiet", *arguments]) == 2
    output, errors = capfd.readouterr()
    assert output == ""
    assert errors.count("\n") == 1
    assert re.search(MISTAKES[arguments], errors)


@pytest.mark.usefixtures("hasty")
def test_the_command_measures_shows_and_writes(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny = ["--model", "digits", "--images", "2", "--naive-images", "1", "--samples", "1", "--parts", "speed,agreement"]
    assert cli.main(["bench", *tiny, "--quiet", "--out", "one.json"]) == 0
    shown = capfd.readouterr().out
    assert "naive float32" in shown
    assert "Record: one.json" in shown
    assert "\x1b" not in shown
    assert cli.main(["bench", "--read", "one.json", "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == read(tmp_path / "one.json")


def test_it_runs_where_nothing_else_is_installed(tmp_path):
    """As on a bare machine with a GPU: typer, rich, polars, scikit-learn and Pillow cannot be imported."""
    blocked = ("typer", "rich", "polars", "sklearn", "scipy", "PIL", "matplotlib", "foolbox", "cv2", "skimage")
    code = f"import sys; sys.modules.update(dict.fromkeys({blocked!r}))\n"
    code += "from drq.bench import growth\n"
    code += "growth.STEPS, growth.IMAGES, growth.DIGITS = {'cpu': 3}, {'cpu': 2}, {'cpu': (1,)}\n"
    code += "from drq.bench.__main__ import main\nsys.exit(main(sys.argv[1:]))"
    given = ["--device", "cpu", "--parts", "classes", "--out", str(tmp_path / "record.json"), "--quiet"]
    done = subprocess.run([sys.executable, "-c", code, *given], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "share" not in done.stderr
    assert read(tmp_path / "record.json")["classes"][0]["classes"] == 10
