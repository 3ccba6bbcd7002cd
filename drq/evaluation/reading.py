"""Build threats, searches and defences from their settings in a TOML file."""

from __future__ import annotations

import inspect
import re
from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from fractions import Fraction
from math import inf
from typing import Any, TypeVar

import torch
from torch import nn

from drq.defences import PEERS
from drq.defences.defence import Custom, Defence, Quantified, Standard
from drq.defences.learnt_gate import OLDER, LearntGate
from drq.drq import DRQ
from drq.errors import InputError, nearest, one_line, require
from drq.method.calibration import Calibrated
from drq.presets import PAPER_REACH, named
from drq.registry import AIMS, CORRUPTIONS, FRONTS, SEARCHES, SMOOTHINGS
from drq.search.gradient import Smoothing
from drq.search.loop import Search
from drq.system.code import PYTHON, code_place, load_object
from drq.threats.corruptions import KINDS, Corruption
from drq.threats.listing import FAMILIES
from drq.threats.paper_ensemble import ensemble
from drq.threats.threat import Threat
from drq.views import Gate, as_views

Made = TypeVar("Made")

_KINDS_OF_THREATS: list[Any] = [*FAMILIES.values(), CORRUPTIONS]
THREATS: Mapping[str, Any] = ChainMap(*reversed(_KINDS_OF_THREATS))  # whose names come from the last map to the first
MAKERS: Mapping[str, Mapping[str, Any]] = {"threat": THREATS, "search": SEARCHES, "smooth": SMOOTHINGS, "front": FRONTS}
KINDS_OF: Mapping[str, Any] = {"threat": Threat, "search": Search, "smooth": Smoothing, "front": Callable}
ROLES = {"explore": "search", "quantify": "search", "smooth": "smooth", "attack": "threat", "members": "threat", "front": "front"}
LEFT_OUT = {"model", "photographs", "tell", "progress", "keep_points"}  # objects, paths, what no result depends on
PER_FEATURE = {"bounds": (float, "numbers"), "frozen": (bool, "true or false")}  # settings with a value for every feature
NOTHING = ("bounds", "detail")  # settings that "none" leaves out, as TOML has no word for it and others are their defaults
INFINITE = {"inf": inf, "-inf": -inf}  # which JSON cannot hold
FRACTION = re.compile(r"\s*(\d+(\.\d*)?)\s*/\s*(\d+(\.\d*)?)\s*")


def _corruption(kind: str) -> Callable[..., Corruption]:
    """A corruption by its own name."""

    def made(severity: int = 5, *, seed: int = 0) -> Corruption:
        return Corruption(kind, severity, seed=seed)

    return made


def made(role: str, given: Any, where: str, **defaults: Any) -> Any:
    """The object that a name, or a table with a name and settings, describes; an object stays itself.

    Args:
        role: what it is for, under which the table has its name: "threat", "search", "smooth" or "front".
        given: such as ``{search = "Random", samples = 20}``, or just ``"Random"``; ``"python:package.module:Name"`` is of the
            caller's own code.
        where: in the spec, for errors.
        defaults: settings that hold unless others are given, where it has such settings.
    """
    if not isinstance(given, str | Mapping):
        return given
    table = {role: given} if isinstance(given, str) else dict(given)
    name = table.pop(role, None)
    own = code_place(name)
    maker = _maker(role, name, where) if own is None else _own_maker(role, own, where)
    known = _known(maker)
    settings = {key: value for key, value in defaults.items() if key in known} | _settings(table, known, where)
    found = called(maker, settings, where)
    if own is not None:
        _check_own(role, found, own, where)
    return found


def _maker(role: str, name: object, where: str) -> Callable[..., Any]:
    """The class that has this name."""
    makers = MAKERS[role]
    if not isinstance(name, str) or name not in makers:
        remedy = nearest(str(name), makers, f"it is one of {', '.join(makers)}, or {PYTHON}package.module:Name")
        raise InputError(f"{where}.{role} must be the name of a {role}, got {name!r}: {remedy}")
    if role == "threat" and name in CORRUPTIONS:
        return _corruption(name)
    maker: Callable[..., Any] = makers[name]
    return maker


def _own_maker(role: str, place: str, where: str) -> Callable[..., Any]:
    """A class, or a function, of the caller's own code."""
    found: Callable[..., Any] = called(load_object, {"place": place}, where)
    try:
        inspect.signature(found)
    except (TypeError, ValueError) as error:
        got = f"{place}, a {type(found).__name__}"
        raise InputError(f"{where}.{role} must name a class or function that makes a {role}, got {got}: name another") from error
    return found


