"""Measure how far float16 searches move log-odds, and which samples must be searched again; writes results/near-ties.json.

DRQ decides in float16 without searching near ties again, and in float32 with TF32 off, on clean, corrupted and attacked images.
Distances are in rounding errors of float16 of the largest logit, the unit of ``drq.method.execution.MOVED``. A GPU.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import drq
from drq.bench.inputs import THREATS, load_inputs
from drq.bench.timing import tf32_convolutions
from drq.method import execution
from drq.report.typesetting import text_table
from tools.benchmarks.assets import arguments, write

BOUNDS = (0, 4, 8, 12, 16, 20, 24, 32)
QUANTILES = (0.5, 0.9, 0.99, 0.999)


def compared(half: drq.Decision, full: drq.Decision, unit: Tensor) -> dict[str, Any]:
    """Return how far log-odds move, and what remains for each bound below which samples are searched again."""
    known = half.exact & full.exact & half.reached & full.reached
    moved = ((half.log_odds - full.log_odds).abs() / unit[:, None])[known]
    first, second = torch.where(half.exact & half.reached, half.log_odds, -torch.inf).topk(2).values.unbind(1)
    gap, wrong = (first - second) / unit, half.label != full.label
    rows = [
        {
            "bound": bound,
            "again": float((gap <= bound).double().mean()),
            "equal": float((~(wrong & (gap > bound))).double().mean()),
        }
        for bound in BOUNDS
    ]
    return {"moved": {str(share): float(moved.quantile(share)) for share in QUANTILES}, "bounds": rows}


def table(record: dict[str, Any]) -> str:
    """Return the table with a row for each bound: how many samples are searched again, and how many labels are then equal."""
    found = record["found"]
    threats = [threat for threat in THREATS if threat in found]
    rows = []
    for place, bound in enumerate(BOUNDS):
        row = [str(bound)]
        for key in ("again", "equal"):
            row.append(" / ".join(f"{100 * found[threat]['bounds'][place][key]:.2f}" for threat in threats))
        rows.append(row)
    cases = ", ".join(threats)
    return text_table(["bound", f"searched again, %: {cases}", f"equal labels, %: {cases}"], rows)


def main() -> None:
    parser = arguments(__doc__, images=1024)
    parser.add_argument("--model", default="cifar10-linf")
    chosen = parser.parse_args()
    inputs = load_inputs(chosen.model, chosen.images, chosen.device, print)
    execution.MOVED = dict.fromkeys(execution.MOVED, 0)
    half = drq.DRQ(inputs.model, inputs.norm, inputs.radius, precision="float16", compile=True)
    full = drq.DRQ(inputs.model, inputs.norm, inputs.radius)
    record: dict[str, Any] = {"model": chosen.model, "images": chosen.images, "found": {}}
    for threat in THREATS:
        x = inputs.under(threat, chosen.images)
        with tf32_convolutions(False), torch.no_grad():
            unit = torch.finfo(torch.float16).eps * inputs.model(x).abs().amax(1)
            record["found"][threat] = compared(half.decide(x), full.decide(x), unit)
        write(chosen.out, "near-ties", record)
    print(table(record))


if __name__ == "__main__":
    main()
