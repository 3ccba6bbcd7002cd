"""Record what models say at many views of pictures, once for each model and shift: ``python -m tools.view_search.record``.

Only test images of CIFAR-10 below 5000 are read: nothing here is for a report. A file that is there already, of the same weights,
views and images, stays, so that it goes on where it stopped. Logits are kept as float16, with three digits: enough to search.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import torch
from torch import Tensor, nn

import drq
from drq.models.weights import checksum
from drq.registry import CORRUPTIONS
from drq.system.files import atomic_write
from drq.views import Views, parse

MODELS = ("published:resnet20", "published:resnet4b", "cifar10-small")
TONES = (
    "Detail() + Detail(0.15) + Detail(0.4) + Denoise() * Denoise() * Detail() + Blur() * Blur() * Contrast() + Blur() * Detail()"
    " + Contrast() * Sharpen() + Contrast() * Sharpen(2) + Denoise() * Contrast() * Sharpen() + Gamma(0.4, 0.6, 1.6, 2.5)"
)
ALL = f"Mirror() * ({TONES}) + Rotation(90, 37) + Mirror() * Rotation(90, 19) + Scale(2, 9)"
LAST = 5000  # images from here on are for reports


@dataclass(frozen=True)
class Shift:
    """Images of a data set, and what is done to them."""

    name: str
    data: str
    first: int
    count: int
    degrees: float = 0.0

    def read(self) -> tuple[Tensor, Tensor]:
        """Return images and labels."""
        assert self.first + self.count <= LAST
        places = torch.arange(self.first, self.first + self.count)
        x, y = drq.load_data(self.data).batch(places)
        if self.degrees:
            x = drq.threats.Rotation(self.degrees)(None, x, y, index=places)
        return x, y


SHIFTS = (
    Shift("gate", "cifar10", 3000, 500),
    Shift("clean", "cifar10", 4000, 1000),
    Shift("rotation90", "cifar10", 1000, 1000, 90.0),
    Shift("rotation30", "cifar10", 1000, 500, 30.0),
    *(Shift(name, f"cifar10-c/{name}/5", 1000, 400) for name in CORRUPTIONS),
)


class Seen(NamedTuple):
    """What a model says about N pictures at V views."""

    logits: Tensor  # (N, V, C)
    y: Tensor  # (N,)
    about: dict[str, Any]


def look(model: nn.Module, x: Tensor, views: Views, rows: int) -> Tensor:
    """Return the logits (N, V, C) at all views."""
    parts = []
    with torch.inference_mode():
        for block in torch.split(x, rows):
            seen = [model(view.inside(block, (0.0, 1.0))) for view in views.members]
            parts.append(torch.stack(seen, 1).half().cpu())
    return torch.cat(parts)


def write(path: Path, seen: Seen) -> None:
    """Write a record in one piece, with the checksum of its logits."""
    logits = seen.logits.numpy()
    about = seen.about | {"sha256": hashlib.sha256(logits.tobytes()).hexdigest()}
    content = io.BytesIO()
    numpy.savez_compressed(content, logits=logits, y=seen.y.numpy(), about=numpy.array(json.dumps(about)))
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        file.write(content.getvalue())


def read(path: Path) -> Seen:
    """Read a record, and check it."""
    with numpy.load(path) as file:
        logits, y, about = file["logits"], file["y"], json.loads(str(file["about"]))
    if hashlib.sha256(logits.tobytes()).hexdigest() != about.pop("sha256"):
        raise SystemExit(f"{path} is damaged: delete it, and record it again")
    return Seen(torch.from_numpy(logits), torch.from_numpy(y), about)


def place(folder: Path, model: str, shift: str) -> Path:
    """Return where a record lies."""
    return folder / model.replace(":", "-") / f"{shift}.npz"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=MODELS)
    parser.add_argument("--out", type=Path, default=Path("runs/view-search"), help="folder for the records")
    parser.add_argument("--views", default=ALL)
    parser.add_argument("--rows", type=int, default=500, help="pictures that go through a model together")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    chosen = parser.parse_args()
    views = parse(chosen.views)
    for name in chosen.models:
        model = drq.load_model(name).to(chosen.device)
        weights = checksum(model)
        for shift in SHIFTS:
            path = place(chosen.out, name, shift.name)
            about = {"model": name, "weights": weights, "views": str(views), **asdict(shift)}
            about["images"] = drq.load_data(shift.data).sha256
            if path.is_file() and read(path).about == about:
                continue
            x, y = shift.read()
            write(path, Seen(look(model, x.to(chosen.device), views, chosen.rows), y, about))
            print(path, flush=True)


if __name__ == "__main__":
    main()