def _check_own(role: str, found: object, place: str, where: str) -> None:
    """What the caller's own code made must be what it is for, and be told from others in the record."""
    kind = KINDS_OF[role]
    what = f"a drq.{kind.__name__}" if kind is Search else f"a {kind.__name__}"
    require(isinstance(found, kind), f"{where}.{role}", f"be {what}", f"{type(found).__name__} from {place}", "subclass it")
    named = is_dataclass(found) or hasattr(found, "__name__")
    require(named, f"{where}.{role}", "be a dataclass", f"{type(found).__name__} from {place}", "its fields are what is recorded")


def _known(maker: Callable[..., Any]) -> list[str]:
    return [name for name in inspect.signature(maker).parameters if name not in LEFT_OUT]


def _settings(table: Mapping[str, Any], known: list[str], where: str) -> dict[str, Any]:
    """The settings of a table, each of which must be known."""
    for key in table:
        if key not in known:
            remedy = nearest(str(key), known, f"it has {', '.join(known) or 'no settings'}")
            raise InputError(f"{where} must have settings that exist, got {key!r}: {remedy}")
    return {key: setting(key, value, f"{where}.{key}") for key, value in table.items()}


def called(maker: Callable[..., Made], settings: Mapping[str, Any], where: str) -> Made:
    """What is made of these settings; an error says where in the spec they stand."""
    try:
        return maker(**settings)
    except InputError as error:
        raise type(error)(f"{where}: {error}") from error
    except (TypeError, ValueError, AttributeError) as error:
        given = ", ".join(f"{key} = {value!r}" for key, value in settings.items()) or "nothing"
        rule = "have settings of the right kind"
        raise InputError(f"{where} must {rule}, got {given} ({one_line(error)}): correct them") from error


def setting(key: str, value: Any, where: str) -> Any:
    """One value: fractions become numbers, tables and names become what they describe."""
    if key in ROLES and value is not None:
        role = ROLES[key]
        return tuple(made(role, each, where) for each in value) if isinstance(value, list) else made(role, value, where)
    if key == "views" and isinstance(value, str):
        return called(as_views, {"given": value}, where)
    if key in NOTHING and value == "none":
        return None
    if key == "frozen" and isinstance(value, list):
        return _per_feature(key, value, where)
    if key == "bounds" and isinstance(value, list):
        return tuple(_per_feature(key, each, where) if isinstance(each, list) else number(each) for each in value)
    if key == "aim" and isinstance(value, str):
        if value not in AIMS:
            raise InputError(f"{where} must be one of {', '.join(AIMS)}, got {value!r}: {nearest(value, AIMS, 'choose one')}")
        return AIMS[value]
    if isinstance(value, list):
        return tuple(setting("", each, where) for each in value)
    return number(value)


def _per_feature(key: str, values: list[Any], where: str) -> torch.Tensor:
    """Values for features of an input, nested as these are."""
    kind, what = PER_FEATURE[key]
    try:
        found = torch.tensor(values, dtype=torch.float64 if kind is float else None)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"{where} must be {what}, in rows of one length, got others ({one_line(error)}): correct them"
        ) from error
    require(kind is float or found.dtype == torch.bool, where, f"be {what} for every feature", found.dtype, "correct them")
    return found


def number(value: Any) -> Any:
    """A fraction in words as a number; anything else as it is.

    >>> number("51/255")
    0.2
    """
    if isinstance(value, str) and (match := FRACTION.fullmatch(value)) and float(match[3]) > 0:
        return float(Fraction(match[1]) / Fraction(match[3]))
    return value


def names(given: Any, where: str) -> tuple[str, ...]:
    """Names in a list, each once; a star in the name of a corruption stands for all 15."""
    listed = [given] if isinstance(given, str) else given
    several = isinstance(listed, list | tuple | Mapping)
    fits = several and all(isinstance(each, str) and each != "" for each in listed)
    require(fits, where, "be a list of names", repr(given)[:80], 'as in ["digits"]')
    found: list[str] = [kind for each in listed for kind in _corruptions(each)]
    twice = next((each for each in found if found.count(each) > 1), None)
    require(twice is None, where, "name each once", repr(twice), "remove one of the two")
    return tuple(found)


def _corruptions(name: str) -> list[str]:
    first, star, last = name.partition("-c/*")
    return [f"{first}-c/{kind}{last}" for kind in list(KINDS)[:15]] if star else [name]


def some_names(given: Any, where: str, remedy: str) -> tuple[str, ...]:
    """Names in a list that is not empty."""
    require(not isinstance(given, Mapping), where, "be a list of names", "a table", remedy)
    found = names(given, where)
    require(bool(found), where, "name at least one", "none", remedy)
    return found


