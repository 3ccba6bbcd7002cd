"""Every row of the page of what works with DRQ is a test, and every such test has a row."""

import ast
import re

from testbed.repository import ROOT

PAGE = (ROOT / "docs" / "works-with.md").read_text()
COMPAT = sorted((ROOT / "tests" / "compat").glob("test_*.py"))
APART = {"test_examples_run"}  # of the page itself


def defined() -> set[str]:
    trees = (ast.parse(path.read_text()) for path in COMPAT)
    return {node.name for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef) and node.name[:5] == "test_"}


def rows() -> list[list[str]]:
    block = re.search(r"<!-- rows -->\n(.*?)<!-- end -->", PAGE, re.DOTALL)[1]
    lines = [line for line in block.splitlines() if line.startswith("| ")][1:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_rows_and_tests_belong_to_each_other():
    named = [row[-1].strip("`") for row in rows()]
    assert len(named) == len({*named}) >= 16
    assert {*named} <= defined()
    longer = {name for name in defined() for row in named if name.startswith(f"{row}_")}  # of the same row, more closely
    assert defined() - {*named} - longer == APART


def test_every_row_says_how():
    for library, how, known, _ in rows():
        assert library
        assert re.fullmatch(r"(`[^`]+`(, | in | and )?)+", how), how
        assert known


def test_what_the_rows_need_is_installed_for_them():
    makefile = (ROOT / "Makefile").read_text()
    pins = dict(re.findall(r"([\w-]+)==([\d.]+)", "".join(re.findall(r"^COMPAT\w* := .*$", makefile, re.MULTILINE))))
    shared = (ROOT / "tests" / "testbed" / "compat.py").read_text()
    libraries = ast.literal_eval(re.search(r"^LIBRARIES = (\(.*\))$", shared, re.MULTILINE)[1])
    assert {*pins} == {"adversarial-robustness-toolbox" if name == "art" else name for name in libraries}
