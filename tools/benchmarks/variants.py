"""The search for a better DRQ: what it sees under many settings is kept once, and rules of decision are tried on that.

    python -m tools.benchmarks.variants record cifar10-tiny --first 0 --count 40 --out seen.npz

keeps log-odds of all classes at the input, at the explored and at the quantified points, for clean, corrupted, turned, moved and
attacked images, behind several fronts: 4,500 passes of the model for each of them.

    python -m tools.benchmarks.variants try seen.npz --out results/paper/tried.json

asks every rule, prints the best, and keeps all: what was tried, and what it gave. Rules are chosen on images below 5000; ``drq
reproduce improve`` reports on others.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import relu

import drq
from drq import threats
from drq.models import trained
from drq.models.wide_resnet import WideResNet
from drq.objectives import Model, Score
from drq.search.loop import Count, Observation, State, scored, search, slope
from drq.seeds import generator
from drq.threats.corruptions.constants import KINDS

Array = NDArray[np.floating[Any]]
PAPER = "linf 16/255, 20 + 20 steps"


@dataclass(frozen=True)
class Following(drq.Gradient):
    """Steps along the slope of another loss; the best point is still that of the log-odds."""

    loss: Callable[[Model, Tensor], drq.Objective] = drq.margin

    def observe(self, objective: drq.Objective, ball: drq.Ball, state: State, count: Count) -> Observation:
        """The value of the one with the slope of the other, from one pass."""

        def measure(logits: Tensor, label: Tensor, direction: Tensor) -> Score:
            score = objective.measure(logits, label, direction)
            followed = direction * self.loss(lambda z: z, label)(logits).value
            return score._replace(value=score.value.detach() + (followed - followed.detach()))

        return super().observe(replace(objective, measure=measure), ball, state, count)


@dataclass(frozen=True)
class Starts(drq.Search):
    """A descent from the centre, then from random points; the loop remembers the best."""

    descent: drq.Gradient
    starts: int
    in_step = True  # all rows share the draws

    @property
    def steps(self) -> int:
        """Those of all descents, and one from each to the next."""
        return self.starts * (self.descent.steps + 1) - 1

    def move(self, observation: Observation, ball: drq.Ball, state: State, best: drq.SearchResult, count: Count) -> State:
        """Further down, or to the next start."""
        assert isinstance(count, int)
        step = count % (self.descent.steps + 1)
        if step < self.descent.steps:
            return self.descent.move(observation, ball, state, best, step)
        return State(ball.sample(generator(0, count)))


class Looking(NamedTuple):
    """How DRQ looks around an image."""

    norm: str
    radius: float
    explore: drq.Search
    quantify: drq.Search
    alpha: float = 0.5
    fronts: tuple[str, ...] = ("none",)
    idea: str = "settings"


def steps(norm: str, radius: float, explore: int, quantify: int, alpha: float = 0.5, *fronts: str) -> Looking:
    """With the searches of the paper, of so many steps; behind no front unless some are named."""
    return Looking(norm, radius, drq.Gradient(explore), drq.Gradient(quantify), alpha, fronts or ("none",))


def other(idea: str, explore: drq.Search, quantify: drq.Search) -> Looking:
    """With other searches than the paper's, in its ball."""
    return Looking("linf", 16 / 255, explore, quantify, idea=idea)