def _as_table(role: str, given: Any, where: str) -> dict[Any, Any]:
    known = given is None or isinstance(given, str | Mapping)
    remedy = f"call the class, as in {getattr(given, '__name__', 'Name')}(...), or write a table"
    require(known, where, f"be a {role}, its name or a table", " ".join(repr(given).split())[:80], remedy)
    return {role: given} if isinstance(given, str) else dict(given or {})


def defence(name: str, given: Any, where: str) -> Defence:
    """A defence from its table: its kind is ``defence``, else its name; every other key is a setting."""
    if isinstance(given, Defence):
        return given
    if isinstance(given, nn.Module):
        remedy = "write lambda model: drq.DRQ(model, ...), since every model of the spec is defended"
        raise InputError(f"{where} must be a function of the model, got the module {type(given).__name__}: {remedy}")
    if callable(given):
        return Custom(given)
    table = _as_table("defence", given, where)
    kind = table.pop("defence", "drq" if name not in ("standard", "drq", *PEERS) and table else name)
    if (own := code_place(kind)) is not None:
        return Custom(own, {key: number(value) for key, value in table.items()})
    if kind == "standard":
        return called(Standard, _settings(table, _known(Standard), where), where)
    if kind == "drq":
        chosen = called(named, {"name": table.pop("preset", "paper")}, where)
        settings = chosen.changed(drq_settings(table, where))
        follows = chosen.reach == PAPER_REACH or not {"norm", "radius"} & settings.keys()
        require(follows, where, "leave norm and radius to this preset", "one of them", "leave out the preset, or them")
        learnt = {"gate": settings.pop("gate")} if isinstance(settings.get("gate"), LearntGate) else {}
        return called(Quantified, {"settings": settings, "reach": chosen.reach} | learnt, where)
    if kind in PEERS:
        return called(PEERS[kind], _settings(table, _known(PEERS[kind]), where), where)
    names = ("standard", "drq", *PEERS, PYTHON)
    remedy = nearest(str(kind), names, f"it is {', '.join(names[:-1])} or {PYTHON}package.module:function")
    raise InputError(f"{where}.defence must be the name of a defence, got {kind!r}: {remedy}")


def drq_settings(table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The arguments of :class:`drq.DRQ` that a table describes."""
    apart = {"radius", "gate"}
    settings = _settings({key: value for key, value in table.items() if key not in apart}, ["preset", *_known(DRQ)], where)
    if "gate" in table:
        settings["gate"] = _gate(table["gate"], f"{where}.gate")
    radius = table.get("radius")
    if isinstance(radius, Mapping):
        radius = called(Calibrated, _settings(radius, _known(Calibrated), f"{where}.radius"), f"{where}.radius")
    elif radius == "calibrated":
        radius = Calibrated()
    return settings if radius is None else settings | {"radius": number(radius)}


def _gate(given: Any, where: str) -> Any:
    """A gate from its numbers, or how one is learnt for every model."""
    if not isinstance(given, Mapping):
        return given
    kind: Callable[..., Any] = LearntGate if "data" in given else Gate
    remedy = "the threshold is what robust.gated(x).gate has, the data set what a gate is learnt from"
    require("data" in given or "threshold" in given, where, "have a threshold, or data", list(given) or "nothing", remedy)
    settings = {key: INFINITE.get(value, value) if isinstance(value, str) else value for key, value in given.items()}
    known = [*_known(kind), *([OLDER] if kind is LearntGate else [])]
    checked = _settings(settings, known, where)
    return called(LearntGate.read, {"record": checked}, where) if kind is LearntGate else called(kind, checked, where)


def threat(name: str, given: Any, where: str, seed: int) -> dict[str, Threat | None]:
    """The threats that a table describes, by name: one, or the members of the paper's ensemble. None changes nothing."""
    if isinstance(given, Threat):
        return {name: given}
    table = _as_table("threat", given, where)
    kind = table.setdefault("threat", name)
    if kind == "clean":
        _settings({key: value for key, value in table.items() if key != "threat"}, [], where)
        return {name: None}
    if kind == "ensemble":
        settings = _settings({key: value for key, value in table.items() if key != "threat"}, _known(ensemble), where)
        found = called(ensemble, {"seed": seed} | settings, where)
        return {**found}
    if code_place(kind) is None and (not isinstance(kind, str) or kind not in THREATS):
        remedy = nearest(str(kind), [*THREATS, "clean", "ensemble"], "drq threats lists them; clean leaves inputs as they are")
        raise InputError(f"{where}.threat must be the name of a threat, got {kind!r}: {remedy}")
    return {name: made("threat", table, where, seed=seed)}
