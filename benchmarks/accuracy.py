"""Clean accuracy of every model that the package ships or trains, on its whole test set; writes results/accuracy.json.

Models whose file is not in DRQ_MODELS are left out. Minutes on a CPU.
"""

from __future__ import annotations

from assets import accuracy, arguments, first_images, write

import drq
from drq.models.trained import STORED


def main() -> None:
    given = arguments(__doc__, images=10_000).parse_args()
    rows = []
    for name in ("digits", *STORED):
        try:
            model = drq.load_model(name).to(given.device)
        except drq.InputError as error:
            print(f"left out: {error}")
            continue
        data = name.partition("-")[0]
        x, y = first_images(min(given.images, len(drq.load_data(data))), given.device, data)
        row = {"model": name, "sha256": model.card.sha256, "data": data, "images": len(y), "clean": accuracy(model, x, y)}
        rows.append(row)
        print(row, flush=True)
    write(given.out, "accuracy", {"accuracy": rows})


if __name__ == "__main__":
    main()
