"""Build the elements of a self-contained HTML page: tables, figures as SVG, images as data.

Plain strings are text and are escaped; only :class:`Markup` is inserted as it is.
"""

from __future__ import annotations

import base64
import html
import io
import re
import struct
import warnings
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import numpy as np

from drq.errors import imported, require

if TYPE_CHECKING:
    from matplotlib.axes import Axes

VOID = {"meta", "img", "br"}
# With this policy the browser runs no script and loads nothing from other addresses.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
SVG, XLINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}"
COLOURS = {
    "#000000": "currentColor",
    "#0072b2": "var(--blue, #0072b2)",
}  # colours that follow the page's theme, since they would vanish on a dark background
LINK = re.compile(r"#([\w.-]+)")


class Markup(str):
    """HTML that is inserted into a page as it is."""

    __slots__ = ()


Content = Markup | str | None  # None is left out


def element(tag: str, *content: Content, **attributes: str | int | bool | None) -> Markup:
    """Return one element. ``class_`` stands for class and ``data_x`` for data-x; None and False leave an attribute out.

    >>> element("p", "a < b ", element("b", "c"), class_="d")
    '<p class="d">a &lt; b <b>c</b></p>'
    """
    written = ""
    for name, value in attributes.items():
        if value is not None and value is not False:
            given = "" if value is True else f'="{html.escape(_visible(str(value)))}"'
            written += f" {name.rstrip('_').replace('_', '-')}{given}"
    return Markup(f"<{tag}{written}>" if tag in VOID else f"<{tag}{written}>{joined(content)}</{tag}>")


def joined(content: Iterable[Content]) -> Markup:
    """Concatenate content, escaping what is text."""
    return Markup(
        "".join(each if isinstance(each, Markup) else html.escape(_visible(each)) for each in content if each is not None)
    )


def _visible(text: str) -> str:
    """Replace characters that HTML does not allow, or that change the direction of text."""
    return (
        text if text.isprintable() else "".join(each if each.isprintable() or each in "\n\t\xa0" else "\ufffd" for each in text)
    )


def section(key: str, title: str, *content: Content) -> Markup:
    """Return a section of the page with its heading."""
    return element("section", element("h2", title, id=key), *content, aria_labelledby=key)


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[Markup]], texts: int = 1) -> Markup:
    """Return a table in a scrolling box. The cells of a row are elements; the first ``texts`` columns hold words, not numbers."""
    heads = element(
        "tr", *(element("th", each, scope="col", class_="text" if at < texts else None) for at, each in enumerate(head))
    )
    body = joined(element("tr", *row) for row in rows)
    title = element("caption", element("span", caption))
    shown = element("table", title, element("thead", heads), element("tbody", body))
    return element("div", shown, class_="scroll", role="region", tabindex=0, aria_label=caption)


def first(content: Content) -> Markup:
    """Return the header cell of a row."""
    return element(
        "th", content, scope="row", title=content if len(content or "") > 36 and not isinstance(content, Markup) else None
    )


def number(value: float | None, form: str = ".1f", unit: str = "") -> Markup:
    """Return a cell with a number; empty for None and NaN."""
    return element("td", "" if value is None or value != value else f"{value:{form}}{unit}")


class Accuracies:
    """The accuracies on a page: buttons that show the expression which recomputes them, each expression stored once."""

    def __init__(self) -> None:
        self.expressions: dict[str, str] = {}

    def shown(self, value: float, expression: str, digits: int = 1) -> Markup:
        """Return an accuracy as a button that shows its expression."""
        key = self.expressions.setdefault(expression, f"expression-{len(self.expressions) + 1}")
        text, label = f"{value:.{digits}f}", "shows how to recompute this accuracy"
        return element(
            "button", text, type="button", class_="accuracy", popovertarget=key, title=label, data_expression=expression
        )

    def popovers(self) -> Markup:
        """Return the expressions that the buttons show, for the end of the page."""
        return joined(
            element(
                "div",
                "This accuracy again, from the records and polars:",
                element("pre", element("code", text)),
                id=key,
                popover=True,
            )
            for text, key in self.expressions.items()
        )


