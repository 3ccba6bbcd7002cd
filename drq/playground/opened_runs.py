"""Runs below one folder, and nothing else of the machine: which there are, and what their samples say."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from drq.errors import InputError, nearest, require
from drq.evaluation.records import require_polars
from drq.evaluation.run import Run

if TYPE_CHECKING:
    import polars

DEEPEST, MOST = 4, 200  # folders below the first that are looked into, and runs that are listed
FILTERS = ("all", "repaired", "broken")
KEY = ("model", "data", "suite", "threat", "victim", "defence")  # tell a group of samples from others


def listed(folder: Path) -> list[str]:
    """The runs below a folder, by their paths in it. Hidden folders and links to folders are not entered."""
    found: list[str] = []
    for place, folders, names in os.walk(folder):
        inner = Path(place).relative_to(folder)
        if "run.json" in names:
            found.append(inner.as_posix())
        deep = len(inner.parts) >= DEEPEST or "run.json" in names or len(found) >= MOST
        folders[:] = [] if deep else sorted(each for each in folders if not each.startswith("."))
    return sorted(found)[:MOST]


def below(folder: Path, name: str) -> Path:
    """The directory of this name in the folder; one that leads out of it, by whatever way, is refused."""
    remedy = "give the path of a run below the folder that the playground was started with"
    asked = Path(name)
    plain = name != "" and "\0" not in name and not asked.is_absolute() and ".." not in asked.parts and "\\" not in name
    require(plain, "run", "be a path below the folder, without ..", repr(name)[:120], remedy)
    root = folder.resolve()
    try:
        found = (root / asked).resolve()
        inside = found.is_dir() and all(each.resolve().is_relative_to(root) for each in (found, *_files(found)))
    except (OSError, RuntimeError):  # names that are too long, links in a circle
        inside = False
    require(inside, "run", "be a directory that stays within the folder", repr(name)[:120], remedy)
    return found


def _files(run: Path) -> list[Path]:
    """What is read of a run: a link among these must not lead out either."""
    parts = (_in(run / name) for name in ("records", "parts", "images"))
    return [*(run / name for name in ("run.json", "history.jsonl", "sha256sums")), *(each for part in parts for each in part)]


def _in(folder: Path) -> list[Path]:
    return [folder, *folder.iterdir()] if folder.is_dir() else []


@dataclass(frozen=True, eq=False)
class Opened:
    """A run and its records."""

    run: Run
    records: polars.DataFrame

    @property
    def groups(self) -> list[tuple[str, ...]]:
        """What :data:`KEY` says of every group of samples, defences other than the undefended model."""
        pl = require_polars()
        rows = self.records.filter(pl.col("defence") != "standard").select(KEY).unique(maintain_order=True)
        return rows.rows()

    def samples(self, group: tuple[str, ...], which: str = "all") -> polars.DataFrame:
        """The rows of a group: all, those that the defence put right where the model alone is wrong, or the other way round."""
        pl = require_polars()
        require(which in FILTERS, "filter", f"be one of {', '.join(FILTERS)}", repr(which), nearest(which, FILTERS, "choose one"))
        right, base = pl.col("prediction") == pl.col("label"), pl.col("base_prediction") == pl.col("label")
        chosen = {"all": pl.lit(True), "repaired": right & ~base, "broken": ~right & base}[which]
        same = [pl.col(name) == value for name, value in zip(KEY, group, strict=True)]
        return self.records.filter(*same, chosen).sort("index")

    def image(self, row: dict[str, Any]) -> Tensor | None:
        """The input of a row as its defence saw it, where the run kept it and it is a picture."""
        for number, task in self.run.tasks.items():
            trial = self.run.about["spec"].get("threats", {}).get(task.get("threat"), {})
            same = all(task.get(name) == row[name] for name in ("model", "data", "victim"))
            if same and trial.get("title") == row["threat"] and row["defence"] in task.get("defences", ()):
                images = self.run.images(number)
                place = row["index"] - task["first"]
                if images.ndim == 4 and images.shape[1] in (1, 3) and 0 <= place < len(images):
                    return Tensor(images[place])
        return None


@lru_cache(maxsize=8)
def _opened(path: Path, _: float) -> Opened:
    run = Run.open(path)
    return Opened(run, run.records)


def opened(folder: Path, name: str) -> Opened:
    """The run of this name in the folder; it is read again once it changed."""
    path = below(folder, name)
    try:
        newest = max((each.stat().st_mtime for each in _files(path) if each.exists()), default=0.0)
        found = _opened(path, newest)
    except (OSError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"run must be whole, got {name!r} ({type(error).__name__}): evaluate it again") from error
    require(len(found.records) > 0, "run", "have records", f"{name!r} without any", "drq evaluate goes on with it")
    return found
