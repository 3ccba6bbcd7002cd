"""Train the CIFAR-10 models, one command each: ``python training/cifar10.py small``.

They are written to DRQ_MODELS (``small`` and ``tiny`` into the package itself), where ``drq.load_model("cifar10-NAME")`` finds
them. A GPU takes minutes (see README.md beside this file), and ``tiny`` needs none; ``--epochs`` shortens a trial.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

import torch
from augmentation import light, strong
from loop import Recipe, train
from torch import Tensor, nn

import drq
from drq.models import weights
from drq.models.architectures import architecture
from drq.models.classifier import Card, Classifier
from drq.models.stored import CIFAR10
from drq.models.trained import place
from drq.system.files import digest
from drq.system.progress import Bar

RECIPES = {
    "small": Recipe("wrn_28_2_swish", epochs=100, norm="linf", radius=8 / 255, steps=5),
    "tiny": Recipe("wrn_10_2_half", epochs=10, norm="linf", radius=8 / 255, steps=1, step=1.25, decay=1e-4),
    "linf": Recipe("preact_resnet18", epochs=20, norm="linf", radius=8 / 255, steps=3, step=1.5),
    "l2": Recipe("preact_resnet18", epochs=14, norm="l2", radius=0.5, steps=3, step=1.5),
    "augment": Recipe("preact_resnet18", epochs=24, strong=True),
    "plain": Recipe("preact_resnet18", epochs=24),
}


def main() -> None:
    """Train, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=RECIPES)
    parser.add_argument("--epochs", type=int, help="other than the recipe's, for a trial")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, help="file to write instead of the one that drq.load_model reads")
    given = parser.parse_args()
    recipe, name = replace(RECIPES[given.name], seed=given.seed), f"cifar10-{given.name}"
    if given.seed:  # it takes no other's place
        name += f"-seed{given.seed}"
    out = place(name)
    if given.epochs is not None:  # a trial takes no model's place
        recipe, out = replace(recipe, epochs=given.epochs), place(f"{name}-trial")
    out = given.out or out
    out.parent.mkdir(parents=True, exist_ok=True)  # before the work, not after it

    torch.manual_seed(recipe.seed)
    torch.backends.cudnn.benchmark = True  # the shapes never change
    network = architecture(recipe.arch).build(10)
    model = Classifier(network, Card(name), CIFAR10.mean, CIFAR10.std)
    began = time.monotonic()
    model = train(model, recipe, *images("train", given.device), strong if recipe.strong else light, Bar(name))
    seconds = time.monotonic() - began
    weights.write(model.model, out, about(recipe))
    accuracies = measure(model, recipe, *images("test", given.device))
    print(f"{name}: {accuracies}, {seconds:.0f} s, {out.stat().st_size} bytes, sha256 {digest(out)}: {out}")


def images(split: str, device: str) -> tuple[Tensor, Tensor]:
    """All images of CIFAR-10 and their labels."""
    data = drq.load_data("cifar10", split)
    x, y = data.batch(range(len(data)))
    return x.to(device), y.to(device)


def about(recipe: Recipe) -> dict[str, str]:
    """What the file says of itself, so that it can be read without further words."""
    attack = f"{recipe.steps}-step adversarial, {recipe.norm} {recipe.radius:.6g}" if recipe.norm else "plain"
    augmentation = "strong augmentation" if recipe.strong else "light augmentation"
    return {
        "architecture": recipe.arch,
        "classes": "10",
        "dataset": "CIFAR-10",
        "mean": ",".join(map(str, CIFAR10.mean)),
        "std": ",".join(map(str, CIFAR10.std)),
        "training": f"{attack}, {augmentation}, {recipe.epochs} epochs, seed {recipe.seed}",
    } | ({"norm": recipe.norm, "radius": str(recipe.radius)} if recipe.norm else {})


def measure(model: nn.Module, recipe: Recipe, x: Tensor, y: Tensor) -> str:
    """Clean accuracy, and under a short attack: a first look, no evaluation."""
    clean = torch.cat([model(part).argmax(1) for part in x.split(1000)]) == y
    text = f"clean {100 * clean.float().mean():.2f} %"
    if recipe.norm:
        attack = drq.threats.PGD(recipe.norm, recipe.radius, steps=20)
        x, y = x[:1000], y[:1000]
        right = (model(attack(model, x, y)).argmax(1) == y).float().mean()
        text += f", PGD-20 {100 * right:.1f} % (1000 images)"
    return text


if __name__ == "__main__":
    main()
