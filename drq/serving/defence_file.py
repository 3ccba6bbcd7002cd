"""A defence as a file: its model by name, all its settings, when it abstains, and how it was measured, as TOML for people."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from drq.defences.learnt_gate import LearntGate
from drq.drq import DRQ
from drq.errors import InputError, one_line, require
from drq.evaluation.reading import drq_settings
from drq.models import weights
from drq.models.classifier import Card
from drq.models.loading import load
from drq.serving import defence_text
from drq.serving.settings_table import settings_table
from drq.serving.stored_defence import About, StoredDefence, Threshold
from drq.system import toml_text
from drq.system.code import refuse_code
from drq.system.files import atomic_write

ANOTHER = "save(path, model='python:package.module:factory') or 'file:weights.safetensors' names it"
SAVED_FOR_OTHERS = "the defence was saved for others"


def save(
    robust: DRQ,
    path: str | Path,
    model: str | None = None,
    threshold: float | Threshold | None = None,
    measured: Mapping[str, Any] | None = None,
) -> None:
    """Write a defence to a file, whole or not at all; see :meth:`drq.DRQ.save`."""
    module, old = robust.model, robust.about if isinstance(robust, StoredDefence) else None
    require(isinstance(module, nn.Module), "model", "be a torch.nn.Module to be saved", type(module).__name__, ANOTHER)
    assert isinstance(module, nn.Module)
    if threshold is not None and not isinstance(threshold, Threshold):
        threshold = Threshold(threshold)
    shape, classes, of_file = _known(module)
    about = About(
        _name(module, model or (old.model if old else None)),
        weights.checksum(module),
        of_file,
        old.inputs if old else shape,
        old.classes if old else classes,
        threshold or (old.threshold if old else Threshold()),
        measured if measured is not None else old.measured if old else {},
    )
    text = defence_text.as_text(about, robust.table if isinstance(robust, StoredDefence) else settings_table(robust))
    _defence(tomllib.loads(text), module)  # what is written can be read
    write(Path(path), text)


def write(path: Path, text: str) -> None:
    """Write a text to a file, whole or not at all."""
    try:
        with atomic_write(path) as file:
            file.write(text.encode())
    except OSError as error:
        reason = f"{str(path)!r} ({error.strerror})"
        raise InputError(f"path must name a file that can be written, got {reason}: as in defence.toml") from error


def load_defence(
    path: str | Path, model: nn.Module | str | None = None, allow_code: bool = False, *, download: bool = False
) -> StoredDefence:
    """The defence in a file that :meth:`drq.DRQ.save` wrote, and that a person may have changed since.

    Args:
        path: of the file.
        model: in place of the one that the file names: a module, or another name. Its weights must be the same.
        allow_code: whether the file may name code to run, as in ``python:package.module:function``.
        download: whether weights that are not on this machine may be fetched.

    >>> import tempfile
    >>> from drq.models import load
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     DRQ(load("digits"), "linf", 0.2).save(f"{folder}/defence.toml")
    ...     robust = load_defence(f"{folder}/defence.toml")
    >>> robust.about.model, robust.radius
    ('digits', 0.2)
    """
    table = toml_text.read(Path(path), "defence", "robust.save(path) writes one")
    try:
        defence_text.check_all_keys(table)
        free = {"measured": None} | ({} if model is None else {"model": None})  # which run nothing
        refuse_code(table | free, path, allow_code)
        about = defence_text.about(table)
        module = model if isinstance(model, nn.Module) else _loaded(about, model, download)
        return _defence(table, module)
    except InputError as error:
        where = "" if str(error).startswith(str(path)) else f"{path}: "
        raise type(error)(f"{where}{error}") from error


def _known(module: nn.Module) -> tuple[tuple[int, ...] | None, tuple[str, ...] | None, str | None]:
    """The shape of inputs, the names of classes, and the sha256 of the file of weights, as far as the model's card has them."""
    card = getattr(module, "card", None)
    if not isinstance(card, Card):
        return None, None, None
    view = card.view
    return None if view is None else (view.channels, view.height, view.width), card.classes, card.sha256


def _name(module: nn.Module, given: str | None) -> str:
    """The name of the model; what it stands for has the same weights."""
    card = getattr(module, "card", None)
    name = given or getattr(module, "loaded_as", None) or (card.name if isinstance(card, Card) else None)
    require(isinstance(name, str), "model", "be given for one without a name", type(module).__name__, ANOTHER)
    assert isinstance(name, str)
    try:
        named = load(name)
    except InputError as error:
        rule = "be a name that drq.load_model knows" if given else "be given for one without a name"
        raise InputError(f"model must {rule}, got {name[:200]!r} ({one_line(error)}): {ANOTHER}") from error
    same = weights.checksum(named) == weights.checksum(module)
    require(same, "model", "stand for the weights that are saved", f"{name!r}, which has others", ANOTHER)
    return name


def _loaded(about: About, name: str | None, download: bool) -> nn.Module:
    """The model that the file names, or that of another name; the file of its weights is the same."""
    fits = name is None or isinstance(name, str)
    require(fits, "model", "be a torch.nn.Module or a name", type(name).__name__, "leave it out for that of the file")
    module = load(about.model if name is None else name, **({"download": True} if download else {}))
    _, _, of_file = _known(module)
    same = name is not None or None in (of_file, about.file_sha256) or of_file == about.file_sha256
    require(same, "model.file_sha256", f"be {of_file}, as {about.model} has it", about.file_sha256, SAVED_FOR_OTHERS)
    return module


def _defence(table: Mapping[str, Any], module: nn.Module) -> StoredDefence:
    """The defence that a file describes, around the model that it was saved with."""
    about = defence_text.about(table)
    found, expected = weights.checksum(module), about.weights_sha256
    rule = f"be that of its weights, {found[:12]}..."
    require(found == expected, f"weights_sha256 of {about.model}", rule, f"{expected[:12]}...", SAVED_FOR_OTHERS)
    shape, classes, _ = _known(module)
    fits = None in (shape, about.inputs) or shape == about.inputs
    require(
        fits, "model.inputs", f"be {list(shape or ())}, as {about.model} takes them", list(about.inputs or ()), "correct them"
    )
    named = None in (classes, about.classes) or len(classes or ()) == len(about.classes or ())
    rule = f"have a name for each of {len(classes or ())} classes"
    require(named, "model.classes", rule, len(about.classes or ()), "rename them as you like, in this order")
    try:
        return StoredDefence(module, _settings(table["settings"]), about, table["settings"])
    except InputError as error:
        at = "" if str(error).startswith("settings") else "settings: "
        raise type(error)(f"{at}{error}") from error
    except (TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError) as error:
        raise InputError(f"settings must be of the right kind, got others ({one_line(error)}): correct them") from error


def _settings(table: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of DRQ that the file has."""
    kept = {name: value for name, value in table.items() if name == "keep_points"}  # which specs decide themselves
    settings = drq_settings({name: value for name, value in table.items() if name not in kept}, "settings") | kept
    learnt = not isinstance(settings.get("gate"), LearntGate)
    remedy = "robust.gated(x).save(path) writes those of one"
    require(learnt, "settings.gate", "be plain numbers", "data to learn them from", remedy)
    return settings
