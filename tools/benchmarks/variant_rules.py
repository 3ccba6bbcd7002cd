"""Decide by rules on recorded log-odds, and compare every rule with the paper's DRQ."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from drq.threats.corruptions.constants import KINDS
from tools.benchmarks.variant_settings import GAPS, IDEAS, LEAST, LIKELIEST, PAPER, SHIFTS, VARIANTS, WEIGHTS

Array = NDArray[np.floating[Any]]


class Rule(NamedTuple):
    """A way to decide, with its scores and its cost."""

    idea: str  # the kind of change
    title: str
    scores: Array  # (conditions, images, classes)
    passes: float


class Recorded:
    """Recorded log-odds, by the name of a variant."""

    def __init__(self, path: Path) -> None:
        with np.load(path) as file:
            self.odds = file["log_odds"].astype(np.float32)
            self.labels, self.conditions = file["labels"], file["conditions"].tolist()
            self.looks, self.passes = file["looks"].tolist(), file["passes"]
            self.model, self.first = str(file["model"]), int(file["first"])

    def __getitem__(self, look: str) -> tuple[Array, Array, Array]:
        """Return log-odds (conditions, images, classes) at the input, the explored and the quantified points."""
        base, explored, quantified = self.odds[:, self.looks.index(look)].swapaxes(0, 1)
        return base, explored, quantified

    def cost(self, *looks: str) -> float:
        """Return the passes of all these variants."""
        return float(sum(self.passes[self.looks.index(look)] for look in looks))


def probability(odds: Array) -> Array:
    """Return probabilities for log-odds, without overflow."""
    return np.exp(-np.logaddexp(0, -odds))


def rules(recorded: Recorded) -> Iterator[Rule]:
    """Yield every rule that is tried."""
    for look in recorded.looks:
        base, _, quantified = recorded[look]
        front, title = look.split(": ", 1)
        if title == "alone":
            yield Rule("the model behind a front", front, base, 1)
            continue
        yield Rule(IDEAS[title] if front == "none" else "a front before DRQ", look, quantified, recorded.cost(look))
        for weight in WEIGHTS:
            yield Rule(
                "with the log-odds at the input",
                f"{look}, and {weight:g} times those",
                quantified + weight * base,
                recorded.cost(look),
            )
        yield Rule("scores normalised per class", look, normalise(quantified), recorded.cost(look))
        for most in LIKELIEST if title in VARIANTS else ():
            among = np.where(base >= np.sort(base, 2)[..., -most, None], quantified, 2 * LEAST)
            cost = 1 + most * (VARIANTS[title].explore.passes + VARIANTS[title].quantify.passes)  # if all of them are reached
            yield Rule("the likeliest classes alone", f"{look}, {most} classes", among, min(cost, recorded.cost(look)))
    yield from _explored(recorded)
    yield from _together(recorded)


def normalise(scores: Array) -> Array:
    """Return scores less their median over their deviation, class by class, where a class was reached."""
    known = np.ma.masked_less_equal(scores, LEAST)
    middle: Array = np.ma.median(known, (0, 1)).filled(0)  # type: ignore[no-untyped-call]
    spread: Array = known.std((0, 1)).filled(1)
    result: Array = (scores - middle) / spread.clip(1e-3)
    return result


def _explored(recorded: Recorded) -> Iterator[Rule]:
    """Yield rules without quantification, once for every exploration."""
    explorations: dict[tuple[Any, ...], str] = {}
    for title, (norm, radius, explore, _, _, behind, _) in VARIANTS.items():
        for front in behind:
            explorations.setdefault((front, norm, radius, explore), f"{front}: {title}")
    for (_, _, _, explore), look in explorations.items():
        base, explored, _ = recorded[look]
        cost = 1 + base.shape[2] * explore.passes
        yield Rule("exploration without quantification", look, explored, cost)
        for alpha in (0.25, 0.5, 0.75):
            estimate = explored - alpha * (explored - base)  # in a linear model it falls by alpha of what it rose
            yield Rule("quantification by a first-order estimate", f"{look}, alpha {alpha:g}", estimate, cost)


def _together(recorded: Recorded) -> Iterator[Rule]:
    """Yield rules that combine several variants."""
    for front in ("none", "restored"):
        both = [f"{front}: l2 1, 1 + 1 steps", f"{front}: linf 16/255, 1 + 1 steps"]
        radii = [f"{front}: linf {radius}/255, 1 + 1 steps" for radius in (4, 8, 16)]
        for idea, looks in (("agreement across norms", both), ("several radii at once", radii)):
            scores = [recorded[look][2] for look in looks]
            yield Rule(idea, f"{front}: mean", np.mean(scores, 0), recorded.cost(*looks))
            yield Rule(idea, f"{front}: lowest", np.min(scores, 0), recorded.cost(*looks))
        second, best = np.sort(recorded[f"{front}: alone"][0], 2)[..., -2:].transpose(2, 0, 1)
        half, whole = ("alpha 0.5", radii[2]), ("alpha 1", f"{radii[2]}, alpha 1")
        radius, alpha = "radius per sample", "alpha per sample"
        for idea, there, here in (
            (radius, ("16/255", radii[2]), ("4/255", radii[0])),
            (alpha, whole, half),
            (alpha, half, whole),
        ):
            for gap in GAPS:
                title = f"{front}: {there[0]} where two classes are within {gap:g}, else {here[0]}"
                chosen = np.where((best - second < gap)[..., None], recorded[there[1]][2], recorded[here[1]][2])
                yield Rule(idea, title, chosen, recorded.cost(there[1], here[1]) / 2)
    sides = ("restored", "mirrored")
    views = [
        probability(recorded[f"{front}: alone"][0]) for front in ("none", "restored", "mirrored", "mirrored only", "stretched")
    ]
    yield Rule("views that vote", "as it is and mirrored", views[0] + views[3], 2)
    yield Rule("views that vote", "restored, and mirrored", views[1] + views[2], 2)
    yield Rule("views that vote", "restored, mirrored, stretched", views[1] + views[2] + views[4], 3)
    yield Rule("views that vote", "as it is, restored, stretched, mirrored", sum(views[:3], views[4]), 4)
    looks = [f"{side}: l2 1, 1 + 1 steps" for side in sides]
    seen_of = [recorded[look] for look in looks]
    for weight in (0.0, *WEIGHTS):
        total = np.sum([quantified + weight * base for base, _, quantified in seen_of], 0)
        title = f"restored and mirrored, l2 1, 1 + 1 steps, and {weight:g} times the input"
        yield Rule("views and DRQ", title, total, recorded.cost(*looks))


def attempt(path: Path, most: int, out: Path | None) -> None:
    """Print the rules that are most accurate over all shifts, beside the paper's; write the results of all."""
    recorded = Recorded(path)
    shown = {"clean": ["clean"], "corrupted": [*KINDS], "turned": ["rotation"], "moved": ["translation"], "PGD": ["PGD"]}
    shifts = [recorded.conditions.index(each) for each in SHIFTS]
    paper = 100 * (recorded[f"none: {PAPER}"][2].argmax(2) == recorded.labels)
    rows: list[dict[str, Any]] = []
    for rule in rules(recorded):
        right = 100 * (rule.scores.argmax(2) == recorded.labels)
        gain = (right - paper)[shifts].mean(0)
        half = 1.96 * float(gain.std(ddof=1)) / len(gain) ** 0.5
        row: dict[str, Any] = {"idea": rule.idea, "rule": rule.title, "passes": round(rule.passes, 1)}
        row |= {"shifts": right[shifts].mean(), "gain": gain.mean(), "low": gain.mean() - half, "high": gain.mean() + half}
        row |= {key: right[[recorded.conditions.index(each) for each in names]].mean() for key, names in shown.items()}
        rows.append({key: round(float(each), 3) if not isinstance(each, str) else each for key, each in row.items()})
    rows.sort(key=lambda row: -row["shifts"])
    for row in rows[:most]:
        values = "  ".join(f"{key} {row[key]:5.1f}" for key in shown)
        gained = f"{row['shifts']:6.2f} ({row['low']:+.2f} to {row['high']:+.2f})"
        print(f"{gained}  {values}  {row['passes']:6.1f} passes  {row['idea']}: {row['rule']}")
    if out is not None:
        about = {"model": recorded.model, "first": recorded.first, "images": len(recorded.labels), "rules": rows}
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(about, indent=0) + "\n", encoding="utf-8")
