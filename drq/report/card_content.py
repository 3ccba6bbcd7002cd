"""A decision about one sample, in the words and numbers of its card."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from drq.errors import require
from drq.report import plot_style

if TYPE_CHECKING:
    from drq.decision import Decision

CLASSES = 6  # whose confidences are shown, at most
PLACES = ("at the input", "explored", "quantified")  # where confidences are told
LONGEST = 18  # letters of a class beside pictures and bars


def short(value: float) -> str:
    """A length as papers write it, to three digits.

    >>> short(16 / 255), short(2.89724)
    ('16/255', '2.9')
    """
    written = plot_style.fraction(value)
    return written if "/" in written else f"{value:.3g}"


class Told(NamedTuple):
    """What a card says of a decision."""

    decision: Decision
    names: list[str]  # of all classes
    x: NDArray[Any]  # (...)
    winner: int
    runner_up: int  # -1 for none

    @classmethod
    def of(cls, decision: Decision, names: Sequence[str] | None) -> Told:
        """Of a decision about one sample; an error where its points were not kept."""
        require(len(decision) == 1, "decision", "be about one sample", len(decision), "decision[i : i + 1] is about one")
        decision.points_of(decision.label)
        assert decision.x is not None
        count = decision.robustness.shape[1]
        named = list(names) if names is not None else [f"class {number}" for number in range(count)]
        require(len(named) == count, "names", f"hold one for each of {count} classes", len(named), "None numbers them")
        x = decision.x[0].detach().cpu().numpy()
        return cls(decision, [*map(plot_style.text, named)], x, int(decision.label), int(decision.runner_up))

    @property
    def found(self) -> bool:
        """Whether there is a radius."""
        return bool(self.decision.found)

    @property
    def region(self) -> str:
        """Norm and radius."""
        name = type(self.decision.norm).__name__.lower()
        return f"{name}, radius {short(self.radius)}" if self.found else f"{name}, no radius"

    @property
    def radius(self) -> float:
        """Of exploration; 1 where none was found, since then nothing was changed by it."""
        return float(self.decision.radius) if self.found else 1.0

    @property
    def scale(self) -> float:
        """Changes of pixels are shown from minus this to this: the geometric mean of what a single feature can change, which is
        the radius, and of what all can change together. For linf both are the radius.
        """
        return float(np.sqrt(self.radius * self._evenly)) or 1.0

    @property
    def _evenly(self) -> float:
        """What every feature changes where all change alike."""
        assert self.decision.norm is not None
        return self.radius / float(self.decision.norm.length(torch.ones(1, self.x.size, dtype=torch.float64)))

    @property
    def rule(self) -> str:
        """What the scale is, in words."""
        span = f"from -{short(self.scale)} to {short(self.scale)}"
        if self._evenly == self.radius:
            return f"{span}, the radius"
        alone, together = short(self.radius), short(self._evenly)
        return f"{span}:\nthe geometric mean of {alone}, by which one value can change, and {together}, by which all can together"

    @property
    def best(self) -> list[tuple[str, int]]:
        """The two classes whose points are shown, and what they are."""
        return [("winner", self.winner), ("runner-up", self.runner_up)]

    def brief(self, label: int) -> str:
        """The name of a class where there is little room."""
        name = self.names[label] if label >= 0 else "none"
        return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"

    def points(self, label: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """The explored and the quantified point (...) of a class, NaN where there is none."""
        found = self.decision.points_of(torch.full_like(self.decision.label, label))
        explored, quantified = (each[0].detach().cpu().numpy() for each in found)
        return explored, quantified

    def changes(self, label: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """What exploration changed of the input, and quantification of what was explored."""
        explored, quantified = self.points(label)
        return explored - self.x, quantified - explored

    def confidences(self) -> dict[str, NDArray[Any]]:
        """(C,) by the names of :data:`PLACES`."""
        found = (self.decision.base_confidence, self.decision.explored_confidence, self.decision.robustness)
        return {name: each[0].detach().cpu().numpy() for name, each in zip(PLACES, found, strict=True)}

    def shown(self) -> list[int]:
        """The classes whose confidences are shown: the winner, the runner-up, the model's own answer, then the most confident."""
        values = np.maximum(*[*self.confidences().values()][:2])
        first = [self.winner, self.runner_up, int(self.decision.base_label)]
        order = dict.fromkeys([*first, *np.argsort(-values, kind="stable").tolist()])
        return [each for each in order if each >= 0][:CLASSES]

    def missing(self, label: int) -> str:
        """Why a class has no quantified point; "" where it has one."""
        if not self.found:
            return "no radius"
        if label not in self.decision.classes[0].tolist():
            return "not searched"
        if not bool(self.decision.exact[0, label]):
            return "pruned"
        return "" if bool(self.decision.reached[0, label]) else "not reached"

    def words(self) -> list[str]:
        """The answer, by how much, and what it cost: one line each."""
        decision, left = self.decision, self.decision.robustness[0].tolist()
        margin = f"margin {float(decision.margin):.3f}"
        first, base = self.brief(self.winner), self.brief(int(decision.base_label))
        agrees = "as the model alone does" if int(decision.base_label) == self.winner else f"where the model alone answers {base}"
        answer = f"DRQ answers {first}, {agrees}."
        kept = f"Lowest confidence near the best point of each class: {first} {left[self.winner]:.3f}"
        if not self.found:
            answer, why = f"The model alone answers {base}.", "Calibration found no radius to explore: margin 0."
        elif self.runner_up < 0:
            why = f"{kept}; no other class was reached: {margin}."
        else:
            why = f"{kept}, {self.brief(self.runner_up)} {left[self.runner_up]:.3f}: {margin}."
        return [answer, why, f"Searched: {self.region}. Cost: {int(decision.passes)} passes of the model."]
