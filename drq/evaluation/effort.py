"""How much work a sample of a task is, roughly: for the time left, since samples differ by factors of a thousand."""

from __future__ import annotations

from torch import nn

from drq.drq import DRQ
from drq.evaluation.plan import Task
from drq.threats.threat import Attack, Threat

COUNTS = ("passes", "budget", "steps", "queries", "draws", "worst_of")  # of what a threat says of itself, the first there is


def effort(task: Task, defences: list[nn.Module], classes: int, rounding: bool) -> float:
    """Passes of a model with so many classes, for one sample."""
    answers = [each.most_passes(classes) if isinstance(each, DRQ) else 1 for each in defences]
    threat = task.trial.threat
    look = answers[0] if task.trial.victim == "defence" and isinstance(threat, Attack) else 1
    again = 2 if rounding and threat is not None else 1
    return 1.0 + _passes(threat) * look + again * sum(answers)


def _passes(threat: Threat | None) -> float:
    if threat is None:
        return 0.0
    told = (getattr(threat, name, None) for name in COUNTS)
    return next((float(each) for each in told if isinstance(each, int | float) and each < float("inf")), 0.0)
