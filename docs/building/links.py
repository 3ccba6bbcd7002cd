"""For the site: links that leave docs/ lead to pages with the file that they name, since a site has no files beside it.

A file of text is shown as it is, a notebook and a Markdown file as pages; links to folders become words.
"""

import json
import os
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!\w+:)([^)#\s]+)(#[^)\s]*)?\)")
LANGUAGES = {".py": "python", ".json": "json", ".toml": "toml"}


def on_files(files: Files, config: MkDocsConfig, **_: Any) -> Files:
    """Add a page for every file outside docs/ that is linked, and for those that these link."""
    waiting = [Path(each.abs_src_path) for each in files.documentation_pages() if each.abs_src_path]
    known: set[Path] = set()
    while waiting:
        page = waiting.pop()
        for target in {each for each in _targets(page) if each.is_file() and not each.is_relative_to(DOCS)} - known:
            known.add(target)
            waiting.append(target)
            files.append(File.generated(config, _place(target), content=_shown(target)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Links of a page as they are on the site."""
    return markdown if page.file.generated_by else relinked(markdown, DOCS / page.file.src_uri)


def relinked(text: str, source: Path) -> str:
    """The text of ``source`` with the links of its page on the site. What is no link to a file stays."""

    def replaced(match: re.Match[str]) -> str:
        picture, words, target, anchor = match.groups()
        path = (source.parent / target).resolve()
        if path.is_dir():
            return words
        if not path.is_file():
            return match[0]
        return f"{picture}[{words}]({os.path.relpath(_place(path), Path(_place(source)).parent)}{anchor or ''})"

    return LINK.sub(replaced, text)


def _place(path: Path) -> str:
    """Where on the site a file of the repository is."""
    if path.is_relative_to(DOCS):
        return str(path.relative_to(DOCS))
    inside = path.relative_to(ROOT)
    return f"source/{inside}" if path.suffix == ".md" else f"source/{inside}.md"


def _targets(page: Path) -> list[Path]:
    """What a page links to. Code has no links."""
    if page.suffix not in (".md", ".ipynb"):
        return []
    found = [(page.parent / match[3]).resolve() for match in LINK.finditer(page.read_text())]
    return [each for each in found if each.is_relative_to(ROOT)]


def _shown(path: Path) -> str:
    """A page with the file."""
    if path.suffix == ".md":
        return relinked(path.read_text(), path)
    if path.suffix == ".ipynb":
        return relinked("\n\n".join(map(_cell, json.loads(path.read_text())["cells"])), path)
    return f"# {path.relative_to(ROOT)}\n\n{_fenced(path.read_text(), LANGUAGES.get(path.suffix, 'text'))}"


def _cell(cell: dict[str, Any]) -> str:
    """A cell of a notebook."""
    text = "".join(cell["source"])
    return text if cell["cell_type"] == "markdown" else _fenced(text, "python")


def _fenced(text: str, language: str) -> str:
    return f"````{language}\n{text.rstrip()}\n````\n"
