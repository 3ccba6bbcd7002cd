"""One shard of work: a threat changes the samples once, and every defence says what it sees. It needs torch and numpy alone."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from drq.adapters import InPrecision, Subset
from drq.data.catalogue import load as load_data
from drq.data.dataset import Data, Relabelled
from drq.defences.answers import Answers, answered, settings
from drq.defences.defence import Defence
from drq.drq import DRQ, PRECISIONS
from drq.errors import InputError, MissingError, require
from drq.evaluation.plan import Shard, tasks
from drq.evaluation.records import COLUMNS, DTYPES, NOTHING, SCHEMA_VERSION
from drq.evaluation.spec import Spec
from drq.images import View
from drq.models import weights
from drq.models.catalogue import load as load_model
from drq.norms import L2, Linf
from drq.threads import threads
from drq.threats.threat import Attack, BallThreat, Shifted
from drq.version import __version__

logger = logging.getLogger("drq")
LEVELS = 255  # of an 8-bit image


@dataclass(frozen=True, eq=False)
class Handed:
    """What a caller handed in, told from others by nothing but being itself: not every data set can be a key."""

    it: Any


@dataclass(frozen=True, eq=False)
class Provision:
    """Where models and data come from, and how they are run: all that a worker has to know besides its shard."""

    experiment: str
    spec_hash: str
    seed: int
    precision: str
    device: str
    threads: int
    rounding: bool
    keep_images: int
    most: int | None  # samples of a data set that are used, at most
    defences: Mapping[str, Defence]
    models: Mapping[str, Handed] = field(repr=False)  # others are loaded by name
    data: Mapping[str, Handed] = field(repr=False)
    known: Mapping[str, str] = field(default_factory=dict)  # sha256 of models and data, as they were when the run was begun

    @classmethod
    def of(cls, spec: Spec, device: str) -> Provision:
        """For the shards of a spec; the device "auto" is chosen where a shard is judged."""
        every = 2**62 if spec.keep_images is True else int(spec.keep_images)
        models = {name: Handed(each) for name, each in spec.given_models.items()}
        data = {name: Handed(each) for name, each in spec.given_data.items()}
        limits = [task.limit for task in tasks(spec)]
        most = None if None in limits else max(each for each in limits if each is not None)
        how = (spec.seed, spec.precision, device, spec.threads, spec.rounding, every, most)
        return cls(spec.name, spec.hash, *how, spec.defences, models, data)


class Judged(NamedTuple):
    """The rows of a shard, and the images that are kept of it."""

    rows: dict[str, NDArray[Any]]
    images: NDArray[Any] | None


class Scene(NamedTuple):
    """A model and data that fit together."""

    model: nn.Module
    data: Data
    weights_sha256: str
    data_sha256: str


def chosen_device(name: str) -> str:
    """The device by its name; "auto" takes a GPU where there is one."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.zeros(1, device=name)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device must be one that this machine has, got {name!r}: auto and cpu always work") from error
    return name


def forget() -> None:
    """Load everything anew: files may have changed."""
    the_model.cache_clear()
    the_data.cache_clear()


@lru_cache(maxsize=2)
def the_model(name: str, device: str, given: Handed | None) -> tuple[nn.Module, str]:
    """A model on its device, loaded by its name unless it is given, and its sha256."""
    model: nn.Module = load_model(name) if given is None else deepcopy(given.it)  # a caller's model stays where it is
    sha256 = getattr(getattr(model, "card", None), "sha256", None)
    if sha256 is None or given is not None:  # a caller may have trained it on since it came from its file
        sha256 = weights.contents({key: each.cpu() for key, each in model.state_dict().items()})
    return model.to(device).eval(), sha256


@lru_cache(maxsize=4)
def the_data(name: str, view: View | None, given: Handed | None, most: int | None) -> tuple[Data, tuple[int, ...] | None, str]:
    """Data, loaded by its name unless it is given, as a model with this view sees it; the logits that count; its sha256."""
    seen = None if given is not None and isinstance(given.it, Data) else view  # which says itself how it is seen
    data = load_data(name if given is None else given.it, view=seen)
    sha256 = data.sha256 or _contents(data, min(len(data), most or len(data)))
    return (data, None, sha256) if data.subset is None else (Relabelled(data), data.subset, sha256)


