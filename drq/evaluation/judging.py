"""The rows of one shard: a threat changes the samples once, and every defence answers. Needs torch and numpy alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Hashable, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from drq.defences.answers import Answers, answered, settings
from drq.defences.defence import Quantified, Standard
from drq.drq import DRQ
from drq.errors import require
from drq.evaluation.plan import Shard
from drq.evaluation.records import COLUMNS, DTYPES, NOTHING, SCHEMA_VERSION
from drq.evaluation.resources import Cache, ModelAndData, WorkerContext, build_defence, chosen_device, model_and_data
from drq.norms import L2, Linf
from drq.system.threads import threads
from drq.threats.threat import Attack, BallThreat, Shifted
from drq.version import __version__

LEVELS = 255  # of an 8-bit image
SHIFTED: Cache[Shifted] = Cache(40)  # shards that one experiment attacked, and that the next one may ask for again
LARGEST_KEPT = 2**24  # bytes of such a shard
ANSWERED: Cache[dict[str, Any]] = Cache(400)  # what defences said there


class ShardRows(NamedTuple):
    """The rows of a shard, and those of its images that are kept."""

    rows: dict[str, NDArray[Any]]
    images: NDArray[Any] | None


def judge(context: WorkerContext, shard: Shard) -> ShardRows:
    """The rows of a shard."""
    with threads(context.threads):
        subject = model_and_data(context, shard.task.model, shard.task.data)
        _check_known(context, shard, subject)
        index = torch.arange(shard.first, shard.last)
        x, y = (each.to(chosen_device(context.device)) for each in subject.data.batch(index))
        made = {name: build_defence(context, name, subject.prepared) for name in shard.task.defences}
        key = _shift_key(context, shard, subject, x, y)
        shifted = _shifted(context, shard, subject, made[shard.task.defences[0]], x, y, index, key)
        shared = _common_columns(context, shard, subject) | _base_columns(subject.model, x, y, index, shifted)
        columns = {}
        for name, defence in made.items():
            ask = partial(_defence_columns, defence, subject.model, x, y, shifted.x, context.rounding)
            columns[name] = ANSWERED.get(_answer_key(context, name, key), ask)
    count = max(0, min(context.first + context.keep_images, shard.last) - shard.first)
    kept = shifted.x[:count].cpu().numpy() if count else None
    hashes = zip(shard.task.row_hashes, columns.items(), strict=True)
    parts = [shared | each | {"defence": name, "row_hash": known} for known, (name, each) in hashes]
    return ShardRows(_stacked(parts, len(x)), kept)


def _check_known(context: WorkerContext, shard: Shard, subject: ModelAndData) -> None:
    """Refuse what changed since the run was begun, or is another on the machine of this worker."""
    contents = {f"model {shard.task.model}": subject.weights_sha256, f"data {shard.task.data}": subject.data_sha256}
    for what, sha256 in contents.items():
        known = context.known.get(what, sha256)
        require(known == sha256, what, f"have the sha256 {known}", sha256, "it changed, or is another one on this machine")


def _shifted(
    context: WorkerContext,
    shard: Shard,
    subject: ModelAndData,
    defence: nn.Module,
    x: Tensor,
    y: Tensor,
    index: Tensor,
    key: Hashable,
) -> Shifted:
    """The samples as the threat leaves them, given its victim."""
    threat, victim = shard.task.trial.threat, defence
    if threat is None:
        return Shifted(x, torch.zeros(len(x)))
    place = index - context.first  # threats count from the first sample that is asked for
    if shard.task.trial.victim != "defence":
        return SHIFTED.get(key, partial(threat.run, subject.model, x, y, index=place))
    if isinstance(victim, DRQ):  # an attack on scores must see those of all classes
        victim = victim.variant(keep_points=False, prune="none" if isinstance(threat, Attack) else victim.prune)
    return threat.run(victim, x, y, index=place)


def _shift_key(context: WorkerContext, shard: Shard, subject: ModelAndData, x: Tensor, y: Tensor) -> Hashable:
    """The key under which the shifted samples of a shard are kept.

    None for threats and models of a caller's own, for large shards, and where the defence is the victim.
    """
    threat = shard.task.trial.threat
    own = shard.task.model in context.models or "python:" in shard.task.model or not _is_ours(threat)
    if own or shard.task.trial.victim == "defence" or x.numel() * x.element_size() > LARGEST_KEPT:
        return None
    record = json.dumps(None if threat is None else threat.record)
    content = hashlib.sha256(x.cpu().numpy().tobytes() + y.cpu().numpy().tobytes()).digest()
    return subject.prepared.number, record, content, x.shape, shard.first - context.first, context.threads


def _answer_key(context: WorkerContext, name: str, key: Hashable) -> Hashable:
    """The key under which answers are kept, of DRQ and the model alone; other defences may remember what they saw."""
    defence = context.defences[name]
    if key is None or not isinstance(defence, Quantified | Standard) or not _is_ours(defence):
        return None
    return key, json.dumps(defence.record), context.quick, context.rounding


def _is_ours(value: object) -> bool:
    """Whether something and all in it come from this package or are plain values: its record then tells it from others."""
    if isinstance(value, tuple | list):
        return all(map(_is_ours, value))
    if isinstance(value, Mapping):
        return all(map(_is_ours, value.values()))
    if value is None or isinstance(value, bool | int | float | str):
        return True
    if isinstance(value, FunctionType):
        return value.__module__.startswith("drq.") and "<" not in value.__qualname__
    if is_dataclass(value):  # what it computed of its fields and keeps is as much ours as they are
        inside = [getattr(value, each.name) for each in fields(value) if each.compare]
    else:
        inside = [*getattr(value, "__dict__", {"": value}).values()]
    return type(value).__module__.startswith("drq.") and all(map(_is_ours, inside))


def _common_columns(context: WorkerContext, shard: Shard, subject: ModelAndData) -> dict[str, Any]:
    """The columns that are the same in all rows of a shard."""
    task, threat = shard.task, shard.task.trial.threat
    device = chosen_device(context.device)
    return {
        "experiment": context.experiment,
        "model": task.model,
        "data": task.data,
        "suite": task.trial.suite,
        "threat": task.trial.title,
        "victim": task.trial.victim,
        "threat_radius": threat.radius if isinstance(threat, BallThreat) else np.nan,
        "seed": context.seed,
        "precision": context.precision,
        "device": torch.cuda.get_device_name(device) if device.startswith("cuda") else device,
        "spec_hash": context.spec_hash,
        "weights_sha256": subject.weights_sha256,
        "data_sha256": subject.data_sha256,
        "drq_version": __version__,
        "torch_version": torch.__version__.partition("+")[0],
        "schema_version": SCHEMA_VERSION,
    }


def _base_columns(model: nn.Module, x: Tensor, y: Tensor, index: Tensor, shifted: Shifted) -> dict[str, Any]:
    """The columns on the undefended model and the threat: its answers at the shifted samples, and how far these moved."""
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


def _defence_columns(
    defence: nn.Module, model: nn.Module, x: Tensor, y: Tensor, shifted: Tensor, rounding: bool
) -> dict[str, Any]:
    """The columns on one defence: its answers at the shifted samples, and at the same rounded to 8 bits."""
    answers = answered(defence, shifted, y, model)
    columns: dict[str, Any] = answers.columns | settings(defence)
    if answers.way is not None:
        columns["cosine"] = _cosine(answers, shifted - x)
    if rounding and x.dim() == 4:
        rounded = (shifted * LEVELS).round() / LEVELS
        moved = ((rounded - shifted).abs() > 1e-6).flatten(1).any(1)  # what came from a file is rounded already
        again = answers.prediction.clone()
        if moved.any():
            again[moved] = answered(defence, rounded[moved], y[moved]).prediction
        columns |= {"rounded_prediction": again, "survives_rounding": again == answers.prediction}
    return columns


def _cosine(answers: Answers, change: Tensor) -> Tensor:
    """The cosine of the angle between what the threat did and where the answer was found; NaN where either did not move."""
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
