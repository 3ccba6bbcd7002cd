"""Turn a record into tables of text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Record = Mapping[str, Any]


class Table(NamedTuple):
    """A table of text."""

    title: str
    head: list[str]
    rows: list[list[str]]

    def plain(self) -> str:
        """Return the table as aligned text: the first column to the left, the others to the right."""
        lines = [self.head, *self.rows]
        width = [max(len(line[column]) for line in lines) for column in range(len(self.head))]
        text = [
            "  ".join([line[0].ljust(width[0]), *(cell.rjust(size) for cell, size in zip(line[1:], width[1:], strict=True))])
            for line in lines
        ]
        return "\n".join([self.title, *text])


def tables(record: Record) -> list[Table]:
    """Return one table for each part that was measured."""
    return [make(record) for part, make in MAKERS.items() if record.get(part)]


def machine(record: Record) -> str:
    """Describe the model and the machine of a record in one line."""
    facts, inputs = record["machine"], record.get("subject")
    where = facts["gpu"] if facts["device"] == "cuda" else f"{facts['processor']}, {facts['threads']} threads"
    model = f"{inputs['model']}, {inputs['norm']} {inputs['radius']:.3g}, on " if inputs else ""
    return f"{model}{where}, torch {facts['torch']}, {facts['date']}"


def speed(record: Record) -> Table:
    """Return the table of every contestant's speed."""
    head = ["contestant", "images/s", "x naive", "latency", "first", "passes", "memory"]
    rows = [
        [
            row["contestant"],
            _rate(row["images_per_second"]),
            f"{row['times_naive']:.1f}",
            _seconds(row["latency_seconds"]),
            _seconds(row["first_call_seconds"]),
            f"{row['passes']:.0f}",
            _memory(row["peak_bytes"]),
        ]
        for row in record["speed"]
    ]
    if bare := record.get("bare"):
        share = ", ".join(f"{name} {100 * value:.0f} %" for name, value in bare["shares"].items())
        title = (
            f"Speed. The bare model in {bare['precision']}: {bare['passes_per_second']:,.0f} passes a second; of these {share}"
        )
        return Table(title, head, rows)
    return Table("Speed", head, rows)


def agreement(record: Record) -> Table:
    """Return the table of equal labels for each condition, with the largest gap where labels differ."""
    threats = list(dict.fromkeys(row["threat"] for row in record["agreement"]))
    lines: dict[str, dict[str, str]] = {}
    for row in record["agreement"]:
        gap = "" if row["largest_gap"] is None else f" ({row['largest_gap']:.2g})"
        line = lines.setdefault(row["contestant"], {"images": f"{row['images']}"})
        line[row["threat"]] = f"{100 * row['share']:.2f}{gap}"
    head = ["images", *threats]
    rows = [[name, *(cells.get(each, "") for each in head)] for name, cells in lines.items()]
    title = "Labels in % equal to those of float32 without pruning (and the largest gap in log-odds where they differ)"
    return Table(title, ["contestant", *head], rows)


def _growth(part: str, title: str, growing: str = "classes") -> Callable[[Record], Table]:
    def table(record: Record) -> Table:
        head = ["contestant", growing, "right %", "s/image", "passes", "naive %", "memory"]
        rows = [
            [
                row["contestant"],
                f"{row[growing]}",
                f"{100 * row['accuracy']:.1f}",
                f"{row['seconds_per_image']:.3g}",
                f"{row['passes']:.0f}",
                f"{100 * row['share_of_naive']:.1f}",
                _memory(row["peak_bytes"]),
            ]
            for row in record[part]
        ]
        return Table(title + _memory_growth(record, part), head, rows)

    return table


def batch(record: Record) -> Table:
    """Return the table of ever larger batches."""
    head = ["contestant", "batch", "first", "images/s", "passes", "compiled", "memory"]
    rows = [
        [
            row["contestant"],
            f"{row['batch']}",
            _seconds(row["first_call_seconds"]),
            _rate(row["images_per_second"]),
            f"{row['passes']:.0f}",
            f"{row['compilations']}",
            _memory(row["peak_bytes"]),
        ]
        for row in record["batch"]
    ]
    return Table("Batches" + _memory_growth(record, "batch"), head, rows)


def attacks(record: Record) -> Table:
    """Return the table of PGD by library."""
    head = ["library", "images/s", "cross-entropy", "accuracy"]
    rows = [
        [row["library"], _rate(row["images_per_second"]), f"{row['cross_entropy']:.4f}", f"{100 * row['accuracy']:.1f} %"]
        for row in record["attacks"]
    ]
    return Table(f"PGD with {record['attacks'][0]['steps']} steps", head, rows)


MAKERS: dict[str, Callable[[Record], Table]] = {
    "speed": speed,
    "agreement": agreement,
    "classes": _growth("classes", "Classes"),
    "batch": batch,
    "size": _growth("size", "Sizes", "pixels"),
    "attacks": attacks,
    "imagenet": _growth("imagenet", "ResNet-50 with the classes and the size of ImageNet"),
}


def _memory_growth(record: Record, part: str) -> str:
    ratios = [ratio for name, ratio in record.get("memory", {}).items() if name.startswith(part)]
    return f". Memory grows by a factor of {max(ratios):.2f}" if ratios else ""


def _rate(value: float) -> str:
    return f"{value:.3g}" if value < 999.5 else f"{value:,.0f}"


def _seconds(value: float) -> str:
    return f"{1000 * value:.3g} ms" if value < 0.9995 else f"{value:.1f} s"


def _memory(value: int | None) -> str:
    if value is None:
        return ""
    return f"{value / 2**30:.1f} GiB" if value >= 2**30 else f"{value / 2**20:.0f} MiB"
