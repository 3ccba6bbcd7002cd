"""Measure the clean accuracy of every named model whose file is on this machine; writes results/accuracy.json.

It uses all test images of CIFAR-10 or MNIST, and the pictures of NIPS 2017. ``python -m tools.benchmarks.accuracy
cifar10-tiny published:`` measures one model and all whose names begin so, and leaves the rows of others. Models and data that are
not in DRQ_MODELS and DRQ_DATA are left out. Minutes on a CPU.
"""

from __future__ import annotations

import json

import drq
from drq.models.imagenet import PACKAGED
from drq.models.published import DIGITS, PUBLISHED
from drq.models.trained import STORED
from tools.benchmarks.assets import accuracy, arguments, first_images, write

MODELS = ("digits", *STORED, *PACKAGED, *(f"published:{name}" for name in PUBLISHED))
BATCH = 500 * 32 * 32  # pixels


def data_of(name: str) -> str:
    """Return the data set that a model is measured on."""
    if name in PACKAGED:
        return "nips2017"
    prefix, colon, published = name.partition(":")
    if colon:
        return "mnist" if PUBLISHED[published].stored.card.classes == DIGITS else "cifar10"
    return prefix.partition("-")[0]


def main() -> None:
    parser = arguments(__doc__, images=10_000)
    parser.add_argument("names", nargs="*", metavar="NAME", help="names of models, or how they begin; all when none is given")
    given = parser.parse_args()
    chosen = [name for name in MODELS if not given.names or name.startswith(tuple(given.names))]
    if not chosen:
        parser.error(f"none of {', '.join(MODELS)} begins with {' or '.join(given.names)}")
    before = given.out / "accuracy.json"
    rows = {row["model"]: row for row in json.loads(before.read_text())["accuracy"]} if given.names and before.exists() else {}
    for name in chosen:
        try:
            model, data = drq.load_model(name).to(given.device), data_of(name)
            x, y = first_images(given.images, given.device, data, model.card.view)
        except drq.InputError as error:
            print(f"left out: {error}")
            continue
        clean = accuracy(model, x, y, max(1, BATCH // x[0, 0].numel()))
        rows[name] = {"model": name, "sha256": model.card.sha256, "data": data, "images": len(y), "clean": clean}
        print(rows[name], flush=True)
    write(given.out, "accuracy", {"accuracy": [rows[name] for name in MODELS if name in rows]})


if __name__ == "__main__":
    main()
