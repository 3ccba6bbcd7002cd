"""A rough estimate of the work that a sample of a task takes, for the time left: samples differ by factors of a thousand."""

from __future__ import annotations

from torch import nn

from drq.drq import DRQ
from drq.evaluation.plan import Task
from drq.threats.threat import Attack, Threat

ATTRIBUTES = (
    "passes",
    "budget",
    "steps",
    "queries",
    "draws",
    "worst_of",
)  # of a threat, of which the first that it has counts its passes


def effort(task: Task, defences: list[nn.Module], classes: int, rounding: bool) -> float:
    """Passes of a model with so many classes, for one sample."""
    answers = [each.most_passes(classes) if isinstance(each, DRQ) else 1 for each in defences]
    threat = task.trial.threat
    attacked = answers[0] if task.trial.victim == "defence" and isinstance(threat, Attack) else 1
    again = 2 if rounding and threat is not None else 1
    return 1.0 + _passes(threat) * attacked + again * sum(answers)


def _passes(threat: Threat | None) -> float:
    if threat is None:
        return 0.0
    counts = (getattr(threat, name, None) for name in ATTRIBUTES)
    return next((float(each) for each in counts if isinstance(each, int | float) and each < float("inf")), 0.0)
