"""Describe the settings of a DRQ in plain values, which specs and defence files read back as the same settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor

from drq.drq import DRQ
from drq.errors import InputError, one_line, require
from drq.evaluation.reading import MAKERS, NOTHING, ROLES
from drq.method.calibration import Calibrated
from drq.norms import Norm
from drq.registry import NORMS
from drq.system.code import PYTHON, load_object
from drq.threats.threat import plain
from drq.views.expression import as_views
from drq.views.gate import Gate
from drq.views.view import Views

MOST_VALUES = 10_000  # for features of an input, in a file that people read
LATER = "leave it out, and set it when the file was read: drq.load_defence(path).variant({}=...)"


def settings_table(robust: DRQ) -> dict[str, Any]:
    """All settings, those at their defaults as well; what is left out is none, and how progress is shown is the caller's.

    >>> import torch
    >>> table = settings_table(DRQ(torch.nn.Linear(2, 2).eval(), "linf", 0.1, classes=2))
    >>> table["norm"], table["radius"], table["classes"], table["bounds"], "front" in table
    ('linf', 0.1, 2, [0.0, 1.0], False)
    """
    given = robust.settings | {"alpha": robust.alpha}
    given.pop("progress")
    if not robust.ball_searched:
        given.pop("radius")  # with views and no radius there is no ball
    return {name: described(name, value) for name, value in given.items() if value is not None or name in NOTHING}


def spec_table(table: Mapping[str, Any]) -> dict[str, Any]:
    """The same settings as those of a defence in a spec, which decides itself what is kept, and may be kept as JSON."""
    kept = {name: value for name, value in table.items() if name != "keep_points"}
    if isinstance(gate := kept.get("gate"), Mapping):
        kept["gate"] = {name: plain(value) for name, value in gate.items()}
    return {"defence": "drq"} | kept


def described(name: str, value: Any) -> Any:
    """One setting as a text, a number, a list or a table."""
    match value:
        case None:
            return "none"
        case Norm():
            return _norm(value)
        case Calibrated():
            return _fields(value, name)
        case Views():
            return _views(value)
        case Gate():
            return value.record
    if name in ROLES:
        return _object(ROLES[name], value, name)
    if name in ("bounds", "frozen"):
        return [_per_feature(name, each) for each in value] if name == "bounds" else _per_feature(name, value)
    if isinstance(value, Tensor):
        remedy = "a number, or drq.Calibrated(), suits all inputs"
        require(value.dim() == 0, name, "be one number to be saved", f"shape {tuple(value.shape)}", remedy)
        value = value.item()
    return _scalar(name, value)


def _scalar(name: str, value: Any) -> Any:
    """Text, true or false, a whole number or another one, whichever library it comes from."""
    if isinstance(value, bool | str):
        return value
    require(isinstance(value, Real), name, "be text or a number to be saved", type(value).__name__, LATER.format(name))
    return int(value) if isinstance(value, Integral) else float(value)


def _norm(norm: Norm) -> str:
    name = next((name for name, kind in NORMS.items() if type(norm) is kind), None)
    require(name is not None, "norm", f"be one of {', '.join(NORMS)} to be saved", repr(norm), LATER.format("norm"))
    assert name is not None
    return name


def _views(views: Views) -> str:
    """The text of views, if that stands for them."""
    text = str(views)
    try:
        same, why = tuple(as_views(text)) == tuple(views), "it stands for others"
    except InputError as error:
        same, why = False, one_line(error)
    remedy = "name a view of your own in text, as in drq.DRQ(model, views='Mirror() + python:package.module:function')"
    require(same, "views", "be text to be saved", f"{text[:80]!r} ({why})", remedy)
    return text


def _object(role: str, given: object, where: str) -> dict[str, Any]:
    """The name and the settings of a search, a smoothing or a front: by its own name, else as code of the caller's."""
    kind = type(given)
    name = next((name for name, known in MAKERS[role].items() if known is kind), None) or _place(kind)
    usable = name is not None and is_dataclass(given)
    rule, remedy = f"be {', '.join(MAKERS[role])}, or a dataclass in a module, to be saved", LATER.format(where.partition(".")[0])
    require(usable, where, rule, kind.__name__, remedy)
    return {role: name} | _fields(given, where)


def _place(kind: type) -> str | None:
    """The name that runs the code of a class; None where it is in no module that others can import."""
    place = f"{kind.__module__}:{kind.__qualname__}"
    try:
        return f"{PYTHON}{place}" if kind.__module__ != "__main__" and load_object(place) is kind else None
    except InputError:
        return None


def _fields(given: Any, where: str) -> dict[str, Any]:
    """The settings of an object, without those that are none by default."""
    values = {each: getattr(given, each.name) for each in fields(given) if each.init}
    for each, value in values.items():
        told = value is not None or _default(each) is None or each.name in NOTHING
        require(told, f"{where}.{each.name}", "be something that text can say", value, "only its default can be none")
    kept = {each.name: value for each, value in values.items() if value is not None or _default(each) is not None}
    return {name: described(name if name in ROLES else f"{where}.{name}", value) for name, value in kept.items()}


def _default(setting: Field[Any]) -> Any:
    return MISSING if setting.default_factory is not MISSING else setting.default


def _per_feature(name: str, values: Any) -> Any:
    """A number, or values for every feature of an input, nested as these are."""
    if not isinstance(values, Tensor):
        return _scalar(name, values)
    count = values.numel()
    require(count <= MOST_VALUES, name, f"have at most {MOST_VALUES:,} values to be saved", f"{count:,}", LATER.format(name))
    return (values if values.dtype == torch.bool else values.double()).tolist()
