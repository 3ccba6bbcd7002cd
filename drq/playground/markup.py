"""Build pieces of HTML. Names may come from untrusted files, so every text is escaped here and nowhere else."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LONGEST = 60  # characters of a name that are shown


def text(name: object) -> str:
    """Return a text that is safe in a page: shortened, printable and escaped."""
    shown = "".join(each if each.isprintable() else "?" for each in str(name))
    return escape(shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 1]}…")


def status(*parts: str) -> str:
    """Return a status line of HTML sentences, which screen readers announce when it changes."""
    return f'<div class="status-line" role="status">{" ".join(parts)}</div>'


def error(message: str) -> str:
    """Return an error message, which screen readers announce at once."""
    return f'<div class="status-line invalid" role="alert">{escape(" ".join(message.split()))}</div>'


def progress(done: float, what: str) -> str:
    """Return a progress bar with the name of the work."""
    share = min(max(done, 0.0), 1.0)
    bar = f'<progress max="1" value="{share:.3f}" aria-label="progress"></progress>'
    return f'<div class="status-line" role="status">{text(what)}{bar}</div>'


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]], chosen: int | None = None) -> str:
    """Return a table whose cells are HTML; one row may be highlighted."""
    head = "".join(f'<th scope="col">{each}</th>' for each in heads)
    body = "".join(
        f'<tr{" class=chosen" if number == chosen else ""}><th scope="row">{first}</th>'
        f"{''.join(f'<td>{each}</td>' for each in rest)}</tr>"
        for number, (first, *rest) in enumerate(rows)
    )
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{caption}"><table class="numbers">'
        f"<caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def bar(share: float, css_class: str = "") -> str:
    """Return a number from 0 to 1 with a bar of that length."""
    width = 100 * min(max(share, 0.0), 1.0)
    return f'{share:.3f}<span class="track"><span class="bar {css_class}" style="width:{width:.0f}%"></span></span>'


def image_url(image: Tensor) -> str:
    """Return an image (1 or 3, H, W) in [0, 1] as a data URL."""
    from PIL import Image

    pixels = (image.detach().clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy()
    buffer = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels).save(buffer, "PNG")
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def figure(drawn: Figure, description: str) -> str:
    """Return a figure of matplotlib as an image with a description."""
    buffer = io.BytesIO()
    drawn.savefig(buffer, format="svg", metadata={"Date": None})
    source = base64.b64encode(buffer.getvalue()).decode()
    return f'<div class="drawing"><img src="data:image/svg+xml;base64,{source}" alt="{escape(description)}"></div>'
