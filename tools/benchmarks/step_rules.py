"""Compare step rules and early stopping for DRQ's searches at equal passes; writes results/step-rules.json.

Every rule explores and quantifies all classes with the same number of steps in both searches, on clean, corrupted and attacked
images. Its labels are held against those of the default, constant steps at 20 + 20, and of a much longer search. On a GPU all
rules see the same fast model: float16, compiled, its weights frozen. ``--quick`` is a smoke run on a CPU.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import drq
from drq import threats
from drq.norms import Ball
from drq.report.typesetting import text_table
from tools.benchmarks.assets import arguments, first_images, write
from tools.benchmarks.descent import RULES, Fast, Patience, Rule, descend

ALPHA = 0.5
CONDITIONS = ("clean", "corrupted", "attacked")


@dataclass(frozen=True)
class Plan:
    """The runs to measure: both references, every rule with every number of steps, and some with early stopping."""

    rules: tuple[str, ...] = tuple(name for name in RULES if name != "cosine momentum")
    steps: tuple[int, ...] = (3, 5, 7, 10, 15, 20, 30)
    stopped: tuple[tuple[str, int], ...] = (("constant", 20), ("constant", 30), ("auto", 20), ("auto", 30))
    patience: tuple[Patience, ...] = (Patience(2, 0.01), Patience(3, 0.01))
    default: tuple[str, int] = ("constant", 20)  # what drq.DRQ does
    long: tuple[str, int] = ("auto", 100)

    @property
    def runs(self) -> list[tuple[str, int, Patience | None]]:
        """All runs except the references."""
        pairs = [(name, steps) for name in self.rules for steps in self.steps if (name, steps) not in (self.default, self.long)]
        stopped = [each for each in self.stopped if each[0] in self.rules]
        return [(*each, None) for each in pairs] + [(*each, patience) for each in stopped for patience in self.patience]


QUICK = Plan(steps=(2,), stopped=(("constant", 3),), patience=(Patience(1, 0.1),), default=("constant", 3), long=("auto", 4))


@dataclass
class Outcome:
    """The result of a run for N images and C classes."""

    base: Tensor  # (N,) label of the plain model
    label: Tensor  # (N,) the class that stays highest
    explored: Tensor  # (N, C) log-odds, -inf where the class was not reached
    quantified: Tensor  # (N, C)
    passes: Tensor  # (N,)


def decide(model: Fast, x: Tensor, region: dict[str, Any], rule: Rule, patience: Patience | None = None) -> Outcome:
    """Run DRQ without pruning, with this rule in both searches."""
    with torch.enable_grad():
        logits = model.logits(model.leaf(x)).detach()
    base, classes = logits.argmax(1), logits.shape[1]
    owner = torch.arange(len(x), device=x.device).repeat_interleave(classes)
    label = torch.arange(classes, device=x.device).repeat(len(x))
    up = descend(model, rule, Ball(x[owner], region["radius"], region["norm"], (0, 1)), label, True, patience)
    passes = torch.ones_like(base).index_add(0, owner, up.passes)
    reached = up.value < torch.inf
    owner, label, odds = owner[reached], label[reached], -up.value[reached]
    ball = Ball(up.point[reached], ALPHA * region["radius"], region["norm"], (0, 1))
    down = descend(model, rule, ball, label, False, patience)
    explored = torch.full_like(logits, -torch.inf).index_put((owner, label), odds)
    quantified = torch.full_like(logits, -torch.inf).index_put((owner, label), torch.minimum(down.value, odds))
    tied = quantified == quantified.amax(1, keepdim=True)  # the base label wins a tie, then the lower index
    winner = torch.where(tied.gather(1, base[:, None])[:, 0], base, tied.long().argmax(1))
    return Outcome(base, winner, explored, quantified, passes.index_add(0, owner, down.passes))


def quality(found: Outcome, y: Tensor, default: Outcome, long: Outcome) -> dict[str, float]:
    """Return the numbers of a condition: means over its images or over their reached classes; shares in percent."""
    reached = found.explored > -torch.inf
    both = reached & (long.explored > -torch.inf)

    def percent(share: Tensor) -> float:
        return 100 * float(share.double().mean())

    def of(odds: Tensor, label: Tensor) -> Tensor:
        own = odds.gather(1, label[:, None])
        return own[own > -torch.inf]  # in float16 another batch can round a tie away from the base label

    numbers = {
        "passes": float(found.passes.double().mean()),
        "explored_base": float(of(found.explored, found.base).mean()),
        "explored": float(found.explored[reached].mean()),
        "explored_short": float((long.explored - found.explored)[both].mean()),  # class by class, so both reached the same
        "reached": percent(reached),
        "quantified_winner": float(of(found.quantified, found.label).mean()),
        "robustness_off": float((long.quantified.sigmoid() - found.quantified.sigmoid()).abs().mean()),
        "accuracy": percent(found.label == y),
        "agrees_default": percent(found.label == default.label),
        "agrees_long": percent(found.label == long.label),
    }
    return {name: round(value, 4) for name, value in numbers.items()}


@dataclass(frozen=True)
class Bench:
    """A model and its images, with the images of all conditions concatenated."""

    model: Fast
    region: dict[str, Any]  # norm and radius of exploration
    x: Tensor
    y: Tensor
    chunk: int  # images searched at once

    def run(self, name: str, steps: int, patience: Patience | None = None) -> tuple[list[Outcome], float]:
        """Return one outcome for each condition, and the seconds that all of them took."""
        began, rule = time.monotonic(), RULES[name](steps)
        parts = [decide(self.model, x, self.region, rule, patience) for x in torch.split(self.x, self.chunk)]
        whole = {field: torch.cat([getattr(part, field) for part in parts]).cpu() for field in Outcome.__annotations__}
        split = {field: column.chunk(len(CONDITIONS)) for field, column in whole.items()}
        outcomes = [Outcome(**{field: columns[k] for field, columns in split.items()}) for k in range(len(CONDITIONS))]
        return outcomes, time.monotonic() - began

    def rows(self, plan: Plan) -> Iterator[dict[str, Any]]:
        """Yield the record of each run."""
        self.run("constant", 1)  # compiles, so that no rule is charged for it
        default, long = (self.run(*each) for each in (plan.default, plan.long))
        truth = self.y.cpu().chunk(len(CONDITIONS))

        def row(name: str, steps: int, patience: Patience | None, found: tuple[list[Outcome], float]) -> dict[str, Any]:
            outcomes, seconds = found
            passes = sum(int(each.passes.sum()) for each in outcomes)
            head = {"rule": name, "steps": steps, "patience": None if patience is None else asdict(patience)}
            head |= {"seconds": round(seconds, 3), "passes_per_second": round(passes / seconds)}
            each = map(quality, outcomes, truth, default[0], long[0])
            return head | dict(zip(CONDITIONS, each, strict=True))

        yield row(*plan.default, None, default)
        yield row(*plan.long, None, long)
        for run in plan.runs:
            yield row(*run, self.run(*run))


def pixels(images: Any, device: str) -> Tensor:
    """8-bit pictures, channels first or last, as images in [0, 1]."""
    x = torch.from_numpy(images)
    x = x if x.shape[1] == 3 else x.permute(0, 3, 1, 2)
    return x.to(device).float() / 255


def corrupted(x: Tensor) -> Tensor:
    """All fifteen corruptions at severity 3 in turn."""
    made, kinds, places = torch.empty_like(x), threats.corruptions.KINDS, torch.arange(len(x), device=x.device)
    for kind, first in zip(kinds, range(len(x)), strict=False):  # four images have but four kinds
        index = places[first :: len(kinds)]
        made[index] = threats.Corruption(kind, severity=3)(None, x[index], None, index=index)
    return made


def bench(name: str, chosen: argparse.Namespace) -> Bench:
    """The model and its images; the attack is on the model alone, at the radius of its training."""
    model = drq.load_model(name).to(chosen.device)
    card: Any = model.card  # nn.Module hides its type
    if chosen.images_file is None:
        x, y = first_images(chosen.images, chosen.device)
        shifted = corrupted(x)
    else:
        file = np.load(chosen.images_file)
        some = slice(min(chosen.images, *(len(file[each]) for each in file)))
        x, y = pixels(file["x"][some], chosen.device), torch.from_numpy(file["y"][some]).long().to(chosen.device)
        shifted = pixels(file["c"][some], chosen.device) if "c" in file else corrupted(x)
    attacked = threats.PGD(card.norm, card.radius, steps=20)(model, x, y)
    every = torch.cat([x, shifted, attacked]).contiguous(memory_format=torch.channels_last)
    return Bench(Fast(model, chosen.eager), card.explored, every, y.repeat(len(CONDITIONS)), chosen.chunk)


def table(record: dict[str, Any]) -> str:
    """By model and passes: how far exploration comes, and how often the label is that of the references."""

    def mean(row: dict[str, Any], key: str) -> float:
        return sum(float(row[case][key]) for case in CONDITIONS) / len(CONDITIONS)

    rows = []
    for name, model in record["models"].items():
        for row in sorted(model["rows"], key=lambda row: mean(row, "passes")):
            stops = f", stops after {row['patience']['looks']}" if row["patience"] else ""
            odds = [f"{mean(row, key):.2f}" for key in ("explored_base", "explored", "quantified_winner")]
            agrees = [" / ".join(f"{row[case][key]:.1f}" for case in CONDITIONS) for key in ("agrees_default", "agrees_long")]
            head = [name, row["rule"] + stops, str(row["steps"]), f"{mean(row, 'passes'):.0f}"]
            rows.append([*head, *odds, f"{mean(row, 'reached'):.1f} %", *agrees])
    agrees = [f"agrees with {record[each][0]}, {record[each][1]} steps: {', '.join(CONDITIONS)}" for each in ("default", "long")]
    head = ["model", "rule", "steps", "passes an image", "explored log-odds, base label", "reached classes", "winner keeps"]
    return text_table([*head, "reached", *agrees], rows)


def options() -> argparse.Namespace:
    parser = arguments(__doc__, images=256)
    parser.add_argument("--models", nargs="+", default=["cifar10-linf", "cifar10-l2"], help="with adversarial training")
    parser.add_argument("--rules", nargs="+", choices=RULES, default=Plan.rules)
    parser.add_argument("--steps", nargs="+", type=int, default=Plan.steps)
    parser.add_argument("--images-file", type=Path, help=".npz with 8-bit x, y and perhaps c, the corrupted x")
    parser.add_argument("--chunk", type=int, default=768, help="images searched at once, each in all classes")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="after which nothing more is begun")
    parser.add_argument("--eager", action="store_true", help="do not compile the model")
    parser.add_argument("--quick", action="store_true", help="a smoke run: few steps on 4 images with the model in the package")
    chosen = parser.parse_args()
    chosen.plan = replace(Plan(), rules=tuple(chosen.rules), steps=tuple(chosen.steps))
    if chosen.quick:
        chosen.models, chosen.images, chosen.plan = ["cifar10-small"], 4, QUICK
    return chosen


def main() -> None:
    chosen, began = options(), time.monotonic()
    plan, name = chosen.plan, "step-rules-quick" if chosen.quick else "step-rules"
    record: dict[str, Any] = {"conditions": CONDITIONS, "default": plan.default, "long": plan.long, "models": {}}
    for place, model in enumerate(chosen.models, 1):
        bed = bench(model, chosen)
        found = record["models"][model] = bed.region | {"alpha": ALPHA, "images": len(bed.y) // len(CONDITIONS), "rows": []}
        for row in bed.rows(plan):
            found["rows"].append(row)
            write(chosen.out, name, record)
            print(model, {key: value for key, value in row.items() if key not in CONDITIONS}, row["attacked"], flush=True)
            if time.monotonic() - began > chosen.seconds * place / len(chosen.models):  # each model has its share
                break
    print(table(record))


if __name__ == "__main__":
    main()
