"""Write the tables inside pages, between ``<!-- name -->`` and ``<!-- end -->``, from the records in results/.

A test fails where a page does not match its records.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from drq.bench import summary
from drq.evaluation.records import COLUMNS
from drq.report.typesetting import text_table
from drq.reproduction import overview
from drq.reproduction.cells import our_cells
from drq.reproduction.kept_records import read_record
from tools import ROOT
from tools.pages import views

PAGES = [
    "README.md",
    "docs/limits.md",
    "docs/threats.md",
    "docs/models.md",
    "docs/cifar10-small.md",
    "docs/scale.md",
    "docs/evaluate.md",
    "docs/speed.md",
    "docs/views.md",
]


def record(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((ROOT / "results" / f"{name}.json").read_text())
    return loaded


def attacks() -> str:
    """Return robust accuracies under our Auto-PGD and the reference's, by norm and loss."""
    losses = {"ce": "cross-entropy", "dlr": "DLR", "dlr_targeted": "targeted DLR, 9 classes"}
    rows = [
        [
            row["norm"],
            losses[row["loss"]],
            f"{row['ours']:.1f}",
            " / ".join(f"{each:.1f}" for each in row["reference"]),
        ]
        for row in record("attacks")["accuracy"]
    ]
    return text_table(["norm", "loss", "ours", "pyautoattack, three seeds"], rows)


def pass_rates() -> str:
    """Return the table of how many passes a second one GPU makes."""
    rows = [
        [
            name,
            f"{each['passes_per_second']:,.0f}",
            f"{each['most_passes']}",
            f"{each['most_passes'] / each['passes_per_second']:.2f} s",
        ]
        for name, each in record("scale")["measured"].items()
    ]
    return text_table(["network and defence", "passes in a second", "passes an image, at most", "an image, at most"], rows)


GPUS = (1, 8, 64)
# For the three models in docs/scale.md: image size, and the defence whose cost stands for each of the two DRQs.
IMAGENET = {
    "Wong2020Fast": (288, "DRQ linf 8/255"),
    "Hendrycks2020Many": (224, "DRQ l2 calibrated"),
    "ResNet-50": (224, "DRQ l2 calibrated"),
}
SIZES = {
    "1000 images of each corruption, as in the paper": 1000,
    "all 50,000 images": 50_000,
    "all five severities of them": 250_000,
}


