"""The table in docs/theory.md against what its script measures."""

import re

import pytest
from testbed.repository import ROOT

from drq.system.threads import threads
from tools.benchmarks import propositions


def numbers(cell):
    """Share in percent, number of cases, median and largest departure."""
    return [float(each) for each in re.findall(r"[\d.]+(?:e-?\d+)?", cell)]


@pytest.mark.slow
def test_table_of_the_page_is_what_the_script_measures():
    page = (ROOT / "docs" / "theory.md").read_text()
    published = re.search(r"<!-- propositions:begin -->\n(.*)\n<!-- propositions:end -->", page, re.DOTALL)[1]
    with threads(1):
        measured = propositions.table()
    old, new = ([line.split("|")[1:-1] for line in text.strip().splitlines()] for text in (published, measured))
    assert [row[0] for row in old] == [row[0] for row in new]
    assert old[0] == new[0]
    for before, after in zip(old[2:], new[2:], strict=True):
        for one, other in zip(before[1:], after[1:], strict=True):
            share, cases, *amounts = numbers(one)
            assert numbers(other)[:1] == pytest.approx([share], abs=0.3)  # other processors round differently
            assert numbers(other)[1:2] == pytest.approx([cases], rel=0.01)
            assert numbers(other)[2:] == pytest.approx(amounts, rel=0.3)
