"""PGD beside Foolbox's and torchattacks': the same model, images, radius, steps, length of a step, and start at the image."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from drq.bench.naive import STEP
from drq.bench.subject import ATTACK_STEPS, Subject
from drq.bench.timing import clocked, tf32
from drq.bench.workshop import Task, Workshop
from drq.errors import MissingError, imported
from drq.threats.attacks import PGD

Attack = Callable[[nn.Module, Tensor, Tensor], Tensor]
OURS = "drq"


def drq_pgd(subject: Subject, radius: float) -> Attack:
    """Ours."""
    return PGD(subject.norm, radius, ATTACK_STEPS)


def foolbox_pgd(subject: Subject, radius: float) -> Attack:
    """Foolbox's."""
    foolbox = imported("foolbox", "this comparison", "run pip install 'decision-region-quantification[attacks]'")
    kind = foolbox.attacks.LinfPGD if subject.norm == "linf" else foolbox.attacks.L2PGD
    attack = kind(abs_stepsize=STEP * radius / ATTACK_STEPS, steps=ATTACK_STEPS, random_start=False)

    def run(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        found: Tensor = attack(foolbox.PyTorchModel(model, bounds=(0, 1), device=x.device), x, y, epsilons=radius)[1]
        return found

    return run


def torchattacks_pgd(subject: Subject, radius: float) -> Attack:
    """That of torchattacks."""
    torchattacks = imported("torchattacks", "this comparison", "run pip install scipy, then pip install --no-deps torchattacks")
    kind = torchattacks.PGD if subject.norm == "linf" else torchattacks.PGDL2

    def run(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        length = STEP * radius / ATTACK_STEPS
        found: Tensor = kind(model, eps=radius, alpha=length, steps=ATTACK_STEPS, random_start=False)(x, y)
        return found

    return run


MAKERS: dict[str, Callable[[Subject, float], Attack]] = {
    OURS: drq_pgd,
    "foolbox": foolbox_pgd,
    "torchattacks": torchattacks_pgd,
}


def tasks(shop: Workshop) -> list[Task]:
    """One for each library."""
    weight = 0.05 * shop.settings.images * shop.settings.repeats
    return [Task(f"PGD of {name}", weight, partial(_measure, shop, name)) for name in MAKERS]


def _measure(shop: Workshop, name: str) -> None:
    subject, device = shop.subject, shop.device
    x, y = subject.x[: shop.settings.images], subject.y[: shop.settings.images]
    try:
        attack = MAKERS[name](subject, subject.radius / 2)
    except MissingError as error:
        shop.note(f"{name} is left out: {error}")
        return
    with tf32(False):
        attack(subject.model, x[:1], y[:1])
        runs = [clocked(lambda: attack(subject.model, x, y), device) for _ in range(max(3, shop.settings.repeats))]
        row = _strength(subject.model, runs[-1][0].detach(), y)
    seconds = median(each for _, each in runs)
    shop.rows("attacks").append({"library": name, "steps": ATTACK_STEPS, "images_per_second": len(x) / seconds} | row)


def _strength(model: nn.Module, x: Tensor, y: Tensor) -> dict[str, Any]:
    """What an attack left: the mean cross-entropy that it aimed to raise, and the share of right labels."""
    with torch.no_grad():
        logits = torch.cat([model(part) for part in torch.split(x, 256)])
    right = (logits.argmax(1) == y).double().mean()
    return {"images": len(x), "cross_entropy": float(cross_entropy(logits.double(), y)), "accuracy": float(right)}
