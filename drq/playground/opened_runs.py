"""List and open the runs below one folder; no other file of the machine can be reached."""

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

DEEPEST, MOST = 4, 200  # levels of folders that are searched, and runs that are listed
FILTERS = ("all", "repaired", "broken")
KEY = ("model", "data", "suite", "threat", "victim", "defence")  # columns that identify a group of samples


def list_runs(folder: Path) -> list[str]:
    """Return the relative paths of the runs below a folder. Hidden folders and links to folders are not entered."""
    found: list[str] = []
    for place, folders, names in os.walk(folder):
        inner = Path(place).relative_to(folder)
        if "run.json" in names:
            found.append(inner.as_posix())
        stop = len(inner.parts) >= DEEPEST or "run.json" in names or len(found) >= MOST
        folders[:] = [] if stop else sorted(each for each in folders if not each.startswith("."))
    return sorted(found)[:MOST]


def run_directory(folder: Path, name: str) -> Path:
    """Return the directory of a run in the folder; a name or link that leads out of the folder is refused."""
    remedy = "give the path of a run below the folder that the playground was started with"
    relative = Path(name)
    allowed = name != "" and "\0" not in name and not relative.is_absolute() and ".." not in relative.parts and "\\" not in name
    require(allowed, "run", "be a path below the folder, without ..", repr(name)[:120], remedy)
    root = folder.resolve()
    try:
        path = (root / relative).resolve()
        inside = path.is_dir() and all(each.resolve().is_relative_to(root) for each in (path, *_files(path)))
    except (OSError, RuntimeError):  # a name that is too long, or links in a circle
        inside = False
    require(inside, "run", "be a directory that stays within the folder", repr(name)[:120], remedy)
    return path


def _files(run: Path) -> list[Path]:
    """Return the files that are read of a run: a link among them must not lead out of the folder either."""
    parts = (_folder_and_files(run / name) for name in ("records", "parts", "images"))
    return [*(run / name for name in ("run.json", "history.jsonl", "sha256sums")), *(each for part in parts for each in part)]


def _folder_and_files(folder: Path) -> list[Path]:
    return [folder, *folder.iterdir()] if folder.is_dir() else []


@dataclass(frozen=True, eq=False)
class OpenedRun:
    """A run with its records in memory."""

    run: Run
    records: polars.DataFrame

    @property
    def groups(self) -> list[tuple[str, ...]]:
        """The values of :data:`KEY` for every group of samples, without the undefended model."""
        pl = require_polars()
        rows = self.records.filter(pl.col("defence") != "standard").select(KEY).unique(maintain_order=True)
        return rows.rows()

    def samples(self, group: tuple[str, ...], which: str = "all") -> polars.DataFrame:
        """Return the rows of a group: all, those that the defence corrects, or those that only the model alone gets right."""
        pl = require_polars()
        require(which in FILTERS, "filter", f"be one of {', '.join(FILTERS)}", repr(which), nearest(which, FILTERS, "choose one"))
        correct, base_correct = pl.col("prediction") == pl.col("label"), pl.col("base_prediction") == pl.col("label")
        chosen = {"all": pl.lit(True), "repaired": correct & ~base_correct, "broken": ~correct & base_correct}[which]
        same = [pl.col(name) == value for name, value in zip(KEY, group, strict=True)]
        return self.records.filter(*same, chosen).sort("index")

    def image(self, row: dict[str, Any]) -> Tensor | None:
        """Return the input that the defence of a row received, where the run kept it and it is an image."""
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
def _open(path: Path, _: float) -> OpenedRun:
    run = Run.open(path)
    return OpenedRun(run, run.records)


def open_run(folder: Path, name: str) -> OpenedRun:
    """Open a run in the folder; it is read again once its files have changed."""
    path = run_directory(folder, name)
    try:
        newest = max((each.stat().st_mtime for each in _files(path) if each.exists()), default=0.0)
        opened = _open(path, newest)
    except (OSError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"run must be whole, got {name!r} ({type(error).__name__}): evaluate it again") from error
    require(len(opened.records) > 0, "run", "have records", f"{name!r} without any", "drq evaluate goes on with it")
    return opened
