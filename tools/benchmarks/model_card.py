"""Measure a CIFAR-10 classifier for its card: clean, PGD, AutoAttack, corruptions; writes results/card-NAME.json.

Needs the extra ``attacks`` and CIFAR-10 in DRQ_DATA; a GPU takes minutes.
"""

from __future__ import annotations

import time

import torch
from pyautoattack import AutoAttack
from torch import Tensor, nn

import drq
from drq.threats.corruptions import KINDS
from tools.benchmarks.assets import accuracy, arguments, first_images, write


def autoattack(model: nn.Module, x: Tensor, y: Tensor, norm: str, radius: float, batch: int) -> tuple[float, list[str]]:
    """Return the accuracy in percent under AutoAttack's standard version, and the attacks that it ran."""
    name = {"linf": "Linf", "l2": "L2"}[norm]
    ensemble = AutoAttack(model, norm=name, eps=radius, version="standard", device=x.device, seed=0)
    with torch.no_grad():
        found, _ = ensemble.run_standard_evaluation(x, y, batch_size=batch)
    return accuracy(model, found, y), list(ensemble.attacks_to_run)


def main() -> None:
    parser = arguments(__doc__, images=10_000)
    parser.add_argument("model", nargs="?", default="cifar10-small")
    parser.add_argument("--corrupted", type=int, default=1000, help="how many images for PGD and for each corruption")
    parser.add_argument("--batch", type=int, default=2500, help="batch size of AutoAttack")
    given = parser.parse_args()
    model = drq.load_model(given.model).to(given.device)
    card, (x, y) = model.card, first_images(given.images, given.device)
    few, labels = x[: given.corrupted], y[: given.corrupted]
    record = {"model": card.name, "sha256": card.sha256, "norm": card.norm, "radius": card.radius, "images": given.images}
    record |= {"clean": accuracy(model, x, y), "corrupted_images": len(few), "severity": 5}
    corrupted = {kind: drq.threats.Corruption(kind, 5)(None, few, None) for kind in KINDS}
    record["corruptions"] = {kind: accuracy(model, shifted, labels) for kind, shifted in corrupted.items()}
    if card.norm is not None:
        pgd = drq.threats.PGD(card.norm, card.radius, steps=100)
        record["pgd_100"] = accuracy(model, pgd(model, few, labels), labels)
        began = time.monotonic()
        record["autoattack"], record["attacks"] = autoattack(model, x, y, card.norm, card.radius, given.batch)
        record["autoattack_seconds"] = round(time.monotonic() - began)
    print(record)
    write(given.out, f"card-{card.name}", record)


if __name__ == "__main__":
    main()
