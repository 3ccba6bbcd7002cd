"""Answer about pictures as the file of a defence says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from drq.errors import require
from drq.evaluation.resources import chosen_device
from drq.models.classifier import Card
from drq.serving.defence_file import load_defence
from drq.serving.predict import Predictor


class DefencePredictor(Predictor):
    """A defence from a file, ready for pictures.

    Args:
        path: of the file.
        device: where to run.
        keep_points: whether answers can be explained.
        allow_code: whether the file may name code to run.
        download: whether weights that are not on this machine may be fetched.
    """

    def __init__(
        self, path: str, device: str = "cpu", keep_points: bool = False, allow_code: bool = False, download: bool = False
    ) -> None:
        where = chosen_device(device)
        stored = load_defence(path, allow_code=allow_code, download=download).to(where)
        model, about = stored.model, stored.about
        card = getattr(model, "card", None)
        remedy = "use drq.load_defence in Python, where you make its inputs yourself"
        shown = isinstance(card, Card) and card.view is not None
        require(shown, "--defence", "have a model that says what pictures it takes", about.model, remedy)
        assert isinstance(card, Card)
        self.card, self.model = replace(card, classes=about.classes or card.classes), model
        self.keep_points, self.device = keep_points, where
        self.robust = stored.variant(keep_points=keep_points and stored.ball_searched)
        self.below = stored.threshold.margin  # it abstains where the margin is smaller
        self.promise = stored.promise


def from_file(path: str, said: Mapping[str, object], **options: Any) -> DefencePredictor:
    """What answers as a file says, with these options; those that the file settles must not be ``said`` besides."""
    for name, value in said.items():
        require(value is None, f"--{name}", "be left out beside --defence, which says it", value, "edit the file")
    return DefencePredictor(path, **options)
