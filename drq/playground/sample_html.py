"""Render a sample as HTML: the card of DRQ's decision, or the row of a run's records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from drq.decision import Decision
from drq.defences.defence import Quantified
from drq.errors import InputError
from drq.evaluation.reading import defence
from drq.models.classifier import Card
from drq.models.trained import IN_THE_BOX, STORED
from drq.planes.plane import Plane
from drq.playground import markup
from drq.playground.image_sources import class_names, classifier
from drq.report import plots
from drq.system.code import RUNS, refuse_code
from drq.views.seen import Seen

FACTS = {
    "label": "true class",
    "base_prediction": "answer of the model alone",
    "confidence": "its confidence in that",
    "prediction": "answer of the defence",
    "robustness": "robustness of that answer",
    "true_robustness": "robustness of the true class, at most",
    "margin": "margin over the second class",
    "radius": "radius of exploration",
    "candidates": "classes that exploration reached",
    "distance_linf": "largest change of a pixel by the threat",
    "distance_l2": "length of that change",
    "threat_passes": "passes of the model, for the threat",
    "passes": "passes of the model, for the answer",
    "seconds": "seconds, for the answer",
}  # the columns of a record that are shown, and their titles
CLASS_COLUMNS = ("label", "prediction", "base_prediction")  # columns that hold the index of a class


def card(decision: Decision, names: Sequence[str], plane: Plane | None = None, seen: Seen | None = None) -> str:
    """Return the card of a decision: everything that DRQ measured for one input, or saw at its views, as a figure."""
    figure = plots.card(decision, plane, names=names) if seen is None else plots.views_card(decision, seen, names=names)
    return markup.figure(figure, f"Card of the decision of DRQ: {names[int(decision.label)]}")


def known_class_names(model: str, allow_code: bool = False) -> tuple[str, ...] | None:
    """Return the class names of a model that is in the package, else None: a name in a run must not load other models.

    Where code is allowed, a model that a ``python:`` name makes is loaded as well.
    """
    if model in {"digits", *(STORED.keys() & IN_THE_BOX)}:
        return class_names(model)
    if not allow_code or RUNS.match(model) is None:
        return None
    try:
        model_card = getattr(classifier(model), "card", None)
    except InputError:  # the code is not on this machine
        return None
    return model_card.classes if isinstance(model_card, Card) else None


def rerun_decision(model: str, settings: Mapping[str, Any], image: Tensor, allow_code: bool = False) -> Decision | None:
    """Run DRQ with a run's settings on an image; None for models outside of the package, other defences and learnt gates."""
    if known_class_names(model, allow_code) is None or settings.get("defence") != "drq":
        return None
    try:
        refuse_code(settings, "run.json", allow_code)
        quantified = defence("drq", settings, "defence")
        assert isinstance(quantified, Quantified)
        if quantified.gate is not None:  # a name in a run must not load other data
            return None
        return quantified.around(classifier(model)).decide(image[None])
    except InputError:  # settings that were objects cannot always be read back from their record
        return None


def record(row: Mapping[str, Any], names: Sequence[str] | None, image: Tensor | None) -> str:
    """Return a sample's input and the row of the records about it."""
    rows = [(title, _value(name, row[name], names)) for name, title in FACTS.items() if row[name] is not None]
    title = f"Sample {row['index']} of {row['data']}, {row['threat']}"
    img = "" if image is None else f'<img src="{markup.image_url(image)}" alt="the input as the threat left it">'
    picture = f'<div class="pair"><figure><figcaption>as the threat left it</figcaption>{img}</figure></div>' if img else ""
    return picture + markup.table(markup.text(title), ("What", "Value"), rows)


def _value(name: str, value: Any, names: Sequence[str] | None) -> str:
    if name in CLASS_COLUMNS and names is not None and 0 <= value < len(names):
        return markup.text(names[value])
    return f"{value:.4g}" if isinstance(value, float) else markup.text(value)
