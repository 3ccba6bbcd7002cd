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
from tools.benchmarks.variant_settings import AT_ONCE, DOWN, FEATURES, LEAST, LOOKS, NEARBY, PAPER, POINTS


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
