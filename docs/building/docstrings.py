"""For the API reference: docstrings as Markdown, and the comments behind fields as their descriptions."""

import re
from typing import Any

import griffe

ROLE = re.compile(r":(?:class|func|meth|mod|math):`~?([^`]+)`")
EXAMPLE = re.compile(r"(?:^[ ]*>>> .*\n?(?:^[ ]*\S.*\n?)*)+", re.MULTILINE)


class Readable(griffe.Extension):
    """Roles become code, examples become blocks of it."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring, or make one of the comment at the end of the line."""
        if obj.docstring is not None:
            obj.docstring.value = readable(obj.docstring.value)
        elif obj.is_attribute and (comment := _comment(obj)):
            obj.docstring = griffe.Docstring(readable(comment), parent=obj)


def readable(text: str) -> str:
    """The text with roles as code and examples fenced."""
    return EXAMPLE.sub(lambda match: f"```pycon\n{match[0].rstrip()}\n```\n", ROLE.sub(r"`\1`", text))


def _comment(attribute: griffe.Object) -> str | None:
    if attribute.lineno is None or not isinstance(attribute.parent, griffe.Class):
        return None
    match = re.search(r"\s#\s(?!type:|noqa)(.*)$", attribute.lines_collection[attribute.filepath][attribute.lineno - 1])
    return match and match[1][0].upper() + match[1][1:] + "."
