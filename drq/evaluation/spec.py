"""What is evaluated: models, data, threats and defences, as a TOML file or as Python objects."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import NoneType
from typing import Any, Literal, Self

from torch import nn
from torch.utils.data import Dataset

from drq.errors import InputError, nearest, one_line, require
from drq.evaluation import reading
from drq.method.settings import PRECISIONS
from drq.system.code import check_beside, refuse_code
from drq.threats.corruptions import Corruption
from drq.threats.noise import GaussianNoise
from drq.threats.threat import Threat

VICTIMS = ("base", "defence")
ENGINES = ("local", "ray")
LARGEST = 2**63 - 1  # that a column of whole numbers can hold
BLIND = (NoneType, Corruption, GaussianNoise)  # threats that look at nobody: all defences see the same
NOT_RESULTS = ("title", "engine", "device")  # keys that no record depends on


@dataclass(frozen=True)
class Trial:
    """A threat in a spec: whom it looks at, and on how many samples.

    Args:
        threat: None leaves inputs as they are.
        victim: "base", the undefended model, or "defence": then each defence is attacked itself. None for the spec's.
        limit: of samples; None for the spec's.
        suite: threats over which a worst case is taken have the same; None for the threat's own name.
        title: under which it is recorded; None for its name in the spec.
    """

    threat: Threat | None = None
    victim: Literal["base", "defence"] | None = None
    limit: int | None = None
    suite: str | None = None
    title: str | None = None


@dataclass(frozen=True)
class Group:
    """Models and data that belong together, with the threats and defences that they are evaluated with; None for all."""

    models: tuple[str, ...]
    data: tuple[str, ...]
    threats: tuple[str, ...] | None = None
    defences: tuple[str, ...] | None = None
    limit: int | None = None


@dataclass(frozen=True, kw_only=True)
class Spec:
    """What is evaluated. Everything is checked when it is made.

    Args:
        models: names, see :func:`drq.load_model`; or a dict of names and modules of your own.
        data: names, see :func:`drq.load_data`; or a dict of names and torch Datasets. ``cifar10-c/*/5`` is all 15 corruptions.
        threats: by name: a :class:`drq.threats.Threat`, a :class:`Trial`, None for none, or a table as in TOML.
        defences: by name: a :class:`drq.defences.Defence`, a function that wraps a model, or a table as in TOML.
        groups: in place of models and data where not everything is evaluated with everything.
        name: of the run; that of the file by default.
        title: for people.
        seed: of every threat in a table that does not say its own.
        first: sample of every data set; those before it are left out.
        limit: of samples of every data set, from the first on; None for all.
        victim: whom threats look at, unless they say.
        precision: in which models run.
        quick: whether DRQ runs on a GPU compiled and in float16, with near ties in float32; elsewhere it changes nothing.
        shard: samples between two writes.
        threads: that torch uses on a CPU; part of the spec, since sums depend on it.
        keep_images: how many inputs of every threat are kept as it left them; True for all.
        rounding: whether defences are asked again at inputs rounded to 8 bits.
        engine: "local" or "ray".
        device: "auto", "cpu", "cuda" ...

    >>> spec = Spec(models=["digits"], data=["digits"], defences={"DRQ": {"norm": "linf", "radius": "51/255"}})
    >>> spec.defences["DRQ"]
    Quantified(settings={'norm': 'linf', 'radius': 0.2}, reach=2.0, gate=None)
    """

    models: Sequence[str] | Mapping[str, nn.Module] = ()
    data: Sequence[str] | Mapping[str, Dataset[Any]] = ()
    threats: Mapping[str, Any] = field(default_factory=lambda: {"clean": None})
    defences: Mapping[str, Any] = field(default_factory=lambda: {"standard": {}, "DRQ": {"defence": "drq"}})
    groups: Sequence[Any] = ()
    name: str = "run"
    title: str = ""
    seed: int = 0
    first: int = 0
    limit: int | None = None
    victim: str = "base"
    precision: str = "float32"
    quick: bool = False
    shard: int = 100
    threads: int = 1
    keep_images: int | bool = 0
    rounding: bool = True
    engine: str = "local"
    device: str = "auto"
    given_models: Mapping[str, nn.Module] = field(init=False, repr=False)
    given_data: Mapping[str, Dataset[Any]] = field(init=False, repr=False)
    source: Mapping[str, Any] | None = field(default=None, init=False, repr=False)  # the table that it was made of

    def __post_init__(self) -> None:
        self._check_values()
        for name in ("models", "data"):
            given = getattr(self, name)
            kind: type = nn.Module if name == "models" else Dataset
            self._put(f"given_{name}", _given_objects(given, name, kind) if isinstance(given, Mapping) else {})
            self._put(name, reading.names(given, name))
        self._put("threats", dict(self._trials()))
        tables = _table(self.defences, "defences")
        self._put("defences", {name: reading.defence(name, each, f"defences.{name}") for name, each in tables})
        require(bool(self.defences), "defences", "have at least one", "none", "standard is the model alone")
        self._put("groups", tuple(self._groups()))

    def _put(self, name: str, value: Any) -> None:
        """Replace what was given by what it means; afterwards nothing changes any more."""
        object.__setattr__(self, name, value)

    def _check_values(self) -> None:
        choices = {"victim": VICTIMS, "precision": tuple(PRECISIONS), "engine": ENGINES}
        for key, known in choices.items():
            value = getattr(self, key)
            remedy = nearest(str(value), known, f"{known[0]} is the default")
            require(value in known, key, f"be one of {', '.join(known)}", repr(value), remedy)
        for key, least in {"seed": 0, "first": 0, "shard": 1, "threads": 1, "limit": 1, "keep_images": 0}.items():
            _check_count(key, getattr(self, key), least, optional=key == "limit", or_true=key == "keep_images")
        for key in ("name", "title", "device"):
            require(isinstance(getattr(self, key), str), key, "be text", repr(getattr(self, key)), "put it in quotes")
        plain = self.name not in ("", ".", "..") and not set(self.name) & set("/\\\0")
        require(plain, "name", "be the name of a folder", repr(self.name), "leave slashes out")
        for key, default in {"rounding": "true", "quick": "false"}.items():
            value = getattr(self, key)
            require(isinstance(value, bool), key, "be true or false", repr(value), f"{default} is the default")

    def _trials(self) -> Iterator[tuple[str, Trial]]:
        """Every threat with its place in the spec; the paper's ensemble becomes its members, in a suite of its name."""
        seen: set[str] = set()
        shown: set[tuple[str, str, str]] = set()
        for name, given in _table(self.threats, "threats"):
            where, own = f"threats.{name}", {}
            if isinstance(given, Mapping):
                own = {key: given[key] for key in ("victim", "limit", "suite") if key in given}
                given = {key: value for key, value in given.items() if key not in own}
            trial = given if isinstance(given, Trial) else Trial(**own)
            _check_trial(trial, where)
            held = trial.threat if isinstance(given, Trial) else given
            members = {name: None} if isinstance(given, Trial) and held is None else reading.threat(name, held, where, self.seed)
            alone = set(members) == {name}
            for member, threat in members.items():
                key = member if alone else f"{name}: {member}"
                require(key not in seen, where, "have a name of its own", repr(key), "rename one of the two")
                seen.add(key)
                victim: Any = "base" if isinstance(threat, BLIND) else trial.victim or self.victim
                made = Trial(threat, victim, trial.limit, trial.suite or name, trial.title or member)
                same = (str(made.suite), str(made.title), victim)
                require(
                    same not in shown,
                    where,
                    "be told from others in its suite",
                    repr(made.title),
                    "give one of the two another suite or title",
                )
                shown.add(same)
                yield key, made
        require(bool(seen), "threats", "have at least one", "none", "clean leaves inputs as they are")

    def _groups(self) -> Iterator[Group]:
        """The groups, with every name in them known."""
        if not self.groups:
            remedy = 'as in models = ["digits"]; or write [[groups]]'
            for key in ("models", "data"):
                require(bool(getattr(self, key)), key, "name at least one", "none", remedy)
            yield Group(tuple(self.models), tuple(self.data))
            return
        listed = isinstance(self.groups, list | tuple)
        require(listed, "groups", "be a list of tables", type(self.groups).__name__, "write [[groups]], with two brackets")
        free = bool(self.given_models or self.given_data) or not (self.models or self.data)
        require(free, "models and data", "stand in the groups where there are groups", "both", "move them into a group")
        for number, given in enumerate(self.groups):
            yield self._group(given, f"groups[{number}]")

    def _group(self, given: Any, where: str) -> Group:
        if isinstance(given, Group):
            given = {key: value for key, value in vars(given).items() if value is not None}
        require(isinstance(given, Mapping), where, "be a table", type(given).__name__, "write [[groups]]")
        known = [each.name for each in fields(Group)]
        for key in given:
            remedy = nearest(str(key), known, f"a group has {', '.join(known)}")
            require(key in known, where, "have keys that exist", repr(key), remedy)
        found: dict[str, Any] = {}
        for key in ("models", "data"):
            found[key] = reading.some_names(given.get(key, ()), f"{where}.{key}", f'as in {key} = ["digits"]')
        for key, choices in (("threats", self._by_table()), ("defences", {each: [each] for each in self.defences})):
            if key in given:
                wanted = reading.some_names(given[key], f"{where}.{key}", "leave it out for all")
                found[key] = tuple(_chosen(wanted, choices, f"{where}.{key}"))
        _check_count(f"{where}.limit", given.get("limit"), 1, optional=True)
        return Group(**found, limit=given.get("limit"))

    def _by_table(self) -> dict[str, list[str]]:
        """The threats that a name in a group may stand for: one, or all of an ensemble."""
        choices = {name: [name] for name in self.threats}
        for name in self.threats:
            table, colon, _ = name.partition(": ")
            if colon and table not in self.threats:
                choices.setdefault(table, []).append(name)
        return choices

    @property
    def contents(self) -> dict[str, Any]:
        """All that records depend on, made of what JSON knows."""
        simple = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in NOT_RESULTS and each.init}
        if not self.first:  # specs are known by their contents, also those that were run before they could leave out samples
            del simple["first"]
        made = {
            "threats": {
                name: vars(trial) | {"threat": trial.threat.record if trial.threat else "clean"}
                for name, trial in self.threats.items()
            },
            "defences": {name: each.record for name, each in self.defences.items()},
            "groups": [{key: value for key, value in vars(group).items() if value is not None} for group in self.groups],
        }
        return json.loads(json.dumps(simple | made))  # type: ignore[no-any-return]  # with lists for tuples, as a file has them

    @property
    def hash(self) -> str:
        """Tells this spec from any other."""
        return hashlib.sha256(json.dumps(self.contents, sort_keys=True).encode()).hexdigest()

    @classmethod
    def read(cls, path: str | Path, *, allow_code: bool = False) -> Self:
        """The spec in a TOML file, or in a JSON file of the same content.

        Args:
            path: of the file.
            allow_code: whether it may name code to run, as in ``python:package.module:function``.
        """
        path = Path(path)
        try:
            text = path.read_text(encoding="utf-8")
            table = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
        except (OSError, ValueError, RecursionError) as error:  # of the file, of its encoding or syntax, of tables without end
            reason = error.strerror if isinstance(error, OSError) else one_line(error)
            remedy = "check its name; drq evaluate --list has those of the paper" if isinstance(error, OSError) else "correct it"
            raise InputError(f"spec must be a TOML file that can be read, got {str(path)!r} ({reason}): {remedy}") from error
        require(isinstance(table, dict), "spec", "be a table", f"{type(table).__name__} in {str(path)!r}", "see docs/evaluate.md")
        refuse_code(table, path, allow_code)
        check_beside(table, path)
        return cls.of({"name": path.stem} | table)

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Self:
        """The spec in a table that the caller vouches for: what it names may run code."""
        known = [each.name for each in fields(cls) if each.init]
        for key in table:
            remedy = nearest(str(key), known, f"it has {', '.join(known)}")
            require(key in known, "spec", "have keys that exist", repr(key), remedy)
        spec = cls(**table)
        spec._put("source", table)
        return spec


def _given_objects(given: Mapping[Any, Any], where: str, kind: type) -> dict[str, Any]:
    remedy = f'by name they stand in a list, as in {where} = ["digits"]'
    for name, each in given.items():
        require(isinstance(each, kind), f"{where}.{name}", f"be a torch {kind.__name__}", type(each).__name__, remedy)
    return dict(given)


def _chosen(wanted: Sequence[str], choices: Mapping[str, list[str]], where: str) -> Iterator[str]:
    for name in wanted:
        remedy = nearest(name, choices, f"there are {', '.join(choices)}")
        require(name in choices, where, "name what the spec has", repr(name), remedy)
        yield from choices[name]


def _table(given: Any, where: str) -> list[tuple[str, Any]]:
    example = f"write [{where}.NAME]"
    require(isinstance(given, Mapping), where, "be a table", type(given).__name__, example)
    for name, each in given.items():
        named = isinstance(name, str) and name.strip() == name != ""
        require(named, where, "have names that are words", repr(name), example)
        simple = isinstance(each, list | tuple | int | float | bool)
        require(not simple, f"{where}.{name}", "be a table", repr(each), example)
    return list(given.items())


def _check_trial(trial: Trial, where: str) -> None:
    known = trial.victim in (None, *VICTIMS)
    require(known, f"{where}.victim", "be base or defence", repr(trial.victim), nearest(str(trial.victim), VICTIMS, "base"))
    _check_count(f"{where}.limit", trial.limit, 1, optional=True)
    named = trial.suite is None or (isinstance(trial.suite, str) and trial.suite != "")
    require(named, f"{where}.suite", "be a name", repr(trial.suite), "threats of one suite share it")


def _check_count(key: str, value: Any, least: int, optional: bool = False, or_true: bool = False) -> None:
    whole = isinstance(value, int) and (or_true or not isinstance(value, bool)) and least <= value <= LARGEST
    too_large = isinstance(value, int) and value > LARGEST
    rule = "lie below 2**63" if too_large else f"be a whole number of at least {least}{', or true' if or_true else ''}"
    require(whole or (optional and value is None), key, rule, repr(value), "leave it out for the default")
