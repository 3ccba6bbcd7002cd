"""Every example runs and prints what it promises: both answers, clean and under every shift."""

import os
import re
import runpy
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from testbed.repository import ROOT

OWN = ROOT / "examples" / "own_defence.py"
EXAMPLES = sorted({*(ROOT / "examples").glob("*.py")} - {OWN, ROOT / "examples" / "naive_drq.py"})
NEEDS = {"text": "transformers", "svm_figure": "sklearn", "tabular": "sklearn"}


def check_table(output: str) -> int:
    """A header with both methods, the number of samples, a clean row, shifted ones, and counts that explain the accuracies."""
    header, *rows = output.strip().splitlines()
    assert header.split()[:4] == ["standard", "DRQ", "repaired", "spoiled"]
    samples = int(re.search(r"of (\d+) \w+$", header)[1])
    assert rows[0].startswith("clean")
    assert len(rows) >= 3
    for row in rows:
        standard, robust = (float(each) / 100 * samples for each in re.findall(r"([\d.]+)%", row))
        repaired, spoiled = (int(each) for each in row.split()[-2:])
        assert robust - standard == pytest.approx(repaired - spoiled, abs=samples * 2e-3)
        assert 0 <= standard <= samples
    return samples


def needs(example: Path) -> None:
    package = NEEDS.get(example.stem)
    if package and not find_spec(package):
        pytest.skip(f"{package} is not installed")


def test_there_is_one_for_every_kind_of_input():
    assert {each.stem for each in EXAMPLES} == {"svm_figure", "tabular", "audio", "text"}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda each: each.stem)
def test_examples_run(example, monkeypatch, capsys):
    """In this process, since a new one takes longer to start than the example to run."""
    needs(example)
    monkeypatch.setattr(sys, "argv", [str(example), "--quick"])
    threads = torch.get_num_threads()
    try:
        with torch.random.fork_rng():
            runpy.run_path(str(example), run_name="__main__")
    finally:
        torch.set_num_threads(threads)
    assert check_table(capsys.readouterr().out) <= 50


def test_a_defence_of_ones_own_is_attacked(monkeypatch, capsys):
    """Both kinds, and the printed gain is that of the printed worst cases."""
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    monkeypatch.setattr(sys, "argv", [str(OWN), "--quick"])
    threads = torch.get_num_threads()
    try:
        runpy.run_path(str(OWN), run_name="__main__")
    finally:
        torch.set_num_threads(threads)
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == ["Averaged, 10 digits", "Voting, 10 digits"]
    for block in (lines[1:5], lines[6:10]):
        carried, static, defended = (float(re.search(r"([\d.]+)%", line)[1]) for line in block[:3])
        gain = float(re.search(r"([+-][\d.]+) ", block[3])[1])
        assert defended - static == pytest.approx(gain, abs=0.11)
        assert defended <= carried
        assert ("stands" in block[3]) == (gain > 0)


@pytest.mark.parametrize("example", [*EXAMPLES, OWN], ids=lambda each: each.stem)
def test_examples_say_how_to_run_them(example):
    text = example.read_text()
    assert f"python examples/{example.name}" in text.split('"""')[1]
    assert len(text.splitlines()) < 120


def test_the_example_on_text_names_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.setattr(sys, "argv", ["text.py", "--quick"])
    with pytest.raises(SystemExit, match=r"pip install transformers"):
        runpy.run_path(str(ROOT / "examples" / "text.py"), run_name="__main__")


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda each: each.stem)
def test_examples_in_full(example):
    needs(example)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error::UserWarning:__main__"}
    process = subprocess.run([sys.executable, example], capture_output=True, text=True, timeout=180, env=environment, cwd=ROOT)
    assert process.returncode == 0, process.stderr
    assert check_table(process.stdout) >= 100
