"""Draw two sheets of pictures for docs/corruptions.md: every kind and severity of corruption, at 224 and at 32 pixels.

``python -m tools.benchmarks.contact_sheet`` writes ``docs/images/corruptions-224.png`` and ``docs/images/corruptions-32.png``
from scikit-learn's two sample photographs; ``--photographs FOLDER`` lays photographs of frost over them instead of drawn ice.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw
from sklearn.datasets import load_sample_images
from torch import Tensor

from drq.threats.corruptions import KINDS, Corruption
from tools import ROOT

TILE, GAP, LABEL = 112, 2, 120  # pixels: side of a picture, gap, and width of the names on the left
COLOURS = 256  # size of the palette, which keeps the files small
SEVERITIES = (1, 2, 3, 4, 5)
SEED = 9  # with this seed the ice is dark, so that its shape is visible


def photographs(side: int) -> Tensor:
    """Return the central square of both photographs, (2, 3, side, side) in [0, 1]."""
    squares = []
    for pixels in load_sample_images().images:
        image = Image.fromarray(pixels)
        height, margin = image.height, (image.width - image.height) // 2
        square = image.crop((margin, 0, margin + height, height)).resize((side, side), Image.Resampling.LANCZOS)
        squares.append(torch.tensor(np.array(square)).permute(2, 0, 1) / 255)
    return torch.stack(squares)


def tile(image: Tensor) -> Image.Image:
    """Return one picture: large ones are halved, small ones enlarged with visible pixels."""
    picture = Image.fromarray((image * 255).round().byte().permute(1, 2, 0).numpy())
    return picture.resize((TILE, TILE), Image.Resampling.BOX if picture.width > TILE else Image.Resampling.NEAREST)


def sheet(side: int, folder: Path | None) -> Image.Image:
    """Draw one row for each kind: the original and five severities; the two photographs alternate."""
    originals, step = photographs(side), TILE + GAP
    canvas = Image.new("RGB", (LABEL + 6 * step, 20 + len(KINDS) * step), "white")
    pen = ImageDraw.Draw(canvas)
    for column, title in enumerate(["original", *(f"severity {severity}" for severity in SEVERITIES)]):
        pen.text((LABEL + column * step + TILE // 2, 10), title, fill="black", anchor="mm")
    for row, kind in enumerate(KINDS):
        x = originals[(row + 1) % 2][None]
        pen.text((4, 20 + row * step + TILE // 2), kind.replace("_", " "), fill="black", anchor="lm")
        shown = [x, *(Corruption(kind, severity, seed=SEED, photographs=folder)(None, x, None) for severity in SEVERITIES)]
        for column, image in enumerate(shown):
            canvas.paste(tile(image[0]), (LABEL + column * step, 20 + row * step))
    return canvas


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=ROOT / "docs" / "images", help="where to write")
    parser.add_argument("--photographs", type=Path, default=None, help="folder with the six photographs of frost")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for side in (32, 224):
        path = options.folder / f"corruptions-{side}.png"
        full = sheet(side, options.photographs)
        dithered = full.quantize(palette=full.quantize(COLOURS), dither=Image.Dither.FLOYDSTEINBERG)
        dithered.save(path, optimize=True)
        print(f"{path}: {path.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main()