SMOOTHED = "exploration with noise or inner attacks"
NOISY = drq.Gradient(5, smooth=drq.Noise(4))
ATTACKED = drq.Gradient(2, smooth=drq.InnerAttack(1, steps=2, scale=0.5))  # as far as quantification will go
ALONG = {"margin": Following(5), "DLR": Following(5, loss=drq.dlr)}
THREE = Starts(drq.Gradient(1), 3)
LOOKS = {
    PAPER: steps("linf", 16 / 255, 20, 20, 0.5, "none", "restored"),
    "l2 1, 20 + 20 steps": steps("l2", 1.0, 20, 20, 0.5, "none", "restored"),
    "linf 16/255, 5 + 5 steps": steps("linf", 16 / 255, 5, 5),
    "linf 16/255, 20 + 1 steps": steps("linf", 16 / 255, 20, 1),
    "linf 16/255, 1 + 1 steps": steps("linf", 16 / 255, 1, 1, 0.5, "none", "restored", "denoised"),
    "linf 16/255, 1 + 20 steps": steps("linf", 16 / 255, 1, 20),
    "linf 8/255, 1 + 1 steps": steps("linf", 8 / 255, 1, 1, 0.5, "none", "restored"),
    "linf 4/255, 1 + 1 steps": steps("linf", 4 / 255, 1, 1, 0.5, "none", "restored"),
    "linf 24/255, 1 + 1 steps": steps("linf", 24 / 255, 1, 1),
    "linf 16/255, 1 + 1 steps, alpha 0.25": steps("linf", 16 / 255, 1, 1, 0.25),
    "linf 16/255, 1 + 1 steps, alpha 0.75": steps("linf", 16 / 255, 1, 1, 0.75),
    "linf 16/255, 1 + 1 steps, alpha 1": steps("linf", 16 / 255, 1, 1, 1.0, "none", "restored"),
    "l2 1, 1 + 1 steps": steps("l2", 1.0, 1, 1, 0.5, "none", "restored", "mirrored"),
    "l2 0.5, 1 + 1 steps": steps("l2", 0.5, 1, 1, 0.5, "none", "restored"),
    "l2 1, 1 + 1 steps, alpha 1": steps("l2", 1.0, 1, 1, 1.0, "none", "restored"),
    "linf 16/255, exploration in noise": other(SMOOTHED, NOISY, drq.Gradient(5)),
    "linf 16/255, exploration with inner attacks": other(SMOOTHED, ATTACKED, drq.Gradient(5)),
    "linf 16/255, 20 random points quantify": other("settings", drq.Gradient(1), drq.Random(20)),
    "linf 16/255, 1 + 1 steps from each of 3 starts": other("several starts", THREE, THREE),
} | {f"linf 16/255, 5 + 5 steps along the {loss}": other("margin or DLR losses", by, by) for loss, by in ALONG.items()}
FEATURES = {
    "behind stage 3": (4, 0.05),
    "behind stage 2": (3, 0.05),
}  # of a residual network, radius by the features' length
POINTS, DOWN = 8, drq.Gradient(5, step=1)  # a walk that ends at the edge
INSTEAD, LINEAR = "mean or quantile instead of the minimum", "first-order estimate from the gradient norm"
NEARBY = {
    f"mean of {POINTS} random points": INSTEAD,
    f"lower quartile of {POINTS} random points": INSTEAD,
    f"distance to the boundary, {DOWN.steps} steps": "descent that stops at the boundary",
    "slope at the explored point": LINEAR,
    "slope at the input": LINEAR,
}  # ways to quantify what one step of exploration found, and their ideas
IDEAS = {title: look.idea for title, look in LOOKS.items()} | dict.fromkeys(FEATURES, "DRQ in a feature layer") | NEARBY
AT_ONCE = 1024  # rows that go through the model together
LEAST = -60000.0  # in place of -inf, where a class was not reached: half precision has it
SHIFTS = [*KINDS, "rotation", "translation"]
WEIGHTS = (0.25, 0.5, 1.0, 2.0, 4.0)  # of the log-odds at the input, beside those of a search
LIKELIEST = (2, 3)  # classes at the input, and no others
GAPS = (1.0, 2.0, 4.0)  # between the two best classes at the input


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
    """The same in the features behind so many modules of a network, around which nothing is bounded."""
    stages, head = parts(model.model)
    with torch.no_grad():
        features = nn.Sequential(*stages[:cut])((x - model.mean) / model.std)
    radius = share * features.flatten(1).norm(dim=1)
    tail = nn.Sequential(*stages[cut:], head).eval()
    return seen(
        drq.DRQ(tail, "l2", radius, explore=drq.Gradient(5), quantify=drq.Gradient(5), bounds=None, prune="none"), features
    )


def parts(network: Any) -> tuple[list[nn.Module], nn.Module]:
    """The first convolution and the stages of a residual network, and what makes logits of their features."""
    wide = isinstance(network, WideResNet)
    names = ("block1", "block2", "block3") if wide else ("layer1", "layer2", "layer3", "layer4")
    norm, linear = (network.bn1, network.fc) if wide else (network.bn, network.linear)
    return [network.conv1, *(getattr(network, name) for name in names)], Head(norm, network.activation if wide else relu, linear)


class Head(nn.Module):
    """The logits (N, C) of the last features."""

    def __init__(self, norm: nn.Module, activation: Callable[[Tensor], Tensor], linear: nn.Module) -> None:
        super().__init__()
        self.norm, self.activation, self.linear = norm, activation, linear

    def forward(self, x: Tensor) -> Tensor:
        """Normalised, activated, averaged, and summed up."""
        logits: Tensor = self.linear(self.activation(self.norm(x)).mean((2, 3)))
        return logits


