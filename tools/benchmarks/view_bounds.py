"""Learn the gates of the experiments on views anew, and write what each one promises to results/view-bounds.json.

Records say how many answers a gate changes on images that it was not learnt from, but not how many it changed on those that it
was, which is what its bound follows from. Give names of models to learn theirs alone; those in the record stay.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import drq
from drq.defences.defence import Quantified
from drq.evaluation.plan import tasks
from drq.evaluation.sources import as_spec
from drq.reproduction.experiments import BEYOND
from tools.benchmarks.assets import arguments, write

NAME, EXPERIMENTS = "view-bounds", BEYOND["views-first"]


def learnt(chosen: list[str], device: str) -> Iterator[dict[str, Any]]:
    """Yield what the gates around the chosen models promise, or around all models."""
    for experiment in EXPERIMENTS:
        spec = as_spec(experiment)
        for name in dict.fromkeys(task.model for task in tasks(spec)):
            if chosen and name not in chosen:
                continue
            model = drq.load_model(name).to(device)
            for title, defence in spec.defences.items():
                if isinstance(defence, Quantified) and defence.gate is not None:
                    gate = defence.around(model).gate
                    assert gate is not None
                    found = {"inputs": gate.inputs, "changed": gate.changed, "bound": gate.bound}
                    yield {"model": name, "defence": title} | found


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="names of models; all where there are none")
    chosen = parser.parse_args()
    path = chosen.out / f"{NAME}.json"
    before = json.loads(path.read_text())["gates"] if path.exists() else []
    gates = {(each["model"], each["defence"]): each for each in before}
    for found in learnt(chosen.models, chosen.device):
        print(found)
        gates[found["model"], found["defence"]] = found
        write(chosen.out, NAME, {"gates": [*gates.values()]})


if __name__ == "__main__":
    main()
