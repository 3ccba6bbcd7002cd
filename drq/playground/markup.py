"""Pieces of HTML. Names come from anywhere, so every text is escaped here and nowhere else."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LONGEST = 60  # letters of a name


def text(name: object) -> str:
    """A text as it may stand in a page: short, visible and without effect."""
    shown = "".join(each if each.isprintable() else "?" for each in str(name))
    return escape(shown if len(shown) <= LONGEST else f"{shown[: LONGEST - 1]}…")


def said(*parts: str) -> str:
    """Sentences that are read out when they change."""
    return f'<div class="said" role="status">{" ".join(parts)}</div>'


def refused(message: str) -> str:
    """What is wrong, read out at once."""
    return f'<div class="said refused" role="alert">{escape(" ".join(message.split()))}</div>'


def under_way(done: float, what: str) -> str:
    """How far long work is."""
    share = min(max(done, 0.0), 1.0)
    shown = f'<progress max="1" value="{share:.3f}" aria-label="progress"></progress>'
    return f'<div class="said" role="status">{text(what)}{shown}</div>'


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]], chosen: int | None = None) -> str:
    """A table whose cells are HTML; one row may be marked."""
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


def bar(share: float, look: str = "") -> str:
    """A number from 0 to 1 with a bar that is as long."""
    width = 100 * min(max(share, 0.0), 1.0)
    return f'{share:.3f}<span class="track"><span class="bar {look}" style="width:{width:.0f}%"></span></span>'


def picture(image: Tensor) -> str:
    """An image (1 or 3, H, W) in [0, 1] as an address that holds it."""
    from PIL import Image

    pixels = (image.detach().clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy()
    held = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels).save(held, "PNG")
    return f"data:image/png;base64,{base64.b64encode(held.getvalue()).decode()}"


def drawing(figure: Figure, told: str) -> str:
    """A figure of matplotlib, as an image with a description."""
    held = io.BytesIO()
    figure.savefig(held, format="svg", metadata={"Date": None})
    source = base64.b64encode(held.getvalue()).decode()
    return f'<div class="drawing"><img src="data:image/svg+xml;base64,{source}" alt="{escape(told)}"></div>'
