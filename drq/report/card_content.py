"""Prepare what a card shows of a decision on one sample: names, points, confidences and sentences."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from drq.errors import require
from drq.report import plot_style

if TYPE_CHECKING:
    from drq.decision import Decision

MOST_CLASSES = 6  # classes whose confidences are shown
PLACES = ("at the input", "explored", "quantified")  # points whose confidences are shown
LONGEST = 18  # characters of a class's name in a line where there is little room
LEAST_SHOWN = 1 / 3  # of the largest change: changes that are smaller have a colour of their own


def format_radius(value: float) -> str:
    """Return a radius as papers write it, to three digits.

    >>> format_radius(16 / 255), format_radius(2.89724)
    ('16/255', '2.9')
    """
    written = plot_style.fraction(value)
    return written if "/" in written else f"{value:.3g}"


class CardContent(NamedTuple):
    """What a card shows of a decision on one sample."""

    decision: Decision
    names: list[str]  # names of all classes
    x: NDArray[Any]  # (...) the sample
    winner: int
    runner_up: int  # -1 where only one class was reached

    @classmethod
    def from_decision(cls, decision: Decision, names: Sequence[str] | None) -> CardContent:
        """Take the content from a decision on one sample whose points were kept."""
        require(len(decision) == 1, "decision", "be about one sample", len(decision), "decision[i : i + 1] is about one")
        decision.points_of(decision.label)
        assert decision.x is not None
        count = decision.robustness.shape[1]
        class_names = list(names) if names is not None else [f"class {number}" for number in range(count)]
        require(
            len(class_names) == count, "names", f"hold one for each of {count} classes", len(class_names), "None numbers them"
        )
        x = decision.x[0].detach().cpu().numpy()
        return cls(decision, [*map(plot_style.text, class_names)], x, int(decision.label), int(decision.runner_up))

    @property
    def found(self) -> bool:
        """Whether a radius was given or found."""
        return bool(self.decision.found)

    @property
    def region(self) -> str:
        """The norm and the radius in words."""
        name = type(self.decision.norm).__name__.lower()
        return f"{name}, radius {format_radius(self.radius)}" if self.found else f"{name}, no radius"

    @property
    def radius(self) -> float:
        """The radius of exploration; 1 where none was found, since then there are no changes to scale."""
        return float(self.decision.radius) if self.found else 1.0

    @property
    def scale(self) -> float:
        """The limit of the colour scale for changes of pixels, as they are drawn: of colours, their mean.

        For linf it is the radius, which every pixel may use. Other norms share the radius out among the pixels, most of which
        hardly change: of a large picture, nothing would be seen with a limit that depended on the radius alone.
        """
        return self.radius if self.even else float(self._drawn_changes.max()) * LEAST_SHOWN or 1.0

    @property
    def even(self) -> bool:
        """Whether all features can change as much as a single one."""
        assert self.decision.norm is not None
        return float(self.decision.norm.length(torch.ones(1, self.x.size, dtype=torch.float64))) == 1.0

    @property
    def _drawn_changes(self) -> NDArray[Any]:
        """The sizes of all changes of both classes."""
        changes = np.nan_to_num(np.stack([each for _, label in self.best for each in self.changes(label)]))
        sizes: NDArray[Any] = np.abs(changes.mean(1) if self.x.ndim == 3 else changes)
        return sizes

    @property
    def rule(self) -> str:
        """The scale of changes in words."""
        span = f"from -{format_radius(self.scale)} to {format_radius(self.scale)}"
        return f"{span}, the radius" if self.even else f"{span}, a third of the largest"

    @property
    def best(self) -> list[tuple[str, int]]:
        """The two classes whose points are shown, with their roles."""
        return [("winner", self.winner), ("runner-up", self.runner_up)]

    def name(self, label: int) -> str:
        """Return the name of a class."""
        return self.names[label] if label >= 0 else "none"

    def short_name(self, label: int) -> str:
        """Return the name of a class in a short line."""
        name = self.name(label)
        return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"

    def narrow_name(self, label: int) -> str:
        """Return the name of a class in at most two short lines."""
        return "\n".join(textwrap.wrap(self.name(label), LONGEST, max_lines=2, placeholder="…"))

    def points(self, label: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the explored and the quantified point (...) of a class, NaN where there is none."""
        found = self.decision.points_of(torch.full_like(self.decision.label, label))
        explored, quantified = (each[0].detach().cpu().numpy() for each in found)
        return explored, quantified

    def changes(self, label: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the change from the input to the explored point, and from there to the quantified point."""
        explored, quantified = self.points(label)
        return explored - self.x, quantified - explored

    def confidences(self) -> dict[str, NDArray[Any]]:
        """Return the confidences (C,) at each of :data:`PLACES`."""
        found = (self.decision.base_confidence, self.decision.explored_confidence, self.decision.robustness)
        return {name: each[0].detach().cpu().numpy() for name, each in zip(PLACES, found, strict=True)}

    def shown_classes(self) -> list[int]:
        """Return the classes that are shown: winner, runner-up, the model's own answer, then the most confident."""
        values = np.maximum(*[*self.confidences().values()][:2])
        first = [self.winner, self.runner_up, int(self.decision.base_label)]
        order = dict.fromkeys([*first, *np.argsort(-values, kind="stable").tolist()])
        return [each for each in order if each >= 0][:MOST_CLASSES]

    def missing(self, label: int) -> str:
        """Return why a class has no quantified point; "" where it has one."""
        if not self.found:
            return "no radius"
        if label not in self.decision.classes[0].tolist():
            return "not searched"
        if not bool(self.decision.exact[0, label]):
            return "pruned"
        return "" if bool(self.decision.reached[0, label]) else "not reached"

    def sentences(self) -> list[str]:
        """Return the answer, its evidence and its cost, a line each."""
        decision, robustness = self.decision, self.decision.robustness[0].tolist()
        margin = f"margin {float(decision.margin):.3f}"
        first, base = self.name(self.winner), self.name(int(decision.base_label))
        agrees = "as the model alone does" if int(decision.base_label) == self.winner else f"where the model alone answers {base}"
        answer = f"DRQ answers {first}, {agrees}."
        evidence = f"Lowest confidence near the best point of each class: {first} {robustness[self.winner]:.3f}"
        if not self.found:
            answer, why = f"The model alone answers {base}.", "Calibration found no radius to explore: margin 0."
        elif self.runner_up < 0:
            why = f"{evidence}; no other class was reached: {margin}."
        else:
            why = f"{evidence}, {self.name(self.runner_up)} {robustness[self.runner_up]:.3f}: {margin}."
        return [answer, why, f"Searched: {self.region}. Cost: {int(decision.passes)} passes of the model."]
