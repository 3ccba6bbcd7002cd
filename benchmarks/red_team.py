"""Does the red team find what is there to be found? Against Anti-Adversary, whose gain is known to vanish, and against DRQ.

``python benchmarks/red_team.py drq`` (or ``anti-adversary``) writes results/red-team-<defence>-<strength>.json.
"""

from __future__ import annotations

import time

from assets import accuracy, arguments, first_images, write
from torch import Tensor, nn

import drq
from drq import threats

RADIUS = 8 / 255


def defend(name: str, model: nn.Module) -> nn.Module:
    return drq.DRQ(model, "linf", 2 * RADIUS) if name == "drq" else drq.defences.AntiAdversary().around(model)


def under(defence: nn.Module, victim: nn.Module, x: Tensor, y: Tensor) -> float:
    """Accuracy of the defence under APGD on the scores of the victim."""
    return accuracy(defence, threats.APGD("linf", RADIUS, chunk=100)(victim, x, y), y, 100)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("defence", choices=["drq", "anti-adversary"])
    parser.add_argument("--strength", choices=["quick", "full"], default="quick")
    chosen = parser.parse_args()
    model = drq.load_model("cifar10-linf").to(chosen.device)
    x, y = first_images(chosen.images, chosen.device)
    defence, team = defend(chosen.defence, model), threats.RedTeam("linf", RADIUS, chosen.strength, progress=True)
    began = time.monotonic()
    standing = team.run(defence, x, y)
    seconds = time.monotonic() - began
    print(team.summary(standing), f"{seconds:.0f} s", sep="\n", flush=True)
    record = {"model": "cifar10-linf", "defence": chosen.defence, "norm": "linf", "radius": "8/255"}
    record |= team.findings(standing) | {"seconds": round(seconds, 1)}
    record["defended_again"] = accuracy(defence, standing.x, y, 100)  # the same points, in other batches
    record["transferred"] = under(defence, model, x, y)
    if chosen.defence == "anti-adversary":  # for DRQ it would cost more than the whole red team
        record["hasty"] = under(defence, defence, x, y)  # as if it were a plain model
    write(chosen.out, f"red-team-{chosen.defence}-{chosen.strength}", record)


if __name__ == "__main__":
    main()
