"""Pages, tables and pictures are those that the committed records make."""

import pytest
from testbed.repository import ROOT

from tools.pages import blocks, ledger, real


@pytest.mark.parametrize("page", blocks.PAGES)
def test_tables_are_made_from_the_records(page: str) -> None:
    """``make pages`` writes them anew."""
    assert blocks.update_tables(page) == (ROOT / page).read_text()


def test_the_committed_ledger_is_that_of_the_committed_records():
    assert ledger.ledger(ROOT / "results" / "paper") == (ROOT / "docs" / "ledger.md").read_text(encoding="utf-8")


def test_the_page_on_networks_of_others_is_that_of_the_committed_records():
    assert real.page(ROOT / "results" / "paper") == (ROOT / "docs" / "real.md").read_text(encoding="utf-8")


@pytest.mark.slow  # intervals of areas are from a thousand resamplings
def test_all_that_is_made_from_the_committed_records_is_committed(tmp_path):
    """Byte for byte, with pictures and the page of peers."""
    folder, page = ROOT / "results" / "paper", ROOT / "docs" / "ledger.md"
    for path in ledger.write(folder, tmp_path / "ledger.md"):
        assert path.read_bytes() == (page.parent / path.relative_to(tmp_path)).read_bytes(), path.name


def test_records_are_small():
    assert sum(path.stat().st_size for path in (ROOT / "results").rglob("*")) < 30e6
