"""Search for a better DRQ: record log-odds under many settings once, and try rules of decision on them.

    python -m tools.benchmarks.variants record cifar10-tiny --first 0 --count 40 --out seen.npz

records the log-odds of all classes at the input, at the explored and at the quantified points, for clean, corrupted, rotated,
translated and attacked images, behind several fronts: 4,500 passes of the model for each image.

    python -m tools.benchmarks.variants try seen.npz --out results/paper/tried.json

tries every rule, prints the best, and writes the results of all. Rules are chosen on images below 5000; ``drq reproduce improve``
reports on others.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import relu

import drq
from drq import threats
from drq.models import trained
from drq.models.wide_resnet import WideResNet
from drq.objectives import Model
from drq.search.loop import State, scored, search, slope
from drq.seeds import generator
from drq.threats.corruptions.constants import KINDS
from tools.benchmarks.variant_rules import attempt
from tools.benchmarks.variant_settings import AT_ONCE, DOWN, FEATURES, LEAST, NEARBY, PAPER, POINTS, VARIANTS


def conditions(model: nn.Module, index: Tensor, device: str) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yield the images, clean and under every shift, with their labels."""
    x, y = (each.to(device) for each in drq.load_data("cifar10").batch(index.tolist()))
    yield "clean", x, y
    for kind in KINDS:
        yield kind, drq.load_data(f"cifar10-c/{kind}/5").batch(index.tolist())[0].to(device), y
    yield "rotation", threats.Rotation(20)(model, x, y, index=index), y
    yield "translation", threats.Translation()(model, x, y, index=index), y
    yield "PGD", threats.PGD("linf", 8 / 255, steps=100)(model, x, y, index=index), y


def fronts(device: str) -> dict[str, Callable[[Tensor], Tensor]]:
    """Return the fronts, which are applied to an image before the search, by name."""
    denoiser, restore = trained.denoiser().to(device), drq.Restoration()
    return {
        "none": lambda x: x,
        "restored": restore,
        "denoised": lambda x: denoiser(x).clamp(0, 1),
        "mirrored": lambda x: restore(x).flip(-1),
        "mirrored only": lambda x: x.flip(-1),
        "stretched": drq.Restoration(None),
    }


class LogOdds(NamedTuple):
    """The log-odds (N, C) of one variant at the input, the explored and the quantified points."""

    base: Tensor
    explored: Tensor
    quantified: Tensor
    passes: float


def log_odds_of(robust: drq.DRQ, x: Tensor) -> LogOdds:
    """Return the log-odds that DRQ finds for every class."""
    found = robust.decide(x)
    return LogOdds(found.base_log_odds, found.explored_log_odds, found.log_odds, float(found.passes.double().mean()))


def in_features(model: Any, cut: int, share: float, x: Tensor) -> LogOdds:
    """Return the log-odds of DRQ in the features behind ``cut`` modules of a network, without bounds."""
    stages, head = parts(model.model)
    with torch.no_grad():
        features = nn.Sequential(*stages[:cut])((x - model.mean) / model.std)
    radius = share * features.flatten(1).norm(dim=1)
    tail = nn.Sequential(*stages[cut:], head).eval()
    return log_odds_of(
        drq.DRQ(tail, "l2", radius, explore=drq.Gradient(5), quantify=drq.Gradient(5), bounds=None, prune="none"), features
    )


def parts(network: Any) -> tuple[list[nn.Module], nn.Module]:
    """Return the first convolution and the stages of a residual network, and the head that makes logits of their features."""
    wide = isinstance(network, WideResNet)
    names = ("block1", "block2", "block3") if wide else ("layer1", "layer2", "layer3", "layer4")
    norm, linear = (network.bn1, network.fc) if wide else (network.bn, network.linear)
    return [network.conv1, *(getattr(network, name) for name in names)], Head(norm, network.activation if wide else relu, linear)


class Head(nn.Module):
    """The head of a residual network, which returns logits (N, C)."""

    def __init__(self, norm: nn.Module, activation: Callable[[Tensor], Tensor], linear: nn.Module) -> None:
        super().__init__()
        self.norm, self.activation, self.linear = norm, activation, linear

    def forward(self, x: Tensor) -> Tensor:
        """Normalise, activate, average, and apply the linear layer."""
        logits: Tensor = self.linear(self.activation(self.norm(x)).mean((2, 3)))
        return logits


