"""A small adversarially trained classifier of scikit-learn's digits: trained in seconds, then kept in a cache."""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from drq.data.digits import Images, split
from drq.errors import InputError
from drq.images import View
from drq.models import weights
from drq.models.classifier import Card, Classifier
from drq.models.known import FittedModel
from drq.norms import Ball, Linf
from drq.objectives import away_from
from drq.search.gradient import Gradient
from drq.search.loop import check_count, search
from drq.seeds import generator
from drq.system.files import cache_folder
from drq.system.threads import threads

SUMMARY = "small CNN, adversarially trained at first use on scikit-learn's digits with linf 0.15"
logger = logging.getLogger("drq")
Track = Callable[[Sequence[Any], str], Iterable[Any]]  # passes items on and shows, under a title, how many are done


def untracked(items: Sequence[Any], _: str) -> Iterable[Any]:
    """A :data:`Track` that shows nothing."""
    return items


@dataclass(frozen=True)
class Recipe:
    """How the model is built and trained: on linf PGD examples, with Adam and one cycle of its learning rate."""

    seed: int = 0
    radius: float = 0.15  # of the PGD examples
    steps: int = 5
    epochs: int = 15
    batch: int = 64
    rate: float = 3e-3
    width: int = 16

    def __post_init__(self) -> None:
        check_count("seed", self.seed, "the default is 0")
        check_count("epochs", self.epochs, f"the default is {Recipe.epochs}", least=1)

    @property
    def file_name(self) -> str:
        """Names the cached weights; any change of the recipe changes it."""
        return f"demo-{hashlib.sha256(repr(self).encode()).hexdigest()[:16]}.safetensors"

    @property
    def explored_radii(self) -> dict[str, float]:
        """The radius of DRQ in each norm: linf twice the training radius; l2 that of the ball with the same volume."""
        pixels, linf = 64, 2 * self.radius
        unit_ball = math.pi ** (pixels / 2) / math.gamma(pixels / 2 + 1)  # volume of the l2 ball of radius 1
        return {"linf": linf, "l2": 2 * linf / unit_ball ** (1 / pixels)}

    def network(self) -> nn.Sequential:
        """The untrained network; it is built without values, so that the global random state rests."""
        with torch.device("meta"):
            model = nn.Sequential(
                nn.Conv2d(1, self.width, 4, stride=2, padding=1),
                nn.ReLU(),
                nn.Conv2d(self.width, 2 * self.width, 3, padding=1),
                nn.ReLU(),
                nn.Flatten(),
                nn.Linear(32 * self.width, 64),
                nn.ReLU(),
                nn.Linear(64, 10),
            )
        model.to_empty(device="cpu").eval()
        draws = generator(self.seed, 0)
        for parameter in model.parameters():
            if parameter.dim() > 1:
                nn.init.kaiming_uniform_(parameter, generator=draws)
            else:
                nn.init.zeros_(parameter)
        return model


@threads(1)
def train(recipe: Recipe, images: Images, track: Track = untracked) -> nn.Module:
    """A model trained by the recipe. The same recipe gives the same weights."""
    model, draws = recipe.network(), generator(recipe.seed, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=recipe.rate)
    total = recipe.epochs * math.ceil(len(images.x) / recipe.batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, recipe.rate, total_steps=total)
    for _ in track(range(recipe.epochs), "training"):
        for rows in torch.split(torch.randperm(len(images.x), generator=draws), recipe.batch):
            x, y = images.x[rows], images.y[rows]
            ball = Ball(x, recipe.radius, "linf", bounds=(0, 1))
            start = ball.clip(x + recipe.radius * Linf().sample(tuple(x.shape), draws).to(x))
            worst = search(Gradient(recipe.steps), away_from(model, y), ball, start=start).point
            optimizer.zero_grad()
            torch.autograd.backward(cross_entropy(model(worst), y))
            optimizer.step()
            schedule.step()
    return model.requires_grad_(False)


def load(recipe: Recipe, path: Path) -> nn.Module | None:
    """The model from its file; None where there is no file or it is damaged."""
    model = recipe.network()
    try:
        weights.fill(model, weights.read(path))
    except InputError:
        return None
    return model.requires_grad_(False)


def trained(recipe: Recipe, images: Images, track: Track = untracked, say: Callable[[str], None] = print) -> nn.Module:
    """The model from the cache, or trained now and put there; ``say`` is told when it could not be."""
    path = cache_folder() / recipe.file_name
    if (model := load(recipe, path)) is not None:
        return model
    model = train(recipe, images, track)
    try:
        weights.write(model, path, half=False)
    except OSError as error:
        say(f"the trained model cannot be kept ({error}), so the next run trains again: set DRQ_CACHE to a writable folder")
    return model


def classifier(recipe: Recipe = Recipe()) -> Classifier:
    """The model with its card."""
    card = Card(
        name="digits",
        summary=SUMMARY,
        classes=tuple("0123456789"),
        view=View(8, 8, interpolation="box", channels=1),
        norm="linf",
        radius=recipe.radius,
    )
    model = trained(recipe, split()[0], say=logger.warning)
    return Classifier(model, card, mean=[0.0], std=[1.0])


def load_digits(seed: int = 0, epochs: int = Recipe.epochs) -> Classifier:
    """The small robust classifier of digits, trained at first use; another seed or number of epochs makes another one."""
    return classifier(Recipe(seed=seed, epochs=epochs))


DIGITS = FittedModel(SUMMARY, load_digits)
