"""Measure views that are left out early, and quantification over neighbouring views; writes results/view-variants.json.

Around networks of others, on test images 5000 and later: accuracy of the model alone, of DRQ over all views, and of the variant;
how often the variant answers as DRQ over all views does, and its passes. Gates are learnt from images 3000 to 3499.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import drq
from drq.report.typesetting import text_table
from tools.benchmarks.assets import arguments, write

MODELS = ("published:resnet20", "published:resnet4b")
ALL = (
    "Mirror() * Detail() + Denoise() * Detail() + Blur() * Contrast() + Contrast() * Sharpen() + Gamma(0.6, 1.6)"
    " + Rotation(90, 13) + Scale(2, 9)"
)
VARIANTS: tuple[tuple[str, str, dict[str, Any]], ...] = (  # what it is called, its views, and what differs
    ("left out early", ALL, {"prune": "race"}),
    ("neighbours, 15 degrees", "Rotation(90, 13)", {"alpha": 1 / 6}),
    ("neighbours, 30 degrees", "Rotation(90, 13)", {"alpha": 1 / 3}),
)
FIRST, FITTED = 5000, range(3000, 3500)


def shifts(images: int) -> dict[str, tuple[Tensor, Tensor]]:
    """Return clean, rotated and corrupted images, with their labels."""
    places = range(FIRST, FIRST + images)
    x, y = drq.load_data("cifar10").batch(places)
    index = torch.arange(FIRST, FIRST + images)
    found = {"clean": (x, y), "rotated": (drq.threats.Rotation(degrees=90)(None, x, y, index=index), y)}
    for kind in ("gaussian_noise", "defocus_blur", "contrast"):
        found[kind] = drq.load_data(f"cifar10-c/{kind}/5").batch(places)
    return found


def compared(whole: drq.DRQ, variant: drq.DRQ, x: Tensor, y: Tensor) -> dict[str, float]:
    """Return how both answer."""
    every, some = whole.decide(x), variant.decide(x)
    shares = {
        "alone": every.base_label == y,
        "all": every.label == y,
        "variant": some.label == y,
        "agree": every.label == some.label,
    }
    return {name: float(each.double().mean()) for name, each in shares.items()} | {"passes": float(some.passes.double().mean())}


def table(record: dict[str, Any]) -> str:
    """Return a table with a row for each model, variant and shift; *points* are what the variant adds to all views."""
    heads = ["model", "variant", "images", "alone", "all views", "variant", "points", "same answer", "passes"]
    shown = [
        [
            *(row["model"], row["title"], row["shift"]),
            *(f"{100 * row[name]:.1f}" for name in ("alone", "all", "variant")),
            f"{round(100 * (row['variant'] - row['all']), 1) + 0.0:+.1f}",
            f"{100 * row['agree']:.1f}",
            f"{row['passes']:.1f}",
        ]
        for row in record["found"]
    ]
    return text_table(heads, shown)


def main() -> None:
    chosen = arguments(__doc__).parse_args()
    rows = []
    for name in MODELS:
        model, images = drq.load_model(name).to(chosen.device), shifts(chosen.images)
        fitted = drq.load_data("cifar10").batch(FITTED)[0].to(chosen.device)
        for title, views, changes in VARIANTS:
            whole = drq.DRQ(model, views=views).gated(fitted)
            variant = whole.variant(**changes)
            variant = variant if "prune" in changes else variant.gated(fitted)
            for shift, (x, y) in images.items():
                found = compared(whole, variant, x.to(chosen.device), y.to(chosen.device))
                rows.append({"model": name, "title": title, "shift": shift} | found)
    record = {"images": chosen.images, "first": FIRST, "found": rows}
    print(table(record))
    write(chosen.out, "view-variants", record)


if __name__ == "__main__":
    main()
