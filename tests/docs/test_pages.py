"""Every Python example in the README and the docs runs; every local link leads somewhere."""

import doctest
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some write files
    scope: dict[str, object] = {}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for example in examples(page):
            if ">>>" in example:
                parsed = doctest.DocTestParser().get_doctest(example, scope, page.name, str(page), 0)
                runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
                runner.run(parsed, clear_globs=False)
                assert runner.failures == 0
                scope = parsed.globs
            else:
                exec(compile(example, str(page), "exec"), scope)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_specs_can_be_read(page):
    for example in examples(page, "toml"):
        assert drq.Spec.of(tomllib.loads(example)).groups


def test_there_are_examples():
    assert len(examples(ROOT / "docs" / "evaluate.md", "toml")) == 2
    assert len(examples(ROOT / "README.md")) == 1
    assert len(examples(ROOT / "docs" / "theory.md")) >= 2


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_local_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?://)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target