def imagenet_c() -> str:
    """Return hours for 3 models, 15 corruptions and DRQ in two norms, with one shard at a time on every GPU."""
    scale, size = record("scale"), record("scale")["shard"]
    rows = []
    for title, images in SIZES.items():
        shards = 15 * images // size
        hours = []
        for gpus in GPUS:
            seconds = 0.0
            for pixels, defence in IMAGENET.values():
                rate = scale["measured"][f"ResNet-50 at {pixels} pixels, {defence}"]
                seconds += 2 * -(-shards // gpus) * size * rate["most_passes"] / rate["passes_per_second"]
            hours.append(f"{seconds / 3600:,.1f} h")
        rows.append([title, f"{3 * 15 * images:,}", *hours])
    return text_table(["", "answers in each norm", *(f"{gpus} GPU{'s' if gpus > 1 else ''}" for gpus in GPUS)], rows)


def columns() -> str:
    """Return the table of the columns of records."""
    return text_table(["column", "what it holds"], [[f"`{name}`", column.meaning] for name, column in COLUMNS.items()])


def red_team() -> str:
    """Return static beside defended worst cases on CIFAR-10: of DRQ, and of peers whose gains are known to vanish."""
    team = overview.concatenated(read_record(ROOT / "results" / "paper", name) for name in overview.RED_TEAM)
    if team is None:
        return "Not measured yet: `drq reproduce redteam`."
    selected = team["defence"].str.contains("^DRQ|^standard$|^Anti-Adversary$|^Hedge$") & (team["data"] == "cifar10")
    return overview.verdict_table(team.filter(selected))


def defences() -> str:
    """Return one row for each kind of defence: accuracy, accuracy under attack, and cost."""
    folder = ROOT / "results" / "paper"
    experiments = overview.PEERS, overview.RED_TEAM
    peers, team = (overview.concatenated(read_record(folder, name) for name in names) for names in experiments)
    return "Not measured yet: `drq reproduce peers`." if peers is None else overview.summary(peers, team)


def spatial() -> str:
    """Return our accuracies beside the paper's for each way to read its spatial shifts; intermediate sizes are left out."""
    rows: dict[tuple[str, str], dict[str, str]] = {}
    stand_ins: dict[str, str] = {}
    for each in record("spatial")["readings"]:
        setting = each["setting"] or {"grid": None, "worst_of": ""}
        number = f"grid of {setting['grid']}" if setting["grid"] else str(setting["worst_of"])
        if number in ("2", "3", "5", "10"):
            continue
        paper = " / ".join(f"{value:.1f}" for value in each["paper"].values())
        rows.setdefault((each["reading"], number), {})[each["model"]] = f"{each['accuracy']:.1f} ({paper})"
        stand_ins[each["model"]] = each["stands_for"]
    head = ["reading", "worst of", *(f"{model} ({paper})" for model, paper in stand_ins.items())]
    return text_table(head, [[*key, *(row[model] for model in stand_ins)] for key, row in rows.items()])


def accuracy() -> str:
    """Return the clean accuracy of the models that were available."""
    measured = record("accuracy")["accuracy"]
    rows = [[f"`{row['model']}`", f"`{row['data']}`", f"{row['images']:,}", f"{row['clean']:.2f}"] for row in measured]
    return text_table(["model", "data", "images", "clean"], rows)


def card() -> str:
    """Return what was measured for the model in the package."""
    measured = record("card-cifar10-small")
    corrupted = measured["corruptions"]
    count, few = f"{measured['images']:,}", f"{measured['corrupted_images']:,}"
    rows = [
        ["clean", count, f"{measured['clean']:.2f}"],
        ["AutoAttack, standard version", count, f"{measured['autoattack']:.2f}"],
        ["PGD, 100 steps", few, f"{measured['pgd_100']:.1f}"],
        [f"mean of {len(corrupted)} corruptions", f"{few} each", f"{sum(corrupted.values()) / len(corrupted):.1f}"],
        *([f"&nbsp;&nbsp;{kind}", few, f"{value:.1f}"] for kind, value in corrupted.items()),
    ]
    return text_table(["", "images", "accuracy"], rows)


GAINS = {  # columns of a table: experiments, of which the first with the cell counts, and the cell in their records
    "clean": (["table6"], {"data": "cifar10", "threat": "clean"}),
    "15 corruptions": (["table1"], {"data": "cifar10-c/*/5", "threat": "clean"}),
    "rotated once": (["table3"], {"threat": "one rotation"}),
    "moved once": (["table3"], {"threat": "one translation"}),
    "both, worst of 15 for the model": (["table3"], {"threat": "rotations"}),
    "attacks made for the model alone": (["table4", "table7"], {"threat": "worst case", "suite": "ensemble"}),
}
BEST = {  # the DRQ for each model: in the norm of its training, or calibrated
    "cifar10-linf": ("adversarial, linf 8/255", "DRQ linf"),
    "cifar10-small": ("adversarial, linf 8/255", "DRQ linf"),
    "cifar10-l2": ("adversarial, l2 0.5", "DRQ l2"),
    "cifar10-augment": ("augmentation", "DRQ l2 calibrated"),
}


def gain_cells(folder: Path = ROOT / "results" / "paper") -> dict[tuple[str, str], dict[str, Any]]:
    """Return the rows of our records with the gains of DRQ, by model and column."""
    records = {name: read_record(folder, name) for names, _ in GAINS.values() for name in names}
    cells_of = {name: our_cells(each.rows) for name, each in records.items() if each is not None}
    found = {}
    for model, (_, defence) in BEST.items():
        for column, (names, place) in GAINS.items():
            if model == "cifar10-l2" and "suite" in place:
                place = place | {"suite": "ensemble l2"}  # attacked in the norm of its training
            matching = [
                cells_of[name].filter(model=model, defence=defence, victim="base", **place) for name in names if name in cells_of
            ]
            row = next((each.row(0, named=True) for each in matching if len(each)), None)
            if row is not None:
                found[model, column] = row
    return found


def gains() -> str:
    """Return what DRQ gains and loses for each model."""
    cells, rows = gain_cells(), []
    for model, (training, defence) in BEST.items():
        shown = [gain_text(cells[model, each]) if (model, each) in cells else "not measured" for each in GAINS]
        rows.append([f"`{model}`", training, defence, *shown])
    return text_table(["model", "training", "defence", *GAINS], rows)


def gain_text(row: Mapping[str, Any]) -> str:
    """Return the accuracy without a defence, and what it adds, with its interval."""
    before = row["accuracy"] - row["difference"]
    change = f"{row['difference']:+.1f} [{row['difference_low']:+.1f}, {row['difference_high']:+.1f}]"
    return f"{before:.1f}: {change}"


BENCHES = {"gpu": "bench-gpu", "cpu_small": "bench-cpu-small", "cpu_linf": "bench-cpu-linf"}  # records of drq bench
BENCH_PARTS = ("speed", "agreement", "classes", "batch", "size", "attacks", "imagenet")


def bench(name: str, part: str) -> str:
    """Return the table of a part of a record of ``drq bench``."""
    path = ROOT / "results" / f"{name}.json"
    bench_record = record(name) if path.exists() else {}
    if not bench_record.get(part):
        return f"Not measured yet: `drq bench --parts {part} --out results/{path.name} --add`."
    table = summary.MAKERS[part](bench_record)
    return f"{table.title}; {summary.machine(bench_record)}:\n\n{text_table(table.head, table.rows)}"


def script(name: str) -> str:
    """Return the table that a benchmark script makes of its record."""
    module = importlib.import_module(f"tools.benchmarks.{name.replace('-', '_')}")
    if not (ROOT / "results" / f"{name}.json").exists():
        return f"Not measured yet: `python -m {module.__name__}`."
    text: str = module.table(record(name))
    return text


TABLES: dict[str, Callable[[], str]] = {
    "gains": gains,
    "attacks": attacks,
    "red_team": red_team,
    "defences": defences,
    "spatial": spatial,
    "accuracy": accuracy,
    "card": card,
    "pass_rates": pass_rates,
    "imagenet_c": imagenet_c,
    "columns": columns,
    **views.TABLES,
    **{
        name.replace("-", "_"): partial(script, name)
        for name in ("step-rules", "near-ties", "gpu-time", "plane-time", "view-variants")
    },
    **{f"bench_{key}_{part}": partial(bench, name, part) for key, name in BENCHES.items() for part in BENCH_PARTS},
}


def update_tables(page: str) -> str:
    """Return the text of a page with its tables made anew."""

    def table(match: re.Match[str]) -> str:
        return f"<!-- {match[1]} -->\n\n{TABLES[match[1]]()}\n\n<!-- end -->"

    return re.sub(r"<!-- (\w+) -->\n.*?<!-- end -->", table, (ROOT / page).read_text(), flags=re.DOTALL)
