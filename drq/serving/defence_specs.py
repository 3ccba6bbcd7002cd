"""Specs that evaluate a defence from a file beside the model alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from drq.errors import require
from drq.evaluation.sources import as_spec
from drq.evaluation.spec import Spec
from drq.serving.settings_table import spec_table
from drq.serving.stored_defence import StoredDefence

SUFFIX = ".toml"


def is_file(name: str) -> bool:
    """Whether the name of a defence is that of a file."""
    return name.endswith(SUFFIX) or Path(name).is_file()


def called(path: str) -> str:
    """What a defence from a file is called in specs; no other defence is called so.

    >>> called("mine/defence.toml")
    'defence.toml'
    """
    return f"{Path(path).name.removesuffix(SUFFIX)}{SUFFIX}"


def defences(stored: StoredDefence, path: str) -> dict[str, Any]:
    """The model alone, and the defence from a file, as they stand in a spec."""
    return {"standard": {}, called(path): spec_table(stored.table)}


def spec_of(
    stored: StoredDefence,
    path: str,
    spec: str | None = None,
    data: str | None = None,
    images: int | None = None,
    allow_code: bool = False,
) -> Spec:
    """A spec with the model of a defence, alone and defended, and with the data and the threats of another spec.

    Args:
        stored: the defence.
        path: the file that it is from.
        spec: the other spec, see :func:`drq.evaluation.sources.as_spec`; None for unchanged inputs.
        data: the name of the data; None for that of the other spec.
        images: how many samples, the first of the data; None for what the other spec says, else all.
        allow_code: whether the other spec may name code to run.
    """
    require(spec is not None or data is not None, "--data", "be given without a spec", "nothing", "as in --data cifar10")
    base: dict[str, Any] = {"threats": {"clean": {}}}
    if spec is not None:
        other = as_spec(spec, allow_code=allow_code)
        require(isinstance(other.source, Mapping), "spec", "be a file or a table", repr(spec), "a run of objects has none")
        base = dict(other.source or {}) | {"name": other.name}
        base["data"] = list(dict.fromkeys(each for group in other.groups for each in group.data))
    base.pop("groups", None)
    told = [str(base.get("name", "")), Path(path).stem, data or ""]
    name = re.sub(r"[^\w.+-]+", "-", "-".join(filter(None, told))).strip("-.")
    base |= {"name": name or "defence", "models": [stored.about.model], "defences": defences(stored, path)}
    base |= {key: value for key, value in {"data": data and [data], "limit": images}.items() if value is not None}
    return Spec.of(base)
