"""The page of what works with DRQ: its examples run, and those of other libraries with these."""

import re
from pathlib import Path

import pytest
import torch
from testbed.compat import alone
from testbed.repository import ROOT

apart = pytest.fixture(autouse=True)(alone)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a decision of DRQ that the last one has to meet."""
    monkeypatch.chdir(tmp_path)
    page = ROOT / "docs" / "works-with.md"
    examples = re.findall(r"^```py(?:thon)?\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    assert len(examples) == 3
    scope: dict[str, object] = {}
    for example in examples:
        exec(compile(example, str(page), "exec"), scope)
    assert torch.as_tensor(scope["scores"]).argmax(1).equal(scope["decision"].label)
