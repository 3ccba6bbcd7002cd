"""Paths that 0.1 documented, and where they lead now."""

import pydoc
import re
import subprocess
import sys
import warnings
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from testbed.repository import ROOT

from drq import old_names

DOCUMENTED = (Path(__file__).parent / "documented_in_0_1.txt").read_text().split()


@pytest.mark.parametrize("path", DOCUMENTED)
def test_what_the_docs_of_0_1_name_is_still_found(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        assert pydoc.locate(path) is not None


@pytest.mark.parametrize("old", [*old_names.MOVED, *old_names.ROOMS])
def test_old_names_lead_to_the_module_that_moved(old):
    new = {**old_names.MOVED, **old_names.ROOMS}[old]
    public = next(name for name, each in vars(import_module(new)).items() if callable(each) and each.__module__ == new)
    script = [
        "import warnings",
        "with warnings.catch_warnings(record=True) as told:",
        "    warnings.simplefilter('always')",
        f"    from {old} import {public} as before",
        f"from {new} import {public} as now",
        "assert before is now",
        "print({(each.category.__name__, each.filename, str(each.message)) for each in told})",
    ]
    done = subprocess.run([sys.executable, "-c", "\n".join(script)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("DeprecationWarning") == 1
    assert "'<string>'" in done.stdout, "it names the line that asks, not a line of ours"
    assert new in done.stdout


PAGE = (ROOT / "docs" / "renamed.md").read_text()
RENAMED = [  # 0.1, whether it still works, and 0.2
    (before, bool(star), after)
    for before, star, after in re.findall(r"^\| `(drq\.[\w.]+)`( \*)? \| `(drq\.[\w.]+)` \| \w", PAGE, re.MULTILINE)
]


@pytest.mark.parametrize(("before", "works", "after"), RENAMED, ids=[before for before, *_ in RENAMED])
def test_a_class_that_was_renamed_has_its_new_name_and_not_the_old_one(before, works, after):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        assert isinstance(pydoc.locate(after), type)
        assert pydoc.locate(before) is (pydoc.locate(after) if works else None)


def test_the_page_has_all_that_was_renamed():
    listed = {before.rpartition(".")[2]: after.rpartition(".")[2] for before, works, after in RENAMED if works}
    assert listed == {old: new for names in old_names.RENAMED.values() for old, new in names.items()}
    assert len(RENAMED) > 40
    files = PAGE.partition("## Files")[2]
    present = [
        name
        for line in re.findall(r"^\| `drq.* \| (`drq.*) \|$", files, re.MULTILINE)
        for name in re.findall(r"`([\w.]+)`", line)
    ]
    assert len(present) > 30
    for name in present:
        assert isinstance(import_module(name), ModuleType)


def test_names_that_nobody_had_are_not_found():
    for name in ("drq.nothing", "drq.search.nothing"):
        with pytest.raises(ImportError):
            import_module(name)
    assert isinstance(import_module("drq.search"), ModuleType)
    assert not hasattr(import_module("drq.search"), "nothing")


@pytest.mark.parametrize(("module", "old"), [(module, old) for module, names in old_names.RENAMED.items() for old in names])
def test_old_words_lead_to_the_present_ones(module, old):
    new = old_names.RENAMED[module][old]
    with pytest.warns(DeprecationWarning, match=rf"{module}\.{old} is \S+\.{new} since 0\.2") as told:
        before = getattr(import_module(module), old)
    assert [Path(each.filename) for each in told] == [Path(__file__)], "it names the line that asks"
    assert before is getattr(import_module(old_names.ROOMS.get(module, module)), new)
