"""A demonstration that takes a minute: a small adversarially trained classifier of digits, alone and wrapped in DRQ."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from drq.data.digits import TEST_IMAGES, split
from drq.drq import DRQ
from drq.errors import require
from drq.models.digits import Recipe, Track, trained, untracked
from drq.objectives import Model, log_odds
from drq.rows import Rows
from drq.seeds import generator
from drq.threads import threads
from drq.threats import PGD, Rotation, Shifted, Threat, Translation

BATCH = 25  # images between two moves of the progress bar

# Strengths of the shifts: chosen on the model alone, so that it is right for about three images in four, without a look at DRQ.
NOISE = 0.45  # standard deviation, on pixels in [0, 1]
ROTATION = 40.0  # degrees, at most
TRANSLATION = 1.0  # pixels, at most, along each side
ATTACK_STEPS = 50  # of PGD, at the training radius

METHODS = {"standard": "Standard", "linf": "DRQ linf", "l2": "DRQ l2"}


@dataclass(frozen=True)
class Noise(Threat):
    """Independent Gaussian noise on every pixel."""

    seed: int
    deviation: float = NOISE
    bounds = (0.0, 1.0)

    def shift(self, model: nn.Module | Model | None, x: Tensor, y: Tensor | None, index: Tensor) -> Shifted:
        """Add it; every image has draws of its own."""
        draws = [torch.randn(x.shape[1:], generator=generator(self.seed, int(each))) for each in index]
        return Shifted((x + self.deviation * torch.stack(draws)).clamp(0, 1), torch.zeros(len(x)))


def shifts(radius: float, seed: int) -> dict[str, Threat | None]:
    """What happens to the images, by name. PGD attacks the model alone: DRQ is not attacked, the images are handed over."""
    return {
        "clean": None,
        "noise": Noise(seed),
        "rotation": Rotation(ROTATION, seed=seed),
        "translation": Translation(TRANSLATION, whole=False, seed=seed),
        "PGD": PGD("linf", radius, ATTACK_STEPS),
    }


@dataclass(frozen=True)
class Answers(Rows):
    """What each of the M methods says about N images."""

    label: Tensor  # (N, M)
    trust: Tensor  # (N, M) the score to abstain by
    passes: Tensor  # (N, M) evaluations of the model


def ask(model: nn.Module, radii: Mapping[str, float], x: Tensor) -> Answers:
    """The answers of the model alone, which trusts its confidence, and of DRQ in each norm, which trusts its margin."""
    trust, label = log_odds(model(x)).max(1)
    columns = [(label, trust, torch.ones_like(label))]
    for norm, radius in radii.items():
        decision = DRQ(model, norm, radius).decide(x)
        columns.append((decision.label, decision.margin, decision.passes))
    label, trust, passes = (torch.stack(each, 1) for each in zip(*columns, strict=True))
    return Answers(label, trust, passes)


class Tally(NamedTuple):
    """How many images a method got right, and where it differs from the model alone."""

    images: int
    correct: int
    fixed: int  # wrong alone, right here
    spoiled: int  # right alone, wrong here

    @property
    def accuracy(self) -> float:
        """In percent."""
        return 100 * self.correct / self.images

    @property
    def difference(self) -> float:
        """From the model alone, in points."""
        return 100 * (self.fixed - self.spoiled) / self.images

    @property
    def interval(self) -> tuple[float, float]:
        """95 % Wilson interval of the accuracy.

        >>> ["%.1f" % end for end in Tally(10, 10, 0, 0).interval]
        ['72.2', '100.0']
        """
        share, spread = self.correct / self.images, 1.96**2 / self.images
        center, half = share + spread / 2, math.sqrt(spread * share * (1 - share) + spread**2 / 4)
        return 100 * (center - half) / (1 + spread), 100 * (center + half) / (1 + spread)

    @property
    def p_value(self) -> float:
        """Of the two-sided sign test: how often chance alone splits the changed images at least this unevenly.

        >>> Tally(100, 80, fixed=5, spoiled=0).p_value
        0.0625
        """
        changed = self.fixed + self.spoiled
        tail = sum(math.comb(changed, count) for count in range(min(self.fixed, self.spoiled) + 1))
        return float(min(1.0, tail * 0.5 ** (changed - 1)))

    def as_json(self) -> dict[str, Any]:
        """Counts and what follows from them."""
        derived = {name: getattr(self, name) for name in ("accuracy", "interval", "difference", "p_value")}
        return self._asdict() | derived


@dataclass(frozen=True)
class Outcome:
    """What the demonstration measured."""

    images: int
    seed: int
    radii: dict[str, float]  # by norm
    tallies: dict[str, dict[str, Tally]]  # by shift and method
    passes: dict[str, float]  # mean per image, by method
    trusted_half: dict[str, float]  # accuracy in percent on the half of all answers that a method trusts most

    def as_json(self) -> dict[str, Any]:
        """The same, made of what JSON knows."""
        rows = {shift: {name: each.as_json() for name, each in row.items()} for shift, row in self.tallies.items()}
        return vars(self) | {"tallies": rows}


def count(truth: Tensor, answers: Answers, names: Sequence[str]) -> tuple[dict[str, dict[str, Tally]], dict[str, float]]:
    """The tallies and the accuracy on the trusted half; ``answers`` has the N images of ``truth`` once for each shift."""
    correct = answers.label == truth.repeat(len(names))[:, None]
    alone = correct[:, :1]
    counts = torch.stack([correct, correct & ~alone, alone & ~correct], 2).reshape(len(names), len(truth), -1, 3).sum(1)
    tallies = {
        name: {method: Tally(len(truth), *each) for method, each in zip(METHODS, row, strict=True)}
        for name, row in zip(names, counts.tolist(), strict=True)
    }
    trusted = answers.trust.argsort(dim=0, descending=True, stable=True)[: (len(correct) + 1) // 2]
    half = correct.gather(0, trusted).double().mean(0) * 100
    return tallies, dict(zip(METHODS, half.tolist(), strict=True))


@threads(1)
def demonstrate(images: int, recipe: Recipe, track: Track = untracked, say: Callable[[str], None] = print) -> Outcome:
    """Train or load the model, shift the first ``images`` test images in every way, and count who is right."""
    rule = f"lie between 1 and {TEST_IMAGES}, the number of test images"
    require(1 <= images <= TEST_IMAGES, "images", rule, images, "200 take less than a minute")
    known, unseen = split()
    model = trained(recipe, known, track, say)
    shift_by_name = shifts(recipe.radius, recipe.seed)
    batches = [(shift, rows) for shift in shift_by_name.values() for rows in torch.split(torch.arange(images), BATCH)]
    parts = []
    for shift, rows in track(batches, "measuring"):
        x, y = unseen.x[rows], unseen.y[rows]
        parts.append(ask(model, recipe.explored_radii, x if shift is None else shift(model, x, y, index=rows)))
    answers = parts[0].joined(parts[1:])
    tallies, trusted_half = count(unseen.y[:images], answers, [*shift_by_name])
    passes = dict(zip(METHODS, answers.passes.double().mean(0).tolist(), strict=True))
    return Outcome(images, recipe.seed, recipe.explored_radii, tallies, passes, trusted_half)
