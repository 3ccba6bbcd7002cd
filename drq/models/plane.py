"""A support vector machine of points in the plane, with pockets of one class inside the other (Figure 1 of the paper)."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from drq.data.plane import points
from drq.errors import imported
from drq.method.adapters import Wrapper
from drq.models.classifier import Card
from drq.models.known import FittedModel
from drq.models.scikit import from_sklearn

NAME = "gaussians-svm"
SUMMARY = "support vector machine with a narrow kernel, fitted at once on the points of gaussians"
GAMMA, PENALTY = 100.0, 100.0  # the boundary bends round single training points, so that there is something to smooth


class Machine(Wrapper):
    """A classifier of points (N, 2) in the unit square, with its card."""

    def __init__(self, model: nn.Module, card: Card) -> None:
        super().__init__(model)
        self.card = card

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model(x)
        return logits


def fitted() -> Any:
    """The estimator of scikit-learn. Its probabilities are learned by cross-validation: a decision function has none."""
    remedy = "pip install 'decision-region-quantification[demo]'"
    svm, calibration = (imported(f"sklearn.{part}", NAME, remedy) for part in ("svm", "calibration"))
    x, y = points("train")
    machine = svm.SVC(gamma=GAMMA, C=PENALTY)
    return calibration.CalibratedClassifierCV(machine, ensemble=False).fit(x.numpy(), y.numpy())


def load() -> Machine:
    """The classifier."""
    return Machine(from_sklearn(fitted()), Card(NAME, SUMMARY, classes=("1", "2")))


MACHINE = FittedModel(SUMMARY, load)
