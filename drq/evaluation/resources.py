"""Models, data and defences that shards need: each is made once and kept."""

from __future__ import annotations

import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import count
from threading import Lock
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from drq.data.dataset import Data, Relabelled
from drq.data.loading import load as load_data
from drq.defences.defence import Defence, Quantified
from drq.drq import DRQ
from drq.errors import InputError, MissingError, require
from drq.evaluation.plan import tasks
from drq.evaluation.spec import Spec
from drq.images import View
from drq.method.adapters import Subset, channels_last
from drq.method.execution import InPrecision
from drq.method.settings import PRECISIONS
from drq.models import weights
from drq.models.loading import load as load_model

logger = logging.getLogger("drq")
T = TypeVar("T")
QUICK = {"precision": "float16", "compile": True}  # how DRQ runs on a GPU where it shall be quick


class Cache(Generic[T]):
    """The last few things that were made, each under a key."""

    def __init__(self, most: int) -> None:
        self.most, self.things, self.lock = most, OrderedDict[Hashable, T](), Lock()

    def get(self, key: Hashable, make: Callable[[], T], fits: Callable[[T], bool] = lambda _: True) -> T:
        """The thing under this key, made now unless it is there and still fits. Without a key nothing is kept."""
        if key is None:
            return make()
        with self.lock:
            kept = self.things.pop(key, None)
        thing = kept if kept is not None and fits(kept) else make()
        with self.lock:
            self.things[key] = thing
            while len(self.things) > self.most:
                self.things.popitem(last=False)
        return thing


class PreparedModel:
    """A model in one precision and with one choice of classes; all DRQ around it share what is compiled."""

    _numbers = count()

    def __init__(self, model: InPrecision) -> None:
        self.model, self.number = model, next(self._numbers)  # tells it from all others, as long as the process lives
        self._first: DRQ | None = None

    def sharing(self, robust: DRQ) -> DRQ:
        """The same DRQ, which shares what is compiled with the others."""
        self._first = self._first or robust
        return self._first.variant(**robust.settings)


class LoadedModel:
    """A model on its device, its sha256, and its variants by precision and classes."""

    def __init__(self, model: nn.Module, file: str | None) -> None:
        self.model, self._prepared = model, dict[object, PreparedModel]()
        self._loaded = self._weights()
        self.sha256 = file or self._loaded  # of its file, where there is one

    def _weights(self) -> str:
        return weights.checksum(self.model)

    @property
    def untouched(self) -> bool:
        """Whether its weights are still those that were loaded: a defence may have changed them."""
        return self._weights() == self._loaded

    def prepared(self, subset: tuple[int, ...] | None, precision: str) -> PreparedModel:
        """The model with these of its classes, in this precision."""
        if (subset, precision) not in self._prepared:
            ready = InPrecision(self.model if subset is None else Subset(self.model, subset), PRECISIONS[precision])
            ready.card = getattr(self.model, "card", None)  # type: ignore[assignment]  # it tells defences of the training
            self._prepared[subset, precision] = PreparedModel(ready)
        return self._prepared[subset, precision]


MODELS: Cache[LoadedModel] = Cache(2)  # they outlast a run, so that the next one need not compile them again


@dataclass(frozen=True, eq=False)
class GivenObject:
    """A model or data set that a caller passed as an object: a key by identity, since not every data set can be one."""

    value: Any


@dataclass(frozen=True, eq=False)
class WorkerContext:
    """All that a worker has to know besides its shard: where models and data come from, and how they are run."""

    experiment: str
    spec_hash: str
    seed: int
    precision: str
    quick: bool
    device: str
    threads: int
    rounding: bool
    keep_images: int
    first: int  # sample of every data set that is used
    most: int | None  # samples of a data set that are used, at most
    defences: Mapping[str, Defence]
    models: Mapping[str, GivenObject] = field(repr=False)  # others are loaded by name
    data: Mapping[str, GivenObject] = field(repr=False)
    known: Mapping[str, str] = field(default_factory=dict)  # sha256 of models and data, as they were when the run was begun

    @classmethod
    def of(cls, spec: Spec, device: str) -> WorkerContext:
        """The context for the shards of a spec; the device "auto" is chosen where a shard is judged."""
        every = 2**62 if spec.keep_images is True else int(spec.keep_images)
        models = {name: GivenObject(each) for name, each in spec.given_models.items()}
        data = {name: GivenObject(each) for name, each in spec.given_data.items()}
        limits = [task.limit for task in tasks(spec)]
        most = None if None in limits else spec.first + max(each for each in limits if each is not None)
        how = (spec.seed, spec.precision, spec.quick, device, spec.threads, spec.rounding, every, spec.first, most)
        return cls(spec.name, spec.hash, *how, spec.defences, models, data)


class ModelAndData(NamedTuple):
    """A model and data that fit together."""

    prepared: PreparedModel
    data: Data
    weights_sha256: str
    data_sha256: str

    @property
    def model(self) -> InPrecision:
        """The model in its precision, with the classes that the data has."""
        return self.prepared.model


