"""Does the red team find what is there to be found? Against Anti-Adversary, whose gain is known to vanish, and against DRQ.

``python benchmarks/red_team.py drq`` (or ``anti-adversary``) writes results/red-team-<defence>-<strength>.json.
"""

from __future__ import annotations

import time

import torch
from assets import accuracy, arguments, classifier, test_images, write
from torch import Tensor, nn

import drq
from drq import threats

RADIUS = 8 / 255


def defend(name: str, model: nn.Module) -> nn.Module:
    from anti_adversary import AntiAdversary

    return drq.DRQ(model, "linf", 2 * RADIUS) if name == "drq" else AntiAdversary(model)


def naive(defence: nn.Module, x: Tensor, y: Tensor) -> float:
    """Accuracy under APGD on the scores of the defence, as if it were a plain model: what a hasty evaluation reports."""
    attacked = threats.APGD("linf", RADIUS)(defence, x, y)
    return accuracy(defence, attacked, y)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("defence", choices=["drq", "anti-adversary"])
    parser.add_argument("--strength", choices=["quick", "full"], default="quick")
    parser.add_argument("--first", type=int, default=0, help="number of the first image")
    chosen = parser.parse_args()
    model = classifier(chosen.assets, "cifar10-linf", chosen.device)
    x, y = test_images(chosen.assets, chosen.first + chosen.images, chosen.device)
    x, y, index = x[chosen.first :], y[chosen.first :], torch.arange(chosen.first, len(y))
    defence, team = defend(chosen.defence, model), threats.RedTeam("linf", RADIUS, chosen.strength, progress=True)
    began = time.monotonic()
    standing = team.run(defence, x, y, index=index)
    seconds = time.monotonic() - began
    print(team.summary(standing))
    again = accuracy(defence, standing.x, y, 100)
    record = {"model": "cifar10-linf", "defence": chosen.defence, "norm": "linf", "radius": "8/255", "first": chosen.first}
    record |= team.findings(standing) | {"seconds": round(seconds, 1), "defended_again": again}
    if chosen.defence == "anti-adversary":
        record["naive"] = naive(defence, x, y)
    write(chosen.out, f"red-team-{chosen.defence}-{chosen.strength}", record)


if __name__ == "__main__":
    main()
