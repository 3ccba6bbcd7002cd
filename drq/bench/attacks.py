"""Time our PGD next to Foolbox's and torchattacks', with the same model, images, radius, steps, step size and start."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from drq.bench.bench_run import BenchRun, Task
from drq.bench.inputs import ATTACK_STEPS, BenchInputs
from drq.bench.naive import STEP
from drq.bench.timing import tf32_convolutions, timed_call
from drq.errors import MissingError, imported
from drq.threats.attacks import PGD

Attack = Callable[[nn.Module, Tensor, Tensor], Tensor]
OURS = "drq"


def drq_pgd(inputs: BenchInputs, radius: float) -> Attack:
    """Return our PGD."""
    return PGD(inputs.norm, radius, ATTACK_STEPS)


def foolbox_pgd(inputs: BenchInputs, radius: float) -> Attack:
    """Return Foolbox's PGD."""
    foolbox = imported("foolbox", "this comparison", "run pip install 'decision-region-quantification[attacks]'")
    attack_class = foolbox.attacks.LinfPGD if inputs.norm == "linf" else foolbox.attacks.L2PGD
    attack = attack_class(abs_stepsize=STEP * radius / ATTACK_STEPS, steps=ATTACK_STEPS, random_start=False)

    def attack_batch(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        attacked: Tensor = attack(foolbox.PyTorchModel(model, bounds=(0, 1), device=x.device), x, y, epsilons=radius)[1]
        return attacked

    return attack_batch


def torchattacks_pgd(inputs: BenchInputs, radius: float) -> Attack:
    """Return the PGD of torchattacks."""
    torchattacks = imported("torchattacks", "this comparison", "run pip install scipy, then pip install --no-deps torchattacks")
    attack_class = torchattacks.PGD if inputs.norm == "linf" else torchattacks.PGDL2

    def attack_batch(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        step_size = STEP * radius / ATTACK_STEPS
        attacked: Tensor = attack_class(model, eps=radius, alpha=step_size, steps=ATTACK_STEPS, random_start=False)(x, y)
        return attacked

    return attack_batch


MAKERS: dict[str, Callable[[BenchInputs, float], Attack]] = {
    OURS: drq_pgd,
    "foolbox": foolbox_pgd,
    "torchattacks": torchattacks_pgd,
}


def tasks(run: BenchRun) -> list[Task]:
    """Return one task for each library."""
    weight = 0.05 * run.settings.images * run.settings.repeats
    return [Task(f"PGD of {name}", weight, partial(_measure, run, name)) for name in MAKERS]


def _measure(run: BenchRun, name: str) -> None:
    inputs, device = run.inputs, run.device
    x, y = inputs.x[: run.settings.images], inputs.y[: run.settings.images]
    try:
        attack = MAKERS[name](inputs, inputs.radius / 2)
    except MissingError as error:
        run.note(f"{name} is left out: {error}")
        return
    with tf32_convolutions(False):
        attack(inputs.model, x[:1], y[:1])
        timings = [timed_call(lambda: attack(inputs.model, x, y), device) for _ in range(max(3, run.settings.repeats))]
        row = _strength(inputs.model, timings[-1][0].detach(), y)
    seconds = median(each for _, each in timings)
    run.rows("attacks").append({"library": name, "steps": ATTACK_STEPS, "images_per_second": len(x) / seconds} | row)


def _strength(model: nn.Module, x: Tensor, y: Tensor) -> dict[str, Any]:
    """Measure what an attack achieved: the mean cross-entropy, which it raises, and the accuracy that is left."""
    with torch.no_grad():
        logits = torch.cat([model(part) for part in torch.split(x, 256)])
    right = (logits.argmax(1) == y).double().mean()
    return {"images": len(x), "cross_entropy": float(cross_entropy(logits.double(), y)), "accuracy": float(right)}
