"""The radius of exploration: how far away the nearest point is at which another class is as confident (Eq. 1)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from drq.errors import require
from drq.method.execution import Execution, prepare
from drq.norms import Bounds, Norm, as_norm, check_bounds
from drq.objectives import Model, confident_elsewhere, elsewhere_at, log_odds
from drq.search.loop import Problems, check_steps
from drq.search.minimum_norm import MinimumNorm


@dataclass(frozen=True)
class Calibrated:
    """Choose the radius for every sample: the distance to the nearest point of another class with this confidence (Eq. 1).

    Args:
        confidence: threshold c in [0, 1); None for the confidence of the sample itself, as in the paper.
        steps: steps of the Fast Minimum-Norm search.
    """

    confidence: float | None = None
    steps: int = 100

    def __post_init__(self) -> None:
        known = self.confidence is None or (isinstance(self.confidence, int | float) and 0 <= self.confidence < 1)
        require(known, "confidence", "lie in [0, 1) or be None", repr(self.confidence), "None takes the sample's own confidence")
        check_steps("steps", self.steps)

    def problems(self, execution: Execution, x: Tensor, logits: Tensor) -> Problems:
        """To find the nearest confident point of another class; its ``merit`` is the radius, infinite where there is none."""
        label = logits.argmax(1)
        if self.confidence is None:
            own = log_odds(logits, label)
            rounding = 64 * torch.finfo(own.dtype).eps * (1 + own.abs()) + execution.near(logits)
            own = own - rounding  # so that x itself is above it in any batch: on the edge, rounding would choose its slope
            objective = elsewhere_at(execution.searched, label, own)
        else:
            objective = confident_elsewhere(execution.searched, label, self.confidence)
        unlimited = execution.space.ball(x, torch.full_like(logits[:, 0], torch.inf))
        return Problems.new(MinimumNorm(self.steps), objective, unlimited)  # Eq. 1


def calibrate(
    model: nn.Module | Model,
    x: Tensor,
    norm: str | Norm,
    confidence: float | None = None,
    steps: int = 100,
    bounds: Bounds | None = (0.0, 1.0),
    frozen: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Distance of every sample to the nearest point of another class with at least this confidence (Eq. 1).

    Returns:
        radius: (N,), infinite where no such point was found.
        found: (N,) bool.

    >>> model = torch.nn.Linear(2, 2, bias=False).eval()
    >>> _ = model.weight.data.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    >>> calibrate(model, torch.tensor([[0.8, 0.2]]), "l2", confidence=0.5)
    (tensor([0.4243]), tensor([True]))
    """
    calibrated = Calibrated(confidence, steps)
    check_bounds(bounds)
    with torch.inference_mode(False), torch.no_grad():
        x, execution = prepare(model, x, as_norm(norm), bounds, frozen)
        radius = execution.solve(calibrated.problems(execution, x, execution.logits(x))).best.merit
    return radius, radius < torch.inf
