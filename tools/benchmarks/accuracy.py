"""Clean accuracy of every model that the package ships or trains, on its whole test set; writes results/accuracy.json.

``python -m tools.benchmarks.accuracy cifar10-tiny`` measures one, and leaves the rows of others. Models whose file is
not in DRQ_MODELS are left out. Minutes on a CPU.
"""

from __future__ import annotations

import json

import drq
from drq.models.trained import STORED
from tools.benchmarks.assets import accuracy, arguments, first_images, write

MODELS = ("digits", *STORED)


def main() -> None:
    parser = arguments(__doc__, images=10_000)
    # argparse holds the default of no names, an empty list, against the choices, too
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[*MODELS, []], help="of models; all when none is given")
    given = parser.parse_args()
    before = given.out / "accuracy.json"
    rows = {row["model"]: row for row in json.loads(before.read_text())["accuracy"]} if given.names and before.exists() else {}
    for name in given.names or MODELS:
        try:
            model = drq.load_model(name).to(given.device)
        except drq.InputError as error:
            print(f"left out: {error}")
            continue
        data = name.partition("-")[0]
        x, y = first_images(min(given.images, len(drq.load_data(data))), given.device, data)
        rows[name] = {"model": name, "sha256": model.card.sha256, "data": data, "images": len(y), "clean": accuracy(model, x, y)}
        print(rows[name], flush=True)
    write(given.out, "accuracy", {"accuracy": [rows[name] for name in MODELS if name in rows]})


if __name__ == "__main__":
    main()
