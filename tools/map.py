"""Write the map of the code into CONTRIBUTING.md: every room and file with the first sentence of its docstring.

Rooms stand in the order of the layers that import-linter holds, the lowest first: a room imports only from rooms above it.
``--check`` writes nothing, and ends with status 1 where the map is not the one that would be written.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "CONTRIBUTING.md"
BEGIN, END = "<!-- map -->\n", "<!-- end -->\n"
WIDTH, INDENT = 130, 32  # width of the page, and column where the purpose of a file begins


def rooms() -> list[str]:
    """Return the rooms and files of the package, the lowest layer first."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(each["layers"] for each in contracts if each["type"] == "layers")
    return [name.strip() for layer in reversed(layers) for name in layer.split("|")]


def sentence(path: Path) -> str:
    """Return the first sentence of a module's docstring, without markup."""
    first, *_ = re.split(r"(?<!et al)(?<!Eq)\.\s|\n\n", ast.get_docstring(ast.parse(path.read_text())) or "")
    return " ".join(re.sub(r":\w+:`|[`\\]", "", first).split()).rstrip(".")


def lines() -> Iterator[str]:
    """Yield the lines of the map."""
    yield "drq/"
    for name in rooms():
        path = ROOT / "drq" / name
        yield line(2, f"{name}/", path / "__init__.py") if path.is_dir() else line(2, f"{name}.py", path.with_suffix(".py"))
        yield from inside(path, 4)


def inside(folder: Path, depth: int) -> Iterator[str]:
    """Yield the lines for the files of a room, and for the rooms inside it."""
    for path in sorted(folder.glob("*")):
        if path.is_dir() and (path / "__init__.py").exists():
            yield line(depth, f"{path.name}/", path / "__init__.py")
            yield from inside(path, depth + 2)
        elif path.suffix == ".py" and path.name not in ("__init__.py", "__main__.py"):
            yield line(depth, path.name, path)


def line(depth: int, name: str, path: Path) -> str:
    """Return the line for a file, with its purpose."""
    purpose = textwrap.wrap(sentence(path), WIDTH - INDENT)
    return f"{' ' * depth + name:<{INDENT}}" + f"\n{' ' * INDENT}".join(purpose)


def page() -> str:
    """Return the page with a new map."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, ended, after = rest.partition(END)
    assert ended, f"{PAGE.name} has no markers for the map"
    return f"{before}{BEGIN}\n```\n{chr(10).join(lines())}\n```\n\n{END}{after}"


if __name__ == "__main__":
    if "--check" not in sys.argv:
        PAGE.write_text(page())
    elif PAGE.read_text() != page():
        sys.exit("CONTRIBUTING.md has another map than the code: write it with 'make map'")
