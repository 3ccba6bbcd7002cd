"""Find a spec: in a file, a table, a run, or among the named experiments of the paper."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from drq.errors import InputError, nearest, require
from drq.evaluation.paper import experiments
from drq.evaluation.run import Run
from drq.evaluation.spec import Spec
from drq.system.code import refuse_code

Specified = Spec | str | Path | Mapping[str, Any]


def as_spec(given: Specified, *, allow_code: bool = False) -> Spec:
    """A spec from itself, a table, a TOML file, the name of an experiment of the paper, or a run, whose spec it then is.

    Args:
        given: any of these.
        allow_code: whether files, those of a run included, may name code to run; what is given as an object or a table may.

    >>> as_spec("table4").title
    'Table 4: worst case over an ensemble of attacks'
    """
    if isinstance(given, Spec):
        return given
    known = isinstance(given, str | Path | Mapping)
    require(known, "spec", "be a drq.Spec, a table or a TOML file", type(given).__name__, "see docs/evaluate.md")
    if isinstance(given, Mapping):
        return Spec.of(given)
    path = Path(given)
    if path.is_dir():
        return _of_run(Run.open(path), allow_code)
    named = experiments()
    if path.exists() or path.suffix or len(path.parts) > 1:
        return Spec.read(path, allow_code=allow_code)
    remedy = nearest(str(given), named, f"experiments are {', '.join(named)}")
    require(str(given) in named, "spec", "be a file, or the name of an experiment", repr(str(given)), remedy)
    return Spec.read(named[str(given)], allow_code=allow_code)


def _of_run(run: Run, allow_code: bool) -> Spec:
    """The spec that a run was made of, where it was a table; objects are not kept."""
    source = run.about.get("source")
    if source is None:
        remedy = "call drq.evaluate with the same objects again"
        raise InputError(f"spec must be a file or a table, got the run {str(run.path)!r} of Python objects: {remedy}")
    require(isinstance(source, Mapping), "run", "have a table for its source", type(source).__name__, "bring it back from a copy")
    refuse_code(source, run.path / "run.json", allow_code)
    return Spec.of(source)


def as_source(table: Mapping[str, Any]) -> dict[str, Any] | None:
    """The table as it can be kept beside records; None where it holds objects."""
    try:
        kept: dict[str, Any] = json.loads(json.dumps(table))
    except (TypeError, ValueError):
        return None
    return kept
