"""Measure views of sound, tables and text, beside the mean over the same views; writes results/other-views.json.

Every kind of input is shifted in a few ways, each with views that might undo it. One half of the test inputs chooses: the shift
with the largest lower end of what DRQ gains over the model alone. The other half is reported. Gates are learnt from further clean
inputs. What is tried was settled after a look at more shifts, of other sounds and sentences and of the same tables
divided otherwise.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import drq
from drq.report.statistics import paired, wilson
from drq.report.typesetting import text_table
from tools.benchmarks.assets import arguments, write
from tools.benchmarks.other_inputs import KINDS, Kind, Trial

CHANGES = 0.05
RULES = ("drq", "no gate", "mean")


def answers(robust: drq.DRQ, x: Tensor) -> dict[str, Tensor]:
    """Return the labels of the model alone, of DRQ behind its gate and without, and of the mean of probabilities."""
    with torch.no_grad():
        mean = torch.stack([robust.model(view.inside(x, robust.bounds)).softmax(1) for view in robust.views]).mean(0)
    gated = robust.decide(x)
    ungated = robust.variant(gate=None).decide(x)
    return {"alone": gated.base_label, "drq": gated.label, "no gate": ungated.label, "mean": mean.argmax(1)}


def counted(found: dict[str, Tensor], y: Tensor) -> dict[str, Any]:
    """Return how many answers are right, and what each rule repairs and spoils."""
    right = {name: labels == y for name, labels in found.items()}
    pairs = [(rule, "alone") for rule in RULES] + [("drq", "mean")]
    return {
        "inputs": len(y),
        "right": {name: int(each.sum()) for name, each in right.items()},
        "against": {
            f"{rule} against {other}": [int((right[rule] & ~right[other]).sum()), int((right[other] & ~right[rule]).sum())]
            for rule, other in pairs
        },
    }


def measured(kind: Kind, trial: Trial) -> dict[str, Any]:
    """Return counts on both halves of clean and of shifted inputs."""
    robust = drq.DRQ(kind.model, views=trial.views, bounds=kind.bounds).gated(kind.clean, changes=CHANGES)
    found: dict[str, Any] = {
        **{"kind": kind.name, "shift": trial.shift, "views": trial.title, "passes": len(trial.views)},
        "gate": [robust.gate.changed, robust.gate.inputs],
    }
    for name, x in {"clean": kind.x, "shifted": trial.happens(kind.x)}.items():
        labels, middle = answers(robust, x), len(x) // 2
        for half, rows in {"choosing": slice(None, middle), "reported": slice(middle, None)}.items():
            found.setdefault(half, {})[name] = counted({each: label[rows] for each, label in labels.items()}, kind.y[rows])
    return found


def gained(cell: dict[str, Any], pair: str = "drq against alone") -> tuple[float, float, float]:
    """Return a difference in points and its interval."""
    found = paired(*cell["against"][pair], cell["inputs"])
    return float(found.difference), float(found.low), float(found.high)


def choose(rows: list[dict[str, Any]]) -> None:
    """Mark the row of every kind that the choosing half prefers."""
    for kind in {row["kind"] for row in rows}:
        of_kind = [row for row in rows if row["kind"] == kind]
        best = max(of_kind, key=lambda row: gained(row["choosing"]["shifted"])[1])
        for row in of_kind:
            row["chosen"] = row is best


def alone(cell: dict[str, Any]) -> str:
    """Return the accuracy of the model alone with its interval."""
    low, high = wilson(cell["right"]["alone"], cell["inputs"])
    return f"{100 * cell['right']['alone'] / cell['inputs']:.1f} [{float(low):.1f}, {float(high):.1f}]"


def beside(cell: dict[str, Any], rule: str) -> str:
    """Return the accuracy of a rule, and what it adds to the model alone with its interval."""
    return f"{100 * cell['right'][rule] / cell['inputs']:.1f} ({points(cell, f'{rule} against alone')})"


def points(cell: dict[str, Any], pair: str) -> str:
    """Return a difference in points with its interval."""
    difference, low, high = (round(each, 1) + 0.0 for each in gained(cell, pair))
    return f"{difference:+.1f} [{low:+.1f}, {high:+.1f}]"


def table(record: dict[str, Any]) -> str:
    """Return what was chosen, counted on the half that did not choose."""
    rows = []
    for row in record["found"]:
        for name, cell in row["reported"].items() if row["chosen"] else ():
            what = [row["kind"], row["shift"] if name == "shifted" else name, row["views"], row["passes"], alone(cell)]
            rows.append([*what, *(beside(cell, rule) for rule in RULES), points(cell, "drq against mean"), cell["inputs"]])
    heads = ["kind", "inputs", "views", "passes", "model alone", "DRQ", "DRQ, no gate", "mean", "DRQ over mean", "count"]
    return text_table(heads, rows)


def tried(record: dict[str, Any]) -> str:
    """Return all else that was tried, counted on the half that chose."""
    rows = []
    for row in record["found"]:
        if not row["chosen"]:
            clean, shifted = row["choosing"]["clean"], row["choosing"]["shifted"]
            found = [beside(shifted, "drq"), beside(shifted, "mean"), beside(clean, "drq"), beside(clean, "mean")]
            rows.append([row["kind"], row["shift"], row["views"], alone(shifted), *found, clean["inputs"]])
    heads = ["kind", "shift", "views", "model alone", "DRQ", "mean", "DRQ, clean", "mean, clean", "count"]
    return text_table(heads, rows)


def main() -> None:
    """Measure, choose, print and write."""
    chosen = arguments(__doc__).parse_args()
    torch.set_num_threads(1)
    rows = []
    for make in KINDS:
        torch.manual_seed(0)
        kind = make()
        rows += [measured(kind, trial) for trial in kind.trials]
    choose(rows)
    record = {"changes": CHANGES, "found": rows}
    print(table(record), tried(record), sep="\n\n")
    write(chosen.out, "other-views", record)


if __name__ == "__main__":
    main()