@torch.no_grad()
def nearby(robust: drq.DRQ, x: Tensor) -> dict[str, Seen]:
    """What other ways than a descent to the lowest point see of every class, by title."""
    robust = robust.variant(explore=drq.Gradient(1), quantify=drq.Gradient(1), keep_points=True)
    found = robust.decide(x)
    assert found.explored is not None
    base, explored, classes = found.base_log_odds, found.explored_log_odds, found.log_odds.shape[1]

    def asked(aim: Callable[[Model, Tensor], drq.Objective], label: Tensor) -> drq.Objective:
        return replace(aim(robust.classifier, label), at_once=AT_ONCE)

    def shown(scores: Tensor, passes: Tensor) -> Seen:
        exploring, quantifying = 1 + classes * robust.explore.passes, float(passes.sum()) / len(x)
        return Seen(base, explored, torch.full_like(base, -torch.inf).index_put(reached, scores), exploring + quantifying)

    reached = sample, label = found.reached.nonzero(as_tuple=True)
    ball = robust.ball(found.explored[reached], robust.alpha * found.radius[sample])
    odds = asked(drq.away_from, label)
    cloud = torch.stack([scored(odds, State(ball.sample(generator(0, draw)))).score.value for draw in range(POINTS)])
    every = torch.arange(classes, device=x.device).repeat(len(x))
    around = robust.ball(x.repeat_interleave(classes, 0), found.radius.repeat_interleave(classes))
    rise = change(asked(drq.away_from, every), around).view(-1, classes)
    once = torch.ones_like(label)
    looks = (
        shown(cloud.mean(0), POINTS * once),
        shown(cloud.quantile(0.25, 0), POINTS * once),
        shown(*boundary(asked(drq.margin, label), ball)),
        shown(explored[reached] - change(odds, ball), once),
        Seen(base, base + rise, base + (1 - robust.alpha) * rise, classes),
    )
    return dict(zip(NEARBY, looks, strict=True))


def change(objective: drq.Objective, ball: drq.Ball) -> Tensor:
    """(N,) how far the value changes from the centre to the edge of a ball, were it linear; the box is left out."""
    return ball.radius * ball.norm.dual_length(slope(objective, ball.center)[1])


def boundary(lead: drq.Objective, ball: drq.Ball) -> tuple[Tensor, Tensor]:
    """(N,) how far off a class loses its lead, in radii, and the passes it took: descent stops behind the boundary.

    The line from the centre to where it stopped tells where the lead is 0, and where it would be for who reaches the edge before.
    """
    found = search(DOWN, lead, ball, stop_below=torch.zeros_like(ball.radius))
    first = scored(lead, State(ball.center)).score.value  # the search saw it, too: no pass is added
    walked = torch.where(found.value < 0, ball.norm.length(found.point - ball.center) / ball.radius, 1)
    return first.clamp(min=0) * walked / (first - found.value).clamp(min=1e-2), found.passes