def _contents(data: Data, count: int, at_once: int = 100) -> str:
    """The sha256 of the first samples, for data that was handed in: nothing else tells it from other data."""
    whole = hashlib.sha256()
    for first in range(0, count, at_once):
        for values in data.batch(range(first, min(first + at_once, count))):
            whole.update(values.numpy().tobytes())
    return whole.hexdigest()


def scene(provision: Provision, name: str, data_name: str) -> Scene:
    """A model and data; data that shows only some of the model's classes is judged on those."""
    model, sha256 = the_model(name, chosen_device(provision.device), provision.models.get(name))
    card = getattr(model, "card", None)
    data, subset, content = the_data(data_name, getattr(card, "view", None), provision.data.get(data_name), provision.most)
    ready = InPrecision(model if subset is None else Subset(model, subset), PRECISIONS[provision.precision])
    ready.card = card  # type: ignore[assignment]  # it tells defences of the training
    return Scene(ready, data, sha256, content)


def check_fit(provision: Provision, stage: Scene, name: str, data_name: str) -> int:
    """One image through the model tells whether they belong together, and how many classes there are."""
    model, data, device = stage.model, stage.data, chosen_device(provision.device)
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
    told = f"{count} logits for {f'label {label}' if data.classes is None else f'{len(data.classes)} classes'}"
    require(known, name, f"know the classes of {data_name}", told, "they do not belong together")
    return int(count)


def defended(provision: Provision, stage: Scene, names: Iterable[str]) -> dict[str, nn.Module]:
    """Every defence around the model, so that one that cannot be built is told before anything is written."""
    found = {}
    for name in dict.fromkeys(names):
        try:
            found[name] = provision.defences[name].around(stage.model)
        except MissingError:
            continue  # the loop tells it, and runs the rest
        except InputError as error:
            raise InputError(f"defences.{name}: {error}") from error
    return found


def judge(provision: Provision, shard: Shard) -> Judged:
    """The rows of a shard."""
    with threads(provision.threads):
        stage = scene(provision, shard.task.model, shard.task.data)
        _check_known(provision, shard, stage)
        index = torch.arange(shard.first, shard.last)
        x, y = (each.to(chosen_device(provision.device)) for each in stage.data.batch(index))
        made = {name: provision.defences[name].around(stage.model) for name in shard.task.defences}
        shifted = _shifted(shard, stage.model, made[shard.task.defences[0]], x, y, index)
        shared = _shared(provision, shard, stage) | _at(stage.model, x, y, index, shifted)
        asked = {name: _judged(defence, stage.model, x, y, shifted.x, provision.rounding) for name, defence in made.items()}
    count = max(0, min(provision.keep_images, shard.last) - shard.first)
    kept = shifted.x[:count].cpu().numpy() if count else None
    return Judged(_stacked([shared | each | {"defence": name} for name, each in asked.items()], len(x)), kept)


def _check_known(provision: Provision, shard: Shard, stage: Scene) -> None:
    """Refuse what changed since the run was begun, or is another on the machine of this worker."""
    found = {f"model {shard.task.model}": stage.weights_sha256, f"data {shard.task.data}": stage.data_sha256}
    for what, sha256 in found.items():
        known = provision.known.get(what, sha256)
        require(known == sha256, what, f"have the sha256 {known}", sha256, "it changed, or is another one on this machine")


def _shifted(shard: Shard, model: nn.Module, defence: nn.Module, x: Tensor, y: Tensor, index: Tensor) -> Shifted:
    """What the threat makes of the samples, given its victim."""
    threat, victim = shard.task.trial.threat, model
    if threat is None:
        return Shifted(x, torch.zeros(len(x)))
    if shard.task.trial.victim == "defence":
        victim = defence
        if isinstance(victim, DRQ):  # an attack on scores must see those of all classes
            victim = victim.variant(keep_points=False, prune="none" if isinstance(threat, Attack) else victim.prune)
    return threat.run(victim, x, y, index=index)


