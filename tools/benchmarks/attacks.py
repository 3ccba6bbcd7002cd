"""Compare the strength of our Auto-PGD with the reference's, on the same images; writes results/attacks.json.

Needs the extra ``attacks``.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from pyautoattack.autopgd_base import APGDAttack, APGDAttack_targeted
from torch import Tensor, nn

import drq
from drq import threats
from tools.benchmarks.assets import accuracy, arguments, first_images, write

RADII = {"linf": 8 / 255, "l2": 0.5}


def reference(model: nn.Module, x: Tensor, y: Tensor, norm: str, loss: str, seed: int) -> Tensor:
    """Return the points at which pyautoattack's Auto-PGD fools the model, or else those of the highest loss."""
    kind: Any = APGDAttack_targeted if loss == "dlr_targeted" else APGDAttack
    options = {"norm": {"linf": "Linf", "l2": "L2"}[norm], "eps": RADII[norm], "n_iter": 100, "n_restarts": 1, "seed": seed}
    extra = {"n_target_classes": 9} if loss == "dlr_targeted" else {"loss": loss}
    with torch.no_grad():
        points: Tensor = kind(model, device=x.device, **options, **extra).perturb(x, y)
    return points


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--model", default="cifar10-linf")
    parser.add_argument("--seeds", type=int, default=3, help="how many seeds of the reference, which starts at random")
    chosen = parser.parse_args()
    model = drq.load_model(chosen.model).to(chosen.device)
    x, y = first_images(chosen.images, chosen.device)
    rows = []
    for norm in ("linf", "l2"):
        ours = {
            "ce": threats.APGD(norm, RADII[norm]),
            "dlr": threats.APGD(norm, RADII[norm], aim=drq.objectives.dlr),
            "dlr_targeted": threats.APGDTargeted(norm, RADII[norm]),
        }
        for loss, attack in ours.items():
            began = time.monotonic()
            own = accuracy(model, attack(model, x, y), y)
            middle = time.monotonic()
            theirs = [accuracy(model, reference(model, x, y, norm, loss, seed), y) for seed in range(chosen.seeds)]
            seconds = {"ours": middle - began, "reference": (time.monotonic() - middle) / chosen.seeds}
            row = {"norm": norm, "radius": RADII[norm], "loss": loss, "ours": own, "reference": theirs, "seconds": seconds}
            rows.append(row)
            print(row, flush=True)
    record = {"model": chosen.model, "images": chosen.images, "clean": accuracy(model, x, y), "accuracy": rows}
    write(chosen.out, "attacks", record)


if __name__ == "__main__":
    main()
