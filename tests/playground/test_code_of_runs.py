"""A run may name code: the playground runs it only where it was started with leave to."""

import json
import sys
import textwrap
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import MagicMock

import pytest

import drq
from drq.commands.cli import main

pytest.importorskip("gradio")
pytest.importorskip("sklearn")

from drq.playground import opened_runs, page, run_tab, sample_html

CANARY = """
    from dataclasses import dataclass
    from pathlib import Path
    import drq

    (Path(__file__).parent / "imported").touch()

    def model():
        return drq.load_model("digits")

    @dataclass(frozen=True)
    class Search(drq.Gradient):
        pass
"""
DEFENCES = {"DRQ": {"defence": "drq", "norm": "linf", "radius": 0.1}}
RUN = {"data": ["digits"], "limit": 2, "keep_images": 2, "threats": {"noise": {"threat": "GaussianNoise", "deviation": 0.1}}}
REFUSED, CARD = "run.json must not run code unasked, got", "Card of the decision of DRQ"


@pytest.fixture(params=["a model", "a search"])
def folder(request, tmp_path, monkeypatch) -> Path:
    """A folder with a run of somebody else, whose model or search is the canary."""
    (tmp_path / "canary.py").write_text(textwrap.dedent(CANARY))
    monkeypatch.syspath_prepend(str(tmp_path))
    models = ["python:canary:model"] if request.param == "a model" else ["digits"]
    drq.evaluate({**RUN, "models": models, "defences": DEFENCES}, tmp_path / "theirs" / "run")
    if request.param == "a search":
        about = tmp_path / "theirs" / "run" / "run.json"
        said = json.loads(about.read_text())
        said["spec"]["defences"]["DRQ"]["explore"] = {"search": "python:canary:Search", "steps": 1}
        about.write_text(json.dumps(said))
    (tmp_path / "imported").unlink(missing_ok=True)
    monkeypatch.delitem(sys.modules, "canary", raising=False)
    return tmp_path / "theirs"


def imported(folder: Path) -> bool:
    return (folder.parent / "imported").exists()


def test_a_card_is_refused_and_its_record_shown(folder):
    found = opened_runs.open_run(folder, "run")
    assert len(run_tab.sample_names(found, 0, "all")) == 2
    shown = run_tab.sample(found, 0, 1)
    assert REFUSED in shown
    assert "python:canary:" in shown
    assert "--allow-code" in shown
    assert "Sample 1 of digits" in shown
    assert CARD not in shown
    row = found.samples(found.groups[0]).row(1, named=True)
    assert sample_html.rerun_decision(row["model"], found.run.about["spec"]["defences"]["DRQ"], found.image(row)) is None
    assert not imported(folder)


def test_a_card_is_drawn_where_it_is_allowed(folder):
    found = opened_runs.open_run(folder, "run")
    assert len(run_tab.sample_names(found, 0, "all", allow_code=True)) == 2
    shown = run_tab.sample(found, 0, 1, allow_code=True)
    assert CARD in shown
    assert REFUSED not in shown
    assert imported(folder)


@pytest.mark.parametrize("allowed", [False, True])
def test_the_page_says_so_to_its_tab(folder, allowed, monkeypatch):
    gradio = MagicMock()  # which keeps what it is told to call
    monkeypatch.setattr(page, "gradio", lambda: gradio)
    page.page(folder, allowed)
    arguments = (call.args[0] for call in gradio.mock_calls if call.args)
    (on_sample,) = (each for each in arguments if getattr(each, "__name__", "") == "on_sample")
    _, shown = on_sample("run", 0, 1)
    assert (CARD in shown, REFUSED in shown) == (allowed, not allowed)
    assert imported(folder) == allowed


@pytest.mark.parametrize("options", [[], ["--allow-code"]])
def test_the_command_says_so_to_the_page(options, tmp_path, monkeypatch):
    asked = []

    @contextmanager
    def served(*arguments):
        asked.append(arguments)
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(page, "served", served)
    assert main(["play", str(tmp_path), *options]) == 130
    assert asked == [(tmp_path, "127.0.0.1", None, bool(options))]


def test_code_that_is_not_here_leaves_the_record(folder):
    if opened_runs.open_run(folder, "run").groups[0][0] == "digits":
        pytest.skip("the model is one of ours")
    (folder.parent / "canary.py").unlink()
    sample_html.classifier.cache_clear()
    shown = run_tab.sample(opened_runs.open_run(folder, "run"), 0, 1, allow_code=True)
    assert "Sample 1 of digits" in shown
    assert CARD not in shown


@pytest.fixture(autouse=True)
def forgotten():
    """Classifiers are kept by their names; those of a canary are not."""
    yield
    sample_html.classifier.cache_clear()