def _shared(provision: Provision, shard: Shard, stage: Scene) -> dict[str, Any]:
    """What is the same in all rows of a shard."""
    task, threat = shard.task, shard.task.trial.threat
    device = chosen_device(provision.device)
    return {
        "experiment": provision.experiment,
        "model": task.model,
        "data": task.data,
        "suite": task.trial.suite,
        "threat": task.trial.title,
        "victim": task.trial.victim,
        "threat_radius": threat.radius if isinstance(threat, BallThreat) else np.nan,
        "seed": provision.seed,
        "precision": provision.precision,
        "device": torch.cuda.get_device_name(device) if device.startswith("cuda") else device,
        "spec_hash": provision.spec_hash,
        "weights_sha256": stage.weights_sha256,
        "data_sha256": stage.data_sha256,
        "drq_version": __version__,
        "torch_version": torch.__version__.partition("+")[0],
        "schema_version": SCHEMA_VERSION,
    }


def _at(model: nn.Module, x: Tensor, y: Tensor, index: Tensor, shifted: Shifted) -> dict[str, Any]:
    """What the undefended model says where the threat left the samples, and how far that is."""
    with torch.no_grad():
        logits = model(shifted.x).double()
    known = int(y.max()) < logits.shape[1]
    require(known, "labels", f"lie below {logits.shape[1]}, the model's classes", int(y.max()), "check the order of classes")
    best = logits.topk(2).values
    right = logits.argmax(1) == y
    fooled = getattr(shifted, "static_fooled", torch.zeros_like(right))  # at some point on the way: attacks on a defence know
    way = (shifted.x - x).flatten(1)
    return {
        "index": index,
        "label": y,
        "base_prediction": logits.argmax(1),
        "base_withstood": right & ~fooled.to(right.device),
        "confidence": logits.softmax(1).amax(1),
        "logit_margin": best[:, 0] - best[:, 1],
        "distance_linf": Linf().length(way),
        "distance_l2": L2().length(way),
        "threat_passes": shifted.passes,
    }


def _judged(defence: nn.Module, model: nn.Module, x: Tensor, y: Tensor, shifted: Tensor, rounding: bool) -> dict[str, Any]:
    """The answers of one defence, there and at the same place rounded to 8 bits."""
    answers = answered(defence, shifted, y, model)
    found: dict[str, Any] = answers.columns | settings(defence)
    if answers.way is not None:
        found["cosine"] = _cosine(answers, shifted - x)
    if rounding and x.dim() == 4:
        rounded = (shifted * LEVELS).round() / LEVELS
        moved = ((rounded - shifted).abs() > 1e-6).flatten(1).any(1)  # what came from a file is rounded already
        again = answers.prediction.clone()
        if moved.any():
            again[moved] = answered(defence, rounded[moved], y[moved]).prediction
        found |= {"rounded_prediction": again, "survives_rounding": again == answers.prediction}
    return found


def _cosine(answers: Answers, change: Tensor) -> Tensor:
    """Of the angle between what the threat did and where the answer was found; NaN where either did not move."""
    assert answers.way is not None
    first, second = change.flatten(1), answers.way.flatten(1)
    still = (first == 0).all(1) | (second == 0).all(1)
    return torch.where(still, torch.nan, cosine_similarity(first.double(), second.double()))


def _stacked(parts: list[dict[str, Any]], count: int) -> dict[str, NDArray[Any]]:
    """Rows of all defences, sample by sample within each."""
    columns = {}
    for name, column in COLUMNS.items():
        values = [part.get(name, NOTHING[column.kind]) for part in parts]
        arrays = [each.cpu().numpy() if isinstance(each, Tensor) else np.asarray(each) for each in values]
        columns[name] = np.concatenate([np.broadcast_to(each.astype(DTYPES[column.kind]), (count,)) for each in arrays])
    return columns
