"""Learn the gates of models by name from unlabelled inputs, and count how often answers change on inputs that no gate has seen.

``python -m tools.gates`` writes drq/models/gates.json, which the package ships. Gates that are there already, for the same
weights, views and inputs, stay as they are, so that it goes on where it stopped; models that are not here are left out.
``python -m tools.gates --held-out`` writes results/view-gates.json in the same way, and prints it as a table.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import drq
from drq.errors import MissingError
from drq.method.adapters import Wrapper
from drq.models import gates
from drq.presets import named
from drq.report.statistics import wilson
from drq.report.typesetting import text_table
from drq.system.files import atomic_write
from drq.views import Gate
from tools import ROOT

RECORD = ROOT / "results" / "view-gates.json"
PRESETS = ("shift", "nature", "upright")
HEADS = ("model", "preset", "learnt from", "changed there", "bound for new inputs", "held-out inputs", "changed there", "within")


class Inputs(NamedTuple):
    """Inputs of a data set, one after the other."""

    data: str
    first: int
    count: int

    def read(self, model: nn.Module) -> Tensor:
        """As the model takes them."""
        x: Tensor = drq.load_data(self.data, view=model.card.view).batch(range(self.first, self.first + self.count))[0]
        return x

    def __str__(self) -> str:
        return f"{self.data}, {self.first} to {self.first + self.count - 1}"


SMALL, LARGE = Inputs("cifar10", 3000, 1000), Inputs("cifar10", 3000, 500)  # large networks take their time
DIGITS, PHOTOGRAPHS = Inputs("mnist", 3000, 1000), Inputs("nips2017", 0, 200)
LEARNT = {
    **{f"published:{name}": SMALL for name in ("resnet2b", "resnet4b", "cnn-a-mix", "cnn-a-adv4")},
    **{f"published:{name}": DIGITS for name in ("lenet5-advtrained", "lenet5-clntrained", "convex-mnist")},
    **dict.fromkeys(("cifar10-tiny", "published:resnet20", "cifar10-small"), SMALL),
    **dict.fromkeys(("cifar10-linf", "cifar10-augment"), LARGE),
    **dict.fromkeys(("imagenet-lite0", "imagenet-lite1", "imagenet-lite2"), PHOTOGRAPHS),
    **dict.fromkeys(("cifar10-l2", "published:resnet56"), LARGE),
}
HELD_OUT = {
    **dict.fromkeys(("published:resnet4b", "cifar10-tiny", "published:resnet20", "cifar10-small"), Inputs("cifar10", 5000, 1000)),
    **dict.fromkeys(("cifar10-linf", "cifar10-augment"), Inputs("cifar10", 5000, 1000)),
    "imagenet-lite0": Inputs("nips2017", 200, 200),
}


class Remembering(Wrapper):
    """A model that answers about every input once: presets have views in common."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.card = model.card
        self.seen: dict[bytes, Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        keys = [hashlib.blake2b(each.numpy().tobytes(), digest_size=16).digest() for each in x.contiguous()]
        new = [place for place, key in enumerate(keys) if key not in self.seen]
        if new:
            self.seen |= dict(zip((keys[each] for each in new), self.model(x[new]), strict=True))
        return torch.stack([self.seen[key] for key in keys])


def views_of(model: nn.Module, preset: str) -> str:
    """Return the views of a preset for pictures of the model's size."""
    return str(drq.DRQ(model, **drq.preset(preset)).views)


def learn(model: nn.Module, preset: str, inputs: Inputs) -> dict[str, Any]:
    """Return the gate for the views of a preset as gates.json has it."""
    changes, views = named(preset).changes, views_of(model, preset)
    gate = drq.DRQ(model, views=views).gated(inputs.read(model), changes).gate
    assert gate is not None
    about = {"preset": preset, "views": views, "changes": changes, "data": inputs.data, "first": inputs.first}
    return about | {"gate": finite(gate)}


def finite(gate: Gate) -> dict[str, Any]:
    """Return the numbers of a gate that JSON can hold; gates.OPEN has the others."""
    return {name: value for name, value in gate.record.items() if isinstance(value, list) or math.isfinite(value)}


def learnt(name: str, inputs: Inputs, before: dict[str, Any]) -> dict[str, Any]:
    """Return the gates of a model, those of before where they are still what would be learnt."""
    model = drq.load_model(name)
    weights = {"sha256": model.card.sha256, "contents": gates.checksum(model)}
    there = before.get("learnt", []) if weights.items() <= before.items() else []
    remembering, found = Remembering(model), []
    for preset in PRESETS:
        wanted = {"preset": preset, "views": views_of(model, preset), "changes": named(preset).changes, **inputs._asdict()}
        same = (each for each in there if {**each, "count": each["gate"]["inputs"]}.items() >= wanted.items())
        found.append(next(same, None) or learn(remembering, preset, inputs))
        print(f"{name}, {preset}: {Gate.read(gates.OPEN | found[-1]['gate'])}", flush=True)
    return weights | {"learnt": found}


def learn_all(path: Path) -> None:
    """Write the gates of all models that are on this machine; those of others stay as they are."""
    for name, inputs in LEARNT.items():
        known = json.loads(path.read_text()) if path.is_file() else {}
        try:
            known[name] = learnt(name, inputs, known.get(name, {}))
        except MissingError as error:
            print(f"left out: {error}")
            continue
        write(path, {each: known[each] for each in LEARNT if each in known})


def counted(name: str, inputs: Inputs, before: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield for each preset how many answers change on inputs that its gate has not seen."""
    model, x = drq.load_model(name), None
    remembering = Remembering(model)
    for preset in PRESETS:
        robust = drq.DRQ(model, **drq.preset(preset))
        if robust.gate is None:
            raise SystemExit(f"{name} has no gate for {preset}: run python -m tools.gates first")
        learnt_from = next(each for each in gates.known()[name].learnt if each.preset == preset)
        told = {"model": name, "preset": preset, "gate": finite(robust.gate), "bound": robust.gate.bound} | {
            "learnt": str(Inputs(learnt_from.data, learnt_from.first, robust.gate.inputs)),
            "held_out": str(inputs),
        }
        same = next((each for each in before if told.items() <= each.items()), None)
        if same is None:
            x = inputs.read(model) if x is None else x
            decision = drq.DRQ(remembering, views=str(robust.views), gate=robust.gate).decide(x)
            same = told | {"inputs": len(x), "changed": int((decision.label != decision.base_label).sum())}
        low, high = (float(each) / 100 for each in wilson(same["changed"], same["inputs"]))
        yield same | {"low": low, "high": high}


def count_all(path: Path) -> list[dict[str, Any]]:
    """Write for all models how many answers change."""
    rows = json.loads(path.read_text())["found"] if path.is_file() else []
    for name, inputs in HELD_OUT.items():
        try:
            new = list(counted(name, inputs, rows))
        except MissingError as error:
            print(f"left out: {error}")
            continue
        rows = sorted([*(each for each in rows if each["model"] != name), *new], key=lambda row: [*HELD_OUT].index(row["model"]))
        write(path, {"machine": "CPU", "torch": torch.__version__, "found": rows})
    return rows


def write(path: Path, record: object) -> None:
    """Write a record in one piece."""
    with atomic_write(path) as file:
        file.write(json.dumps(record, indent=1, allow_nan=False).encode() + b"\n")


def table(rows: list[dict[str, Any]]) -> str:
    """Return how often answers change beside how often they were said to, at most."""
    return text_table(HEADS, map(_row, rows))


def _row(row: dict[str, Any]) -> list[str]:
    gate, share = Gate.read(gates.OPEN | row["gate"]), row["changed"] / row["inputs"]
    found = f"{share:.1%} [{100 * row['low']:.1f}, {100 * row['high']:.1f}]"
    within = "yes" if share <= gate.bound else "above, as chance allows" if row["low"] <= gate.bound else "no"
    return [
        *(row["model"], row["preset"], row["learnt"], f"{gate.changed / gate.inputs:.1%}", f"{gate.bound:.1%}"),
        *(row["held_out"], found, within),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--held-out", action="store_true", help="count changed answers on inputs that no gate was learnt from")
    parser.add_argument("--gates", type=Path, default=gates.FILE, help="the file that gates are written to")
    parser.add_argument("--record", type=Path, default=RECORD, help="the file that counts are written to")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    if chosen.held_out:
        print(table(count_all(chosen.record)))
    else:
        learn_all(chosen.gates)


if __name__ == "__main__":
    main()