def chosen_device(name: str) -> str:
    """The device by its name; "auto" takes a GPU where there is one."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.zeros(1, device=name).tolist()  # which the device "meta" cannot
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise InputError(f"device must be one that this machine has, got {name!r}: auto and cpu always work") from error
    return name


def clear_caches() -> None:
    """Load everything anew next time: files may have changed."""
    loaded_model.cache_clear()
    loaded_data.cache_clear()


@lru_cache(maxsize=2)
def loaded_model(name: str, device: str, given: GivenObject | None) -> LoadedModel:
    """A model on its device, loaded by its name unless it is given."""
    model: nn.Module = load_model(name) if given is None else deepcopy(given.value)  # a caller's model stays where it is
    file = None if given is not None else getattr(getattr(model, "card", None), "sha256", None)  # a caller may have trained it on
    model = model.to(device).eval()
    loaded = LoadedModel(channels_last(model) if device.startswith("cuda") else model, file)
    if given is not None or "python:" in name:  # what a function makes may differ in more than its weights
        return loaded
    return MODELS.get((name, device, loaded.sha256), lambda: loaded, lambda kept: kept.untouched)


@lru_cache(maxsize=4)
def loaded_data(
    name: str, view: View | None, given: GivenObject | None, most: int | None
) -> tuple[Data, tuple[int, ...] | None, str]:
    """Data, loaded by its name unless it is given, as a model with this view sees it; the logits that count; its sha256."""
    prepared = None if given is not None and isinstance(given.value, Data) else view  # which says itself how it is seen
    data = load_data(name if given is None else given.value, view=prepared)
    sha256 = data.sha256 or _contents(data, min(len(data), most or len(data)))
    return (data, None, sha256) if data.subset is None else (Relabelled(data), data.subset, sha256)


def _contents(data: Data, count: int, at_once: int = 100) -> str:
    """The sha256 of the first samples, for data that was handed in: nothing else tells it from other data."""
    whole = hashlib.sha256()
    for first in range(0, count, at_once):
        for values in data.batch(range(first, min(first + at_once, count))):
            whole.update(values.numpy().tobytes())
    return whole.hexdigest()


def model_and_data(context: WorkerContext, name: str, data_name: str) -> ModelAndData:
    """A model and data; data that shows only some of the model's classes is judged on those."""
    loaded = loaded_model(name, chosen_device(context.device), context.models.get(name))
    card = getattr(loaded.model, "card", None)
    data, subset, content = loaded_data(data_name, getattr(card, "view", None), context.data.get(data_name), context.most)
    return ModelAndData(loaded.prepared(subset, context.precision), data, loaded.sha256, content)


def check_fit(context: WorkerContext, subject: ModelAndData, name: str, data_name: str) -> int:
    """One image through the model tells whether they belong together, and how many classes there are."""
    model, data, device = subject.model, subject.data, chosen_device(context.device)
    x, y = data.batch([0])
    try:
        with torch.no_grad():
            logits = model(x.to(device))
    except (RuntimeError, ValueError, TypeError) as error:
        shape = f"images of shape {tuple(x.shape[1:])} ({' '.join(str(error).split())[:120]})"
        raise InputError(f"{name} must take the images of {data_name}, got {shape}: they do not belong together") from error
    given = f"shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__
    table = isinstance(logits, Tensor) and logits.dim() == 2
    require(table, name, "return a table of logits", given, "wrap it, see drq.FirstOutput")
    finite = bool(logits.isfinite().all())
    require(finite, name, "return finite logits", "NaN or infinity", "check its weights, and that it takes images in [0, 1]")
    if bool((logits >= 0).all()) and bool((logits.sum(1) - 1).abs().max() < 1e-4):
        logger.warning("drq: what %s returns looks like probabilities; DRQ reads logits, so take its softmax off", name)
    count, label = logits.shape[1], int(y[0])
    known = label < count and (data.classes is None or len(data.classes) == count)
    got = f"{count} logits for {f'label {label}' if data.classes is None else f'{len(data.classes)} classes'}"
    require(known, name, f"know the classes of {data_name}", got, "they do not belong together")
    return int(count)


def build_defences(context: WorkerContext, subject: ModelAndData, names: Iterable[str]) -> dict[str, nn.Module]:
    """Every defence around the model, so that one that cannot be built is reported before anything is written."""
    found = {}
    for name in dict.fromkeys(names):
        try:
            found[name] = build_defence(context, name, subject.prepared, learn=False)
        except MissingError:
            continue  # the loop tells it, and runs the rest
        except InputError as error:
            raise InputError(f"defences.{name}: {error}") from error
    return found


def gate_data(context: WorkerContext, subject: ModelAndData, names: Iterable[str]) -> dict[str, str]:
    """The sha256 of the data sets that gates of these defences are learnt from, by name."""
    view = getattr(getattr(subject.model, "card", None), "view", None)
    given = (context.defences[name] for name in names)
    learnt = {each.gate.data for each in given if isinstance(each, Quantified) and each.gate is not None}
    return {name: loaded_data(name, view, None, None)[2] for name in sorted(learnt)}


def build_defence(context: WorkerContext, name: str, prepared: PreparedModel, learn: bool = True) -> nn.Module:
    """A defence around the model, built anew since it may remember what it saw; ``learn`` tells whether it learns its gate."""
    defence = context.defences[name]
    if isinstance(defence, Quantified) and defence.gate is not None and not learn:
        defence.gate.inputs(prepared.model)  # or it says what is missing
        defence = replace(defence, gate=None)
    if not isinstance(defence, Quantified):
        return defence.around(prepared.model)
    fast = QUICK if context.quick and chosen_device(context.device).startswith("cuda") else {}
    return prepared.sharing(replace(defence, settings=fast | dict(defence.settings)).around(prepared.model))
