"""Draw the sheet of pictures for docs/views.md: what every family of views makes of a photograph.

``python -m tools.benchmarks.views_sheet`` writes ``docs/images/views.png`` from scikit-learn's two sample photographs, the first
of which is turned here, and the second foggy: what rotations and contrast undo.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from PIL import Image, ImageDraw

from drq import views
from drq.threats.corruptions import Corruption
from drq.views import Views
from tools import ROOT
from tools.benchmarks.contact_sheet import COLOURS, GAP, TILE, photographs, tile

LABEL, SIDE, TURN, SEED = 150, 224, 45.0, 9
TURNED, FOGGY = 0, 1
ROWS: tuple[tuple[Views, int], ...] = (  # views, and the photograph that they are shown of
    (views.Rotation(90, 5), TURNED),
    (views.Scale(2, 5), TURNED),
    (views.Shift(32, 5), TURNED),
    (views.Mirror() * views.Contrast(), FOGGY),
    (views.Contrast() + views.Detail(0.1392) + views.Gamma(0.6, 1.6), FOGGY),
    (views.Denoise() + views.Blur() + views.Sharpen(), FOGGY),
)
MOST = max(len(members) for members, _ in ROWS)


def sheet() -> Image.Image:
    """Draw one row for each set of views: the input itself first."""
    originals, step = photographs(SIDE), TILE + GAP
    seen = {
        TURNED: views.Rotation(TURN, 3)[1](originals[TURNED:][:1]),
        FOGGY: Corruption("fog", 3, seed=SEED)(None, originals[FOGGY:], None),
    }
    canvas = Image.new("RGB", (LABEL + MOST * step, len(ROWS) * (step + 16)), "white")
    pen = ImageDraw.Draw(canvas)
    for row, (members, number) in enumerate(ROWS):
        top = row * (step + 16)
        pen.text((4, top + TILE // 2), "\n+ ".join(str(members).split(" + ")), fill="black", anchor="lm")
        for column, view in enumerate(members):
            left = LABEL + column * step
            canvas.paste(tile(view(seen[number])[0].clamp(0, 1)), (left, top))
            pen.text((left + TILE // 2, top + TILE + 8), view.name.replace(" degrees", ""), fill="black", anchor="mm")
    return canvas


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=ROOT / "docs" / "images", help="where to write")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    path = options.folder / "views.png"
    with torch.no_grad():
        full = sheet()
    full.quantize(palette=full.quantize(COLOURS), dither=Image.Dither.FLOYDSTEINBERG).save(path, optimize=True)
    print(f"{path}: {path.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main()