@torch.no_grad()
def nearby(robust: drq.DRQ, x: Tensor) -> dict[str, LogOdds]:
    """Return the log-odds by other ways to quantify than a descent to the lowest point, by title."""
    robust = robust.variant(explore=drq.Gradient(1), quantify=drq.Gradient(1), keep_points=True)
    found = robust.decide(x)
    assert found.explored is not None
    base, explored, classes = found.base_log_odds, found.explored_log_odds, found.log_odds.shape[1]

    def objective_for(aim: Callable[[Model, Tensor], drq.Objective], label: Tensor) -> drq.Objective:
        return replace(aim(robust.classifier, label), at_once=AT_ONCE)

    def with_scores(scores: Tensor, passes: Tensor) -> LogOdds:
        exploring, quantifying = 1 + classes * robust.explore.passes, float(passes.sum()) / len(x)
        return LogOdds(base, explored, torch.full_like(base, -torch.inf).index_put(reached, scores), exploring + quantifying)

    reached = sample, label = found.reached.nonzero(as_tuple=True)
    ball = robust.ball(found.explored[reached], robust.alpha * found.radius[sample])
    odds = objective_for(drq.away_from, label)
    cloud = torch.stack([scored(odds, State(ball.sample(generator(0, draw)))).score.value for draw in range(POINTS)])
    every = torch.arange(classes, device=x.device).repeat(len(x))
    around = robust.ball(x.repeat_interleave(classes, 0), found.radius.repeat_interleave(classes))
    rise = change(objective_for(drq.away_from, every), around).view(-1, classes)
    once = torch.ones_like(label)
    results = (
        with_scores(cloud.mean(0), POINTS * once),
        with_scores(cloud.quantile(0.25, 0), POINTS * once),
        with_scores(*boundary(objective_for(drq.margin, label), ball)),
        with_scores(explored[reached] - change(odds, ball), once),
        LogOdds(base, base + rise, base + (1 - robust.alpha) * rise, classes),
    )
    return dict(zip(NEARBY, results, strict=True))


def change(objective: drq.Objective, ball: drq.Ball) -> Tensor:
    """Return (N,) how far the value changes from the centre to the edge of a ball if it is linear; bounds are ignored."""
    return ball.radius * ball.norm.dual_length(slope(objective, ball.center)[1])


def boundary(lead: drq.Objective, ball: drq.Ball) -> tuple[Tensor, Tensor]:
    """Return (N,) the distance at which a class loses its lead, in radii, and the passes; the descent stops behind the boundary.

    The lead is interpolated between the centre and the last point, or extrapolated where the edge of the ball comes first.
    """
    found = search(DOWN, lead, ball, stop_below=torch.zeros_like(ball.radius))
    first = scored(lead, State(ball.center)).score.value  # the search evaluated it as well, so no pass is added
    walked = torch.where(found.value < 0, ball.norm.length(found.point - ball.center) / ball.radius, 1)
    return first.clamp(min=0) * walked / (first - found.value).clamp(min=1e-2), found.passes


def record(name: str, first: int, count: int, out: Path, device: str) -> None:
    """Record the log-odds (conditions, variants, base or explored or quantified, images, classes)."""
    model = drq.load_model(name).to(device).eval()
    quick: dict[str, Any] = {"precision": "float16", "compile": True} if device == "cuda" else {}
    robust = drq.DRQ(model, "linf", 16 / 255, prune="none", **quick)
    front_functions = fronts(device)
    looks: dict[str, Callable[[Tensor], LogOdds]] = {}
    for title, (norm, radius, explore, quantify, alpha, behind, _) in VARIANTS.items():
        for front in behind:
            each = robust.variant(
                norm=norm, radius=radius, alpha=alpha, explore=explore, quantify=quantify, front=front_functions[front]
            )
            looks[f"{front}: {title}"] = partial(log_odds_of, each)
    looks |= {f"{front}: alone": partial(alone, robust, function) for front, function in front_functions.items()}
    looks |= {f"none: {title}": partial(in_features, model, *FEATURES[title]) for title in FEATURES}
    kept, passes, titles, labels, found = [], [], [], np.zeros(0), dict[str, LogOdds]()
    for title, x, y in conditions(model, torch.arange(first, first + count), device):
        found = {look: compute(x) for look, compute in looks.items()} | {
            f"none: {way}": each for way, each in nearby(robust, x).items()
        }
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


def alone(robust: drq.DRQ, front: Callable[[Tensor], Tensor], x: Tensor) -> LogOdds:
    """Return the log-odds of the model alone behind a front."""
    with torch.no_grad():
        odds = drq.log_odds(robust.classifier(front(x)))
    return LogOdds(odds, odds, odds, 1.0)


def main() -> None:
    """Record log-odds, or try rules."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    recorder = parts.add_parser("record")
    recorder.add_argument("model")
    recorder.add_argument("--first", type=int, default=0)
    recorder.add_argument("--count", type=int, default=500)
    recorder.add_argument("--out", type=Path, required=True)
    trier = parts.add_parser("try")
    trier.add_argument("file", type=Path)
    trier.add_argument("--most", type=int, default=25, help="how many rules are printed")
    trier.add_argument("--out", type=Path, help="where the results of all rules are written")
    given = parser.parse_args()
    if given.part == "try":
        attempt(given.file, given.most, given.out)
    else:
        record(given.model, given.first, given.count, given.out, "cuda" if torch.cuda.is_available() else "cpu")


if __name__ == "__main__":
    main()