def figure(ax: Axes, key: str, title: str, caption: str) -> Markup:
    """Return a figure as SVG, with its caption."""
    words = element("figcaption", element("b", title), caption, id=f"{key}-caption")
    return element("figure", svg(ax, key), words)


def svg(ax: Axes, key: str) -> Markup:
    """Return a figure as inline SVG in the colours of the page, with unique ids that begin with ``key``."""
    backend = imported("matplotlib", "figures", "pip install 'decision-region-quantification[report]'")
    drawn, whole = io.StringIO(), ax.get_figure(root=True)
    assert whole is not None, "the axes were removed from their figure"
    with backend.rc_context({"svg.fonttype": "none", "svg.hashsalt": key}), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a glyph that matplotlib's font lacks: the browser has another font
        whole.savefig(drawn, format="svg", transparent=True, metadata={"Date": None})
    root = ElementTree.fromstring(drawn.getvalue())
    for child in list(root):
        if child.tag == f"{SVG}metadata" or child.find(f"{SVG}style") is not None:
            root.remove(child)  # its style would apply to the whole page
    used = {each for node in root.iter() for value in node.attrib.values() for each in LINK.findall(value)}
    for node in root.iter():
        node.tag = node.tag.removeprefix(SVG)
        node.attrib = {name.removeprefix(XLINK): value for name, value in node.attrib.items()}
        if node.attrib.get("id") not in used:
            node.attrib.pop("id", None)
        for name, value in node.attrib.items():
            node.attrib[name] = _attribute(name, value, key)
    size = {"viewBox": root.attrib["viewBox"], "role": "img", "aria-labelledby": f"{key}-caption"}
    root.attrib = size
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _attribute(name: str, value: str, key: str) -> str:
    if name == "id":
        return f"{key}-{value}"
    if name == "href":
        return f"#{key}-{value.removeprefix('#')}"
    if name == "d":  # a hundredth of a point is enough
        return " ".join(re.sub(r"\d+\.\d+", lambda each: f"{float(each[0]):.2f}", value).split())
    if name == "style":
        value = re.sub(r"font-family: [^;]*;? ?", "", value)
        for colour, name in COLOURS.items():
            value = value.replace(colour, name)
    return value.replace("url(#", f"url(#{key}-")


def image(pixels: Any, description: str) -> Markup:
    """Return an 8-bit image (H, W), (H, W, 1) or (H, W, 3) as a PNG inside the page."""
    array = np.asarray(pixels)
    if array.ndim == 2:
        array = array[..., None]
    rule = "be 8-bit images (H, W, C) with 1 or 3 channels"
    fits = array.dtype == np.uint8 and array.ndim == 3 and array.shape[2] in (1, 3) and array.size > 0
    require(fits, "examples", rule, f"{array.dtype} of shape {array.shape}", "round them to 0..255, channels last")
    source = "data:image/png;base64," + base64.b64encode(png(array)).decode()
    return element("img", src=source, alt=description, width=array.shape[1], height=array.shape[0])


def png(array: Any) -> bytes:
    """Return the bytes of a PNG: a header, the rows (each after a 0, which means no filter), and an end."""
    height, width, channels = array.shape
    header = struct.pack(">2I5B", width, height, 8, 0 if channels == 1 else 2, 0, 0, 0)
    rows = np.concatenate([np.zeros((height, 1), np.uint8), array.reshape(height, -1)], axis=1).tobytes()
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
    chunks = (struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts)
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def document(title: str, *body: Content) -> str:
    """Return the whole HTML file."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("style", Markup(Path(__file__).with_name("page.css").read_text(encoding="utf-8"))),
    )
    return f"<!doctype html>\n{element('html', head, element('body', *body), lang='en')}\n"
