"""Example pictures for a report: kept inputs beside their originals, with the answers to them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from drq.evaluation.records import require_polars
from drq.evaluation.run import Run

if TYPE_CHECKING:
    import polars


def examples(run: Run, records: polars.DataFrame, each: int = 3) -> list[dict[str, Any]]:
    """Some of the images that a run kept: for every task first those that a defence put right, then those that it spoiled.

    Args:
        run: that has the images.
        records: its records.
        each: pictures of a task, at most.

    Returns:
        title, caption and image (H, W, 3) of 8-bit values; beside a shifted image stands the one that it was made of, where
        the run kept it.
    """
    found = []
    clean: dict[tuple[str, str], dict[int, NDArray[np.float32]]] = {}
    for number, task in run.tasks.items():
        if task["threat"] == "clean":
            clean.setdefault((task["model"], task["data"]), {}).update(enumerate(run.images(number), task["first"]))
    for number, task in run.tasks.items():
        images = run.images(number)
        if images.ndim != 4 or images.shape[1] not in (1, 3):
            continue  # nothing was kept, or it is no picture
        before = clean.get((task["model"], task["data"]), {})
        for index, caption in _chosen(run, records, task, len(images), each):
            pair = [before[index]] if task["threat"] != "clean" and index in before else []
            title = f"{task['threat']}, image {index} of {task['data']}"
            picture = _side_by_side([*pair, images[index - task["first"]]])
            found.append({"title": title, "caption": caption, "image": picture})
    return found


def _chosen(run: Run, records: polars.DataFrame, task: dict[str, Any], kept: int, each: int) -> Iterator[tuple[int, str]]:
    """Indices of the samples that tell most, and who said what about them."""
    pl = require_polars()
    trial = run.about["spec"]["threats"][task["threat"]]
    rows = records.filter(
        pl.col("index").is_between(task["first"], task["first"] + kept, closed="left"),
        *(pl.col(name) == task[name] for name in ("model", "data", "victim")),
        pl.col("suite") == trial["suite"],
        pl.col("threat") == trial["title"],
        pl.col("defence").is_in(task["defences"]),
    )
    right, base = pl.col("prediction") == pl.col("label"), pl.col("base_prediction") == pl.col("label")
    ranked = (
        rows.group_by("index", "label")
        .agg(
            (right & ~base).any().alias("repaired"),
            (~right & base).any().alias("spoiled"),
            pl.concat_str("defence", pl.lit(" "), "prediction").alias("said"),
        )
        .sort(["repaired", "spoiled", "index"], descending=[True, True, False])
    )
    for row in ranked.head(each).iter_rows(named=True):
        yield row["index"], f"true class {row['label']}; {', '.join(row['said'])}"


def _side_by_side(images: list[NDArray[Any]]) -> NDArray[np.uint8]:
    """Images (C, H, W) in [0, 1] as one picture (H, W, 3), with a gap of one pixel in eight between them."""
    pictures = [np.repeat(each, 3 // each.shape[0], axis=0).transpose(1, 2, 0) for each in images]
    gap = np.ones((pictures[0].shape[0], max(1, pictures[0].shape[1] // 8), 3), pictures[0].dtype)
    joined = np.concatenate([part for picture in pictures for part in (gap, picture)][1:], axis=1)
    return (joined.clip(0, 1) * 255).round().astype(np.uint8)
