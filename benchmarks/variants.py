"""The search for a better DRQ: what it sees under many settings is kept once, and rules of decision are tried on that.

``python benchmarks/variants.py record cifar10-linf --first 0 --count 500 --out seen.npz`` keeps log-odds of all classes at the
input, at the explored and at the quantified points, for clean, corrupted, turned, moved and attacked images, behind several
fronts; a GPU takes two minutes. ``python benchmarks/variants.py try seen.npz --out results/paper/tried.json`` asks every rule,
prints the best, and keeps all: what was tried, and what it gave. Rules are chosen on the images below 5000 and ``cifar10-linf``
alone; ``drq reproduce improve`` reports on others.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import drq
from drq import threats
from drq.models import trained
from drq.threats.corruptions.constants import KINDS

Array = NDArray[np.floating[Any]]
PAPER = "linf 16/255, 20 + 20 steps"


class Looking(NamedTuple):
    """How DRQ looks around an image."""

    norm: str
    radius: float
    explore: drq.Search
    quantify: drq.Search
    alpha: float = 0.5
    fronts: tuple[str, ...] = ("none",)


def steps(norm: str, radius: float, explore: int, quantify: int, alpha: float = 0.5, *fronts: str) -> Looking:
    """With the searches of the paper, of so many steps; behind no front unless some are named."""
    return Looking(norm, radius, drq.Gradient(explore), drq.Gradient(quantify), alpha, fronts or ("none",))


NOISY = drq.Gradient(5, smooth=drq.Noise(4))
LOOKS = {
    PAPER: steps("linf", 16 / 255, 20, 20, 0.5, "none", "restored"),
    "l2 1, 20 + 20 steps": steps("l2", 1.0, 20, 20, 0.5, "none", "restored"),
    "linf 16/255, 5 + 5 steps": steps("linf", 16 / 255, 5, 5),
    "linf 16/255, 20 + 1 steps": steps("linf", 16 / 255, 20, 1),
    "linf 16/255, 1 + 20 steps": steps("linf", 16 / 255, 1, 20),
    "linf 16/255, 1 + 1 steps": steps("linf", 16 / 255, 1, 1, 0.5, "none", "restored", "denoised"),
    "linf 8/255, 1 + 1 steps": steps("linf", 8 / 255, 1, 1, 0.5, "none", "restored"),
    "linf 4/255, 1 + 1 steps": steps("linf", 4 / 255, 1, 1, 0.5, "none", "restored"),
    "linf 24/255, 1 + 1 steps": steps("linf", 24 / 255, 1, 1),
    "linf 16/255, 1 + 1 steps, alpha 0.25": steps("linf", 16 / 255, 1, 1, 0.25),
    "linf 16/255, 1 + 1 steps, alpha 0.75": steps("linf", 16 / 255, 1, 1, 0.75),
    "linf 16/255, 1 + 1 steps, alpha 1": steps("linf", 16 / 255, 1, 1, 1.0, "none", "restored"),
    "l2 1, 1 + 1 steps": steps("l2", 1.0, 1, 1, 0.5, "none", "restored", "mirrored"),
    "l2 0.5, 1 + 1 steps": steps("l2", 0.5, 1, 1, 0.5, "none", "restored"),
    "l2 1, 1 + 1 steps, alpha 1": steps("l2", 1.0, 1, 1, 1.0, "none", "restored"),
    "linf 16/255, exploration in noise": Looking("linf", 16 / 255, NOISY, drq.Gradient(5)),
    "linf 16/255, 20 random points quantify": Looking("linf", 16 / 255, drq.Gradient(1), drq.Random(20)),
}
FEATURES = {
    "behind stage 3": (4, 0.05),
    "behind stage 2": (3, 0.05),
}  # of PreActResNet, radius by the features' length
SHIFTS = [*KINDS, "rotation", "translation"]
WEIGHTS = (0.25, 0.5, 1.0, 2.0, 4.0)  # of the log-odds at the input, beside those of a search


def conditions(model: nn.Module, index: Tensor, device: str) -> Iterator[tuple[str, Tensor, Tensor]]:
    """The images as they are, and under every shift; with their labels."""
    x, y = (each.to(device) for each in drq.load_data("cifar10").batch(index.tolist()))
    yield "clean", x, y
    for kind in KINDS:
        yield kind, drq.load_data(f"cifar10-c/{kind}/5").batch(index.tolist())[0].to(device), y
    yield "rotation", threats.Rotation(20)(model, x, y, index=index), y
    yield "translation", threats.Translation()(model, x, y, index=index), y
    yield "PGD", threats.PGD("linf", 8 / 255, steps=100)(model, x, y, index=index), y


def fronts(device: str) -> dict[str, Callable[[Tensor], Tensor]]:
    """What stands between an image and the search, by name."""
    denoiser, restore = trained.denoiser().to(device), drq.Restoration()
    return {
        "none": lambda x: x,
        "restored": restore,
        "denoised": lambda x: denoiser(x).clamp(0, 1),
        "mirrored": lambda x: restore(x).flip(-1),
        "mirrored only": lambda x: x.flip(-1),
        "stretched": drq.Restoration(None),
    }


class Seen(NamedTuple):
    """Log-odds (N, C) under one look."""

    base: Tensor
    explored: Tensor
    quantified: Tensor
    passes: float


def seen(robust: drq.DRQ, x: Tensor) -> Seen:
    """What a DRQ sees of every class."""
    found = robust.decide(x)
    return Seen(found.base_log_odds, found.explored_log_odds, found.log_odds, float(found.passes.double().mean()))


def in_features(model: Any, cut: int, share: float, x: Tensor) -> Seen:
    """The same in the features behind so many stages of a PreActResNet, around which nothing is bounded."""
    network = model.model
    stages = [network.conv1, network.layer1, network.layer2, network.layer3, network.layer4]
    trunk, tail = nn.Sequential(*stages[:cut]), Tail(nn.Sequential(*stages[cut:]), network).eval()
    with torch.no_grad():
        features = trunk((x - model.mean) / model.std)
    radius = share * features.flatten(1).norm(dim=1)
    return seen(
        drq.DRQ(tail, "l2", radius, explore=drq.Gradient(5), quantify=drq.Gradient(5), bounds=None, prune="none"), features
    )


class Tail(nn.Module):
    """The last stages of a PreActResNet and its logits."""

    def __init__(self, stages: nn.Module, network: Any) -> None:
        super().__init__()
        self.stages, self.network = stages, network

    def forward(self, x: Tensor) -> Tensor:
        """The logits (N, C) of features."""
        x = self.stages(x)
        logits: Tensor = self.network.linear(self.network.bn(x).relu().mean((2, 3)))
        return logits


def record(name: str, first: int, count: int, out: Path, device: str) -> None:
    """Keep what every look shows, (conditions, looks, base or explored or quantified, images, classes)."""
    model = drq.load_model(name).to(device).eval()
    quick: dict[str, Any] = {"precision": "float16", "compile": True} if device == "cuda" else {"precision": "bfloat16"}
    robust = drq.DRQ(model, "linf", 16 / 255, prune="none", **quick)
    doors = fronts(device)
    looks: dict[str, Callable[[Tensor], Seen]] = {}
    for title, (norm, radius, explore, quantify, alpha, behind) in LOOKS.items():
        for front in behind:
            each = robust.variant(norm=norm, radius=radius, alpha=alpha, explore=explore, quantify=quantify, front=doors[front])
            looks[f"{front}: {title}"] = partial(seen, each)
    looks |= {f"{front}: alone": partial(alone, robust, door) for front, door in doors.items()}
    looks |= {f"none: {title}": partial(in_features, model, *FEATURES[title]) for title in FEATURES}
    kept, passes, titles, labels = [], np.zeros(len(looks)), [], np.zeros(0)
    for title, x, y in conditions(model, torch.arange(first, first + count), device):
        found = [look(x) for look in looks.values()]
        table = torch.stack([torch.stack(each[:3]) for each in found]).clamp(-60000, 60000)
        kept.append(table.cpu().numpy().astype(np.float16))
        passes += [each.passes for each in found]
        titles.append(title)
        labels = y.cpu().numpy()
        right = [float((each.quantified.argmax(1) == y).double().mean()) for each in found]
        print(f"{title}: {float((found[0].base.argmax(1) == y).double().mean()):.3f} -> {right[0]:.3f}", flush=True)
    about: dict[str, Any] = {"model": name, "first": first, "looks": [*looks], "passes": passes / len(titles)}
    np.savez_compressed(out, log_odds=np.stack(kept), labels=labels, conditions=titles, **about)


def alone(robust: drq.DRQ, front: Callable[[Tensor], Tensor], x: Tensor) -> Seen:
    """The model itself behind a front, which explores nothing."""
    with torch.no_grad():
        odds = drq.log_odds(robust.classifier(front(x)))
    return Seen(odds, odds, odds, 1.0)


class Rule(NamedTuple):
    """A way to decide."""

    idea: str  # the kind of change
    title: str
    scores: Array  # (conditions, images, classes)
    passes: float


class Kept:
    """What was recorded, by the name of a look."""

    def __init__(self, path: Path) -> None:
        with np.load(path) as file:
            self.odds = file["log_odds"].astype(np.float32)
            self.labels, self.conditions = file["labels"], file["conditions"].tolist()
            self.looks, self.passes = file["looks"].tolist(), file["passes"]
            self.model, self.first = str(file["model"]), int(file["first"])

    def __getitem__(self, look: str) -> tuple[Array, Array, Array]:
        """(conditions, images, classes) log-odds at the input, explored and quantified."""
        base, explored, quantified = self.odds[:, self.looks.index(look)].swapaxes(0, 1)
        return base, explored, quantified

    def cost(self, *looks: str) -> float:
        """Passes of all these."""
        return float(sum(self.passes[self.looks.index(look)] for look in looks))


def probability(odds: Array) -> Array:
    """Log-odds as probabilities, without overflow."""
    return np.exp(-np.logaddexp(0, -odds))


def rules(kept: Kept) -> Iterator[Rule]:
    """Everything that is tried."""
    for look in kept.looks:
        base, explored, quantified = kept[look]
        front, title = look.split(": ", 1)
        if title == "alone":
            yield Rule("the model behind a front", front, base, 1)
            continue
        yield Rule("settings" if front == "none" else "a front before DRQ", look, quantified, kept.cost(look))
        yield Rule("exploration without quantification", look, explored, kept.cost(look) / 2)
        estimate = explored - 0.5 * (explored - base)  # were the model linear, it would fall by alpha of what it rose
        yield Rule("quantification by a first-order estimate", look, estimate, kept.cost(look) / 2)
        for weight in WEIGHTS:
            yield Rule(
                "with the log-odds at the input",
                f"{look}, and {weight:g} times those",
                quantified + weight * base,
                kept.cost(look),
            )
        normal = (quantified - np.median(quantified, (0, 1))) / quantified.std((0, 1)).clip(1e-3)
        yield Rule("scores normalised per class", look, normal, kept.cost(look))
    yield from _together(kept)


def _together(kept: Kept) -> Iterator[Rule]:
    """Rules that need several looks."""
    for front in ("none", "restored"):
        both = [f"{front}: l2 1, 1 + 1 steps", f"{front}: linf 16/255, 1 + 1 steps"]
        radii = [f"{front}: linf {radius}/255, 1 + 1 steps" for radius in (4, 8, 16)]
        for idea, looks in (("agreement across norms", both), ("several radii at once", radii)):
            scores = [kept[look][2] for look in looks]
            yield Rule(idea, f"{front}: mean", np.mean(scores, 0), kept.cost(*looks))
            yield Rule(idea, f"{front}: lowest", np.min(scores, 0), kept.cost(*looks))
        small, large = (kept[f"{front}: linf {radius}/255, 1 + 1 steps"][2] for radius in (4, 16))
        base = kept[f"{front}: alone"][0]
        second, best = np.sort(base, 2)[..., -2:].transpose(2, 0, 1)
        for gap in (1.0, 2.0, 4.0):
            unsure = (best - second < gap)[..., None]
            cost = kept.cost(radii[0], radii[2]) / 2
            yield Rule(
                "radius per sample",
                f"{front}: 16/255 where two classes are within {gap:g}, else 4/255",
                np.where(unsure, large, small),
                cost,
            )
    sides = ("restored", "mirrored")
    views = [probability(kept[f"{front}: alone"][0]) for front in ("none", "restored", "mirrored", "mirrored only", "stretched")]
    yield Rule("views that vote", "as it is and mirrored", views[0] + views[3], 2)
    yield Rule("views that vote", "restored, and mirrored", views[1] + views[2], 2)
    yield Rule("views that vote", "restored, mirrored, stretched", views[1] + views[2] + views[4], 3)
    yield Rule("views that vote", "as it is, restored, stretched, mirrored", sum(views[:3], views[4]), 4)
    looks = [f"{side}: l2 1, 1 + 1 steps" for side in sides]
    seen_of = [kept[look] for look in looks]
    for weight in (0.0, *WEIGHTS):
        total = np.sum([quantified + weight * base for base, _, quantified in seen_of], 0)
        title = f"restored and mirrored, l2 1, 1 + 1 steps, and {weight:g} times the input"
        yield Rule("views and DRQ", title, total, kept.cost(*looks))


def attempt(path: Path, most: int, out: Path | None) -> None:
    """Print the rules that are right most often over all shifts but attacks, beside the paper's; keep all."""
    kept = Kept(path)
    shown = {"clean": ["clean"], "corrupted": [*KINDS], "turned": ["rotation"], "moved": ["translation"], "PGD": ["PGD"]}
    shifts = [kept.conditions.index(each) for each in SHIFTS]
    paper = 100 * (kept[f"none: {PAPER}"][2].argmax(2) == kept.labels)
    rows: list[dict[str, Any]] = []
    for rule in rules(kept):
        right = 100 * (rule.scores.argmax(2) == kept.labels)
        gain = (right - paper)[shifts].mean(0)
        half = 1.96 * float(gain.std(ddof=1)) / len(gain) ** 0.5
        row: dict[str, Any] = {"idea": rule.idea, "rule": rule.title, "passes": round(rule.passes, 1)}
        row |= {"shifts": right[shifts].mean(), "gain": gain.mean(), "low": gain.mean() - half, "high": gain.mean() + half}
        row |= {key: right[[kept.conditions.index(each) for each in names]].mean() for key, names in shown.items()}
        rows.append({key: round(float(each), 3) if not isinstance(each, str) else each for key, each in row.items()})
    rows.sort(key=lambda row: -row["shifts"])
    for row in rows[:most]:
        values = "  ".join(f"{key} {row[key]:5.1f}" for key in shown)
        gained = f"{row['shifts']:6.2f} ({row['low']:+.2f} to {row['high']:+.2f})"
        print(f"{gained}  {values}  {row['passes']:6.1f} passes  {row['idea']}: {row['rule']}")
    if out is not None:
        about = {"model": kept.model, "first": kept.first, "images": len(kept.labels), "rules": rows}
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(about, indent=0) + "\n", encoding="utf-8")


def main() -> None:
    """Record, or try."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    recorder = parts.add_parser("record")
    recorder.add_argument("model")
    recorder.add_argument("--first", type=int, default=0)
    recorder.add_argument("--count", type=int, default=500)
    recorder.add_argument("--out", type=Path, required=True)
    trier = parts.add_parser("try")
    trier.add_argument("file", type=Path)
    trier.add_argument("--most", type=int, default=25, help="rules that are printed")
    trier.add_argument("--out", type=Path, help="where all are kept")
    given = parser.parse_args()
    if given.part == "try":
        attempt(given.file, given.most, given.out)
    else:
        record(given.model, given.first, given.count, given.out, "cuda" if torch.cuda.is_available() else "cpu")


if __name__ == "__main__":
    main()
