"""Every Python example in the README and the docs runs; every local link leads somewhere."""

import doctest
import os
import re
import tomllib
from pathlib import Path

import pytest
import torch
from testbed.repository import ROOT

import drq

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "training" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def examples(page: Path, language: str = "python") -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def run(example: str, page: Path, scope: dict[str, object]) -> dict[str, object]:
    """The scope after an example."""
    if ">>>" not in example:
        exec(compile(example, str(page), "exec"), scope)
        return scope
    parsed = doctest.DocTestParser().get_doctest(example, scope, page.name, str(page), 0)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    runner.run(parsed, clear_globs=False)
    assert runner.failures == 0
    return parsed.globs


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_run(page, tmp_path, monkeypatch):
    """Those that need weights which are not on this machine are left out, and the test says so after all others."""
    monkeypatch.chdir(tmp_path)  # some write files
    if "DRQ_TEST_ASSETS" in os.environ:
        monkeypatch.setenv("DRQ_MODELS", str(Path(os.environ["DRQ_TEST_ASSETS"]) / "weights"))
    scope: dict[str, object] = {}
    absent = []
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for example in examples(page):
            try:
                scope = run(example, page, scope)
            except drq.errors.MissingError as error:
                absent.append(str(error))
    if absent:
        pytest.skip("; ".join(absent))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_specs_can_be_read(page):
    for example in examples(page, "toml"):
        assert drq.Spec.of(tomllib.loads(example)).groups


def test_there_are_examples():
    assert len(examples(ROOT / "docs" / "evaluate.md", "toml")) == 3
    assert len(examples(ROOT / "README.md")) == 1
    assert len(examples(ROOT / "docs" / "theory.md")) >= 2


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_local_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?://)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target
