"""Where tests lie and what they may reach: a reader finds them from the package, and each file stands alone."""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from testbed.repository import ROOT

TESTS = ROOT / "tests"
APART = {
    "records": "what pins findings, which make check-records runs",
    "release": "the lock, the workflows, and what a release ships",
    "testbed": "what tests share",
    "compat": "real libraries beside DRQ, which have an environment of their own",
    "zoo": "real libraries, which have an environment of their own",
    **dict.fromkeys(
        ("tools", "tools/benchmarks", "tools/pages", "training", "examples", "docs"),
        "folders of the repository beside the package",
    ),
}
FILES = sorted(TESTS.rglob("*.py"))
LONGEST = 350


def imported(path: Path) -> Iterator[str]:
    """The names that a file imports from, and those that it imports there; relative ones begin with a dot."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or "")
            yield from (alias.name for alias in node.names)


def relative(paths: Iterable[Path]) -> list[str]:
    return [str(path.relative_to(TESTS)) for path in paths]


def test_a_folder_mirrors_one_of_the_package_unless_it_is_named():
    folders = {*relative(path.parent for path in FILES)}
    assert {folder for folder in folders if not (ROOT / "drq" / folder).is_dir()} == {*APART}


def test_every_file_holds_tests_or_fixtures_unless_it_lies_in_the_testbed():
    others = [path for path in FILES if not path.name.startswith("test_") and path.name != "conftest.py"]
    assert {path.parent for path in others} == {TESTS / "testbed"}
    assert {path for path in FILES if path.parent == TESTS / "testbed"} == {*others}


def test_no_file_of_tests_is_imported():
    """A change of one cannot break the next."""
    never = {path.stem for path in FILES if path.parent.name != "testbed"} | {"tests", ""}
    assert not relative(path for path in FILES if any({*name.split(".")} & never for name in imported(path)))


def test_nobody_changes_where_python_looks():
    """``pythonpath`` in pyproject.toml says it for tests, ``testbed.repository.reaching`` for processes that they start."""
    assert not relative(path for path in FILES if ".".join(("sys", "path")) in path.read_text())


def test_every_file_can_be_read_in_one_go():
    assert not relative(path for path in FILES if len(path.read_text().splitlines()) > LONGEST)
