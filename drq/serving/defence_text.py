"""The layout of a defence file: what is written in it with which explanations, and what may stand in it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from inspect import signature
from typing import Any

from drq.drq import DRQ
from drq.errors import nearest, require
from drq.serving.stored_defence import About, Fitted, Threshold
from drq.system.toml_text import section

HEAD = (
    "A defence: a model, and how DRQ answers in its place. drq.load_defence() reads this file, and so does --defence on the "
    "command line. Change what you like in an editor; what cannot be is refused. The model is found by its name: its weights "
    "are not in here."
)
SETTINGS = "The arguments of drq.DRQ, written as in specs. What is left out is none."
GATE = "When the model's own answer stands, as robust.gated(x) learnt it."
BY_HAND = "Nothing is promised: drq threshold FOLDER --defence FILE --risk 0.05 fits this to labelled pictures."
PROMISED = "What that margin promises; another one, or other settings, promise nothing."
MEASURED = "How it was measured: for people, and free."
COMMENTS = {
    "drq": "the version that wrote this file",
    "name": "see drq models; what begins with python: runs code, and needs --allow-code",
    "weights_sha256": "of the tensors of the model: others are refused",
    "file_sha256": "of the file that they were loaded from",
    "inputs": "the shape of one",
    "classes": "what each logit stands for",
    "radius": "how far to explore; a table calibrates it for every input",
    "alpha": "the radius of quantification, as a share of that",
    "bounds": "lowest and highest value of an input",
    "margin": "there is no answer where the margin is smaller; 0 answers always",
    "risk": "of answers about new pictures of the same kind at most this share is wrong,",
    "confidence": "with this probability over the choice of the pictures",
    "answered": "share of the pictures",
    "wrong": "share of errors among these answers",
    "defence": "tells these weights and settings from others",
}
SETTING_NAMES = tuple(name for name in signature(DRQ).parameters if name not in ("model", "progress"))
KEYS: Mapping[str, Sequence[str]] = {  # of every table
    "the file": ("drq", "model", "settings", "threshold", "measured"),
    "model": ("name", "weights_sha256", "file_sha256", "inputs", "classes"),
    "settings": SETTING_NAMES,
    "threshold": ("margin", "fitted"),
    "threshold.fitted": tuple(each.name for each in fields(Fitted)),
}
ATTRIBUTES = {"name": "model"}  # where those of About are called otherwise
LARGE = 2**40  # above all sizes, numbers of pictures and margins
HEADING = re.compile(r"\s*\[\s*([\w-]*)")


def as_text(about: About, settings: Mapping[str, Any]) -> str:
    """The file of a defence."""
    model = {name: getattr(about, ATTRIBUTES.get(name, name)) for name in KEYS["model"]}
    others = {name: value for name, value in settings.items() if name != "gate"}
    parts = [
        section("", {"drq": about.version}, COMMENTS, HEAD),
        section("model", {name: value for name, value in model.items() if value is not None}, COMMENTS),
        section("settings", others, COMMENTS, SETTINGS),
        section("settings.gate", settings["gate"], {}, GATE) if "gate" in settings else "",
        threshold_text(about.threshold),
        section("measured", about.measured, {}, MEASURED),
    ]
    return "\n".join(filter(None, parts))


def threshold_text(threshold: Threshold) -> str:
    """The part of the file that says when the defence abstains."""
    if threshold.fitted is None:
        return section("threshold", {"margin": threshold.margin}, COMMENTS, BY_HAND)
    promised = section(
        "threshold.fitted", asdict(threshold.fitted), COMMENTS | {"margin": "the one that is promised for"}, PROMISED
    )
    return f"{section('threshold', {'margin': threshold.margin}, COMMENTS)}\n{promised}"


def with_threshold(text: str, threshold: Threshold) -> str:
    """The text of a file with another threshold; all else stays as a person may have left it."""
    ours, kept, inside, place = {f"# {BY_HAND}", f"# {PROMISED}"}, list[str](), False, None
    for line in text.splitlines():
        if heading := HEADING.match(line):
            inside = heading[1] == "threshold"
            place = len(kept) if inside and place is None else place
        if (not inside or line.lstrip()[:1] in ("", "#")) and line not in ours:
            kept.append(line)
    kept[len(kept) if place is None else place : place] = ["", *threshold_text(threshold).splitlines(), ""]
    changed = re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).rstrip() + "\n"
    before, told = tomllib.loads(text), tomllib.loads(threshold_text(threshold))
    remedy = "write it as drq.DRQ.save does"
    try:
        same = tomllib.loads(changed) == before | told
    except tomllib.TOMLDecodeError:
        same = False
    require(same, "[threshold]", "be a table with a heading of its own, a line for each key", "another one", remedy)
    return changed


def check_keys(table: Any, where: str) -> None:
    """A table of the file has keys that are known there, and no others."""
    known = KEYS[where]
    require(isinstance(table, Mapping), where, "be a table", type(table).__name__, f"it has {', '.join(known[:5])}")
    for key in table:
        require(key in known, where, "have keys that exist", repr(key), nearest(key, known, f"it has {', '.join(known)}"))


def check_all_keys(table: Mapping[str, Any]) -> None:
    """Every table of the file is one that is known, with known keys; what was measured is free."""
    check_keys(table, "the file")
    check_keys(table.get("model"), "model")
    check_keys(table.get("settings"), "settings")
    check_keys(table.get("threshold", {}), "threshold")
    check_keys(table.get("threshold", {}).get("fitted", {}), "threshold.fitted")
    measured = table.get("measured", {})
    require(isinstance(measured, Mapping), "measured", "be a table", type(measured).__name__, "write [measured]")


def about(table: Mapping[str, Any]) -> About:
    """What a file says besides settings."""
    model, threshold = table["model"], table.get("threshold", {})
    for key in ("name", "weights_sha256"):
        require(_is_line(model.get(key)), f"model.{key}", "be a line of text", _shown(model.get(key)), "drq.DRQ.save writes it")
    of_file, inputs, classes = (model.get(key) for key in ("file_sha256", "inputs", "classes"))
    require(of_file is None or _is_line(of_file), "model.file_sha256", "be a line of text", _shown(of_file), "leave it out")
    _check_list(inputs, _is_size, "model.inputs", "whole numbers above 0, as in [3, 32, 32]")
    _check_list(classes, _is_line, "model.classes", 'names, as in ["cat", "dog"]')
    require("margin" in threshold or not threshold, "threshold", "have a margin", list(threshold), "0 answers always")
    promised = threshold.get("fitted")
    return About(
        model["name"],
        model["weights_sha256"],
        of_file,
        None if inputs is None else tuple(inputs),
        None if classes is None else tuple(classes),
        Threshold(threshold.get("margin", 0.0), None if promised is None else _fitted(promised)),
        dict(table.get("measured", {})),
        str(table.get("drq", "")),
    )


def _check_list(given: Any, fits: Callable[[Any], bool], where: str, what: str) -> None:
    """A list of values of one kind, or nothing."""
    known = given is None or (isinstance(given, list) and len(given) > 0 and all(map(fits, given)))
    require(known, where, f"be a list of {what}", _shown(given), "leave it out where it is unknown")


def _fitted(table: Mapping[str, Any]) -> Fitted:
    remedy = "take [threshold.fitted] out, or fit it anew"
    for each in fields(Fitted):
        value, text = table.get(each.name), each.type == "str"
        what = "a line of text" if text else "a number"
        require((_is_line if text else _is_number)(value), f"threshold.fitted.{each.name}", f"be {what}", _shown(value), remedy)
    return Fitted(**table)


def _is_line(value: object) -> bool:
    """Text that a terminal shows as it is."""
    return isinstance(value, str) and value.isprintable()


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < LARGE


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -LARGE < value < LARGE


def _shown(value: object) -> str:
    return repr(value)[:80]