def record(name: str, first: int, count: int, out: Path, device: str) -> None:
    """Keep what every look shows, (conditions, looks, base or explored or quantified, images, classes)."""
    model = drq.load_model(name).to(device).eval()
    quick: dict[str, Any] = {"precision": "float16", "compile": True} if device == "cuda" else {}
    robust = drq.DRQ(model, "linf", 16 / 255, prune="none", **quick)
    doors = fronts(device)
    looks: dict[str, Callable[[Tensor], Seen]] = {}
    for title, (norm, radius, explore, quantify, alpha, behind, _) in LOOKS.items():
        for front in behind:
            each = robust.variant(norm=norm, radius=radius, alpha=alpha, explore=explore, quantify=quantify, front=doors[front])
            looks[f"{front}: {title}"] = partial(seen, each)
    looks |= {f"{front}: alone": partial(alone, robust, door) for front, door in doors.items()}
    looks |= {f"none: {title}": partial(in_features, model, *FEATURES[title]) for title in FEATURES}
    kept, passes, titles, labels, found = [], [], [], np.zeros(0), dict[str, Seen]()
    for title, x, y in conditions(model, torch.arange(first, first + count), device):
        found = {look: see(x) for look, see in looks.items()} | {f"none: {way}": each for way, each in nearby(robust, x).items()}
        table = torch.stack([torch.stack(each[:3]) for each in found.values()]).clamp(LEAST, -LEAST)
        kept.append(table.cpu().numpy().astype(np.float16))
        passes.append([each.passes for each in found.values()])
        titles.append(title)
        labels = y.cpu().numpy()
        paper = found[f"none: {PAPER}"]
        right = [float((each.argmax(1) == y).double().mean()) for each in (paper.base, paper.quantified)]
        print(f"{title}: {right[0]:.3f} -> {right[1]:.3f}", flush=True)
    about: dict[str, Any] = {"model": name, "first": first, "looks": [*found], "passes": np.mean(passes, 0)}
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
        base, _, quantified = kept[look]
        front, title = look.split(": ", 1)
        if title == "alone":
            yield Rule("the model behind a front", front, base, 1)
            continue
        yield Rule(IDEAS[title] if front == "none" else "a front before DRQ", look, quantified, kept.cost(look))
        for weight in WEIGHTS:
            yield Rule(
                "with the log-odds at the input",
                f"{look}, and {weight:g} times those",
                quantified + weight * base,
                kept.cost(look),
            )
        yield Rule("scores normalised per class", look, normalised(quantified), kept.cost(look))
        for most in LIKELIEST if title in LOOKS else ():
            among = np.where(base >= np.sort(base, 2)[..., -most, None], quantified, 2 * LEAST)
            cost = 1 + most * (LOOKS[title].explore.passes + LOOKS[title].quantify.passes)  # were all of them reached
            yield Rule("the likeliest classes alone", f"{look}, {most} classes", among, min(cost, kept.cost(look)))
    yield from _explored(kept)
    yield from _together(kept)


def normalised(scores: Array) -> Array:
    """Scores less their median over their deviation, class by class, where it was reached."""
    known = np.ma.masked_less_equal(scores, LEAST)
    middle: Array = np.ma.median(known, (0, 1)).filled(0)  # type: ignore[no-untyped-call]
    spread: Array = known.std((0, 1)).filled(1)
    result: Array = (scores - middle) / spread.clip(1e-3)
    return result


def _explored(kept: Kept) -> Iterator[Rule]:
    """Rules without quantification, once for every exploration."""
    explorations: dict[tuple[Any, ...], str] = {}
    for title, (norm, radius, explore, _, _, behind, _) in LOOKS.items():
        for front in behind:
            explorations.setdefault((front, norm, radius, explore), f"{front}: {title}")
    for (_, _, _, explore), look in explorations.items():
        base, explored, _ = kept[look]
        cost = 1 + base.shape[2] * explore.passes
        yield Rule("exploration without quantification", look, explored, cost)
        for alpha in (0.25, 0.5, 0.75):
            estimate = explored - alpha * (explored - base)  # were the model linear, it would fall by alpha of what it rose
            yield Rule("quantification by a first-order estimate", f"{look}, alpha {alpha:g}", estimate, cost)


def _together(kept: Kept) -> Iterator[Rule]:
    """Rules that need several looks."""
    for front in ("none", "restored"):
        both = [f"{front}: l2 1, 1 + 1 steps", f"{front}: linf 16/255, 1 + 1 steps"]
        radii = [f"{front}: linf {radius}/255, 1 + 1 steps" for radius in (4, 8, 16)]
        for idea, looks in (("agreement across norms", both), ("several radii at once", radii)):
            scores = [kept[look][2] for look in looks]
            yield Rule(idea, f"{front}: mean", np.mean(scores, 0), kept.cost(*looks))
            yield Rule(idea, f"{front}: lowest", np.min(scores, 0), kept.cost(*looks))
        second, best = np.sort(kept[f"{front}: alone"][0], 2)[..., -2:].transpose(2, 0, 1)
        half, whole = ("alpha 0.5", radii[2]), ("alpha 1", f"{radii[2]}, alpha 1")
        radius, alpha = "radius per sample", "alpha per sample"
        for idea, there, here in (
            (radius, ("16/255", radii[2]), ("4/255", radii[0])),
            (alpha, whole, half),
            (alpha, half, whole),
        ):
            for gap in GAPS:
                title = f"{front}: {there[0]} where two classes are within {gap:g}, else {here[0]}"
                chosen = np.where((best - second < gap)[..., None], kept[there[1]][2], kept[here[1]][2])
                yield Rule(idea, title, chosen, kept.cost(there[1], here[1]) / 2)
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
