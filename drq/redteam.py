"""What ``drq redteam`` evaluates: a defence under the red team, beside attacks that were made against the model alone."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from drq.data.catalogue import KINDS
from drq.errors import require
from drq.evaluation.spec import Spec
from drq.models.catalogue import load as load_model


def trial(
    model: str,
    defence: str = "drq",
    settings: Mapping[str, Any] | None = None,
    *,
    data: str | None = None,
    norm: str | None = None,
    radius: float | str | None = None,
    images: int = 100,
    strength: str = "quick",
    seed: int = 0,
) -> Spec:
    """The spec: clean images, a transferred attack, and the red team on the defence and on the model alone.

    Args:
        model: a name, see :func:`drq.load_model`.
        defence: its name in a spec, or ``python:package.module:function``.
        settings: of the defence.
        data: a name, see :func:`drq.load_data`; that which the model was trained on when None, where its name says so.
        norm: of the attacks; that of the model's training when None.
        radius: of the attacks; that of the training when None.
        images: attacked, the first of the data.
        strength: "quick" or "full".
        seed: of the threats.
    """
    space = _space(model, norm, radius)
    attacks: dict[str, Any] = {
        "clean": {},
        "APGD": {**space, "steps": 100},
        "red team": {"threat": "RedTeam", **space, "strength": strength, "victim": "defence"},
    }
    title = f"{defence} around {model} under the red team"
    name = re.sub(r"[^\w.+-]+", "-", f"redteam-{model}-{defence}")
    spec: dict[str, Any] = {
        "name": name,
        "title": title,
        "models": [model],
        "data": [data or trained_on(model)],
        "threats": attacks,
    }
    spec |= {"defences": {"standard": {}, defence: {"defence": defence, **(settings or {})}}, "seed": seed, "limit": images}
    return Spec.of(spec | {"rounding": False, "quick": True, "shard": 100})


def trained_on(model: str) -> str:
    """The data that a name of a model begins with.

    >>> trained_on("cifar10-small"), trained_on("robustbench:cifar100/Linf/Rice2020Overfitting")
    ('cifar10', 'cifar100')
    """
    words = re.split(r"[:/-]", model)
    found = next((word for word in words if word in KINDS), None)
    remedy = "as in --data cifar10; drq data lists them"
    require(found is not None, "data", "be given where the model's name does not say it", f"model {model!r}", remedy)
    assert found is not None
    return found


def parsed(given: Sequence[str]) -> dict[str, Any]:
    """Settings of a defence as they stand on a command line: behind each name what a spec would have there, or a word.

    >>> parsed(["alpha=0.3", "norm=l2", "steps=5"])
    {'alpha': 0.3, 'norm': 'l2', 'steps': 5}
    """
    found: dict[str, Any] = {}
    for each in given:
        name, equals, value = each.partition("=")
        require(bool(equals and name and value), "set", "have the form NAME=VALUE", repr(each), "as in --set alpha=0.3")
        try:
            found[name] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            found[name] = value
    return found


def _space(model: str, norm: str | None, radius: float | str | None) -> dict[str, Any]:
    """Norm and radius of the attacks: as given, else those of the training."""
    card = getattr(load_model(model), "card", None) if norm is None or radius is None else None
    norm, radius = norm or getattr(card, "norm", None), radius or getattr(card, "radius", None)
    remedy = "it was not trained adversarially: say what it shall withstand, as in --norm linf --radius 8/255"
    for name, value in {"norm": norm, "radius": radius}.items():
        require(value is not None, name, f"be given for {model}", "nothing", remedy)
    return {"norm": norm, **parsed([f"radius={radius}"])}
