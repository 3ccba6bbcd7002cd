"""Make what answers about pictures, of what was asked for: the classifier with the names of its classes, DRQ, the threshold."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from drq.errors import require
from drq.models import weights
from drq.serving.default_model import choose_model
from drq.serving.defence_predictor import from_file
from drq.serving.predict import Predictor
from drq.threats.threat import plain
from drq.version import __version__
from drq.views.gate import Gate

APART = ("keep_points", "chunk", "progress", "compile")  # settings of DRQ that change no answer


@dataclass(frozen=True)
class Asked:
    """What shall answer: the options of ``drq predict``. None leaves a choice to the preset, the model and what is installed."""

    model: str | None = None
    preset: str | None = None
    norm: str | None = None
    radius: float | None = None
    classes: int | None = None
    views: str | None = None
    gate: str | Gate | None = None  # a folder to learn it from, or what was learnt
    abstain_below: float | None = None
    device: str = "cpu"
    download: bool = False
    defence: str | None = None  # a file that says all of it but where to run
    allow_code: bool = False  # whether that file may name code


class Answering(NamedTuple):
    """What answers."""

    predictor: Predictor  # the classifier with its card, and DRQ around it
    below: float  # it abstains where the margin is smaller
    notes: tuple[str, ...]  # what the user should know, each in a line
    asked: Asked  # what another process makes the same of: nothing is left to choose or to learn

    @property
    def model_sha256(self) -> str:
        """Of the weights."""
        return weights.checksum(self.predictor.model)

    @property
    def settings(self) -> dict[str, Any]:
        """All on which answers depend, made of what JSON knows."""
        predictor, asked = self.predictor, self.asked
        found = {name: plain(value) for name, value in predictor.robust.settings.items() if name not in APART}
        said = {"model": asked.model, "model_sha256": self.model_sha256, "preset": asked.preset, "threshold": self.below}
        of_card = {"input": plain(predictor.card.view), "class_names": list(predictor.card.classes or ())}
        return said | found | of_card | {"drq": __version__}


def answering(asked: Asked, *, keep_points: bool = False, progress: bool = False) -> Answering:
    """Make what answers.

    Args:
        asked: what shall.
        keep_points: whether answers can be explained.
        progress: whether it is shown how far learning a gate is.
    """
    remedy = "margins are differences of robustness"
    below = 0.0 if asked.abstain_below is None else asked.abstain_below
    require(0 <= below <= 1, "--abstain-below", "lie between 0 and 1", below, remedy)
    if asked.defence is not None:
        return _of_file(asked, keep_points)
    given = {name: value for name in ("views", "radius") if (value := getattr(asked, name)) is not None}
    chosen = choose_model(asked.model, asked.preset, asked.classes, given)
    options: dict[str, Any] = {"download": True} if asked.download else {}
    options |= {"views": asked.views, "gate": asked.gate, "progress": progress}
    where = (asked.norm, asked.radius, chosen.classes, asked.device, keep_points, chosen.preset)
    predictor = Predictor(chosen.model, *where, **options)
    learnt = predictor.robust.gate if asked.gate is not None else None
    settled = replace(asked, model=chosen.model, preset=chosen.preset, classes=chosen.classes, gate=learnt)
    return Answering(predictor, below, tuple(filter(None, (chosen.note, predictor.promise))), settled)


def _of_file(asked: Asked, keep_points: bool) -> Answering:
    """What the file of a defence says, and when it abstains unless that was asked for."""
    assert asked.defence is not None
    said = {name: getattr(asked, name) for name in ("model", "norm", "radius", "classes", "preset", "gate", "views")}
    given = {"device": asked.device, "keep_points": keep_points, "allow_code": asked.allow_code, "download": asked.download}
    predictor = from_file(asked.defence, said, **given)
    below = predictor.below if asked.abstain_below is None else asked.abstain_below
    settled = replace(asked, defence=str(Path(asked.defence).absolute()))  # other processes may be in other folders
    return Answering(predictor, below, tuple(filter(None, [predictor.promise])), settled)
