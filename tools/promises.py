"""Check records of ``drq bench`` against the promises in docs/speed.md: ``python -m tools.promises FILE...``.

Ends with status 1 where a promise is broken.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from drq.bench.attacks import OURS
from drq.bench.contestants import NAIVE
from drq.bench.inputs import THREATS
from drq.bench.measure import read
from drq.errors import InputError

Record = Mapping[str, Any]
EXACT, RACE = "compiled float16 exact", "compiled float16 race"
CPU_SPEEDUPS = {"cifar10-linf": 2.5, "cifar10-small": 3.0}  # over the naive loop, with exact pruning
MOST_GROWTH = 1.1  # of memory at a fixed chunk
TOLERANCE = 1e-3  # mean cross-entropies that differ by less count as equal


class Promise(NamedTuple):
    """A measured value and its promised bound."""

    what: str
    value: float | None  # None where it was not measured
    bound: float
    least: bool = True  # whether the bound is a lower one

    @property
    def kept(self) -> bool:
        """Whether the value was measured and meets the bound."""
        return self.value is not None and (self.value >= self.bound if self.least else self.value <= self.bound)

    @property
    def line(self) -> str:
        """The promise and the value in words."""
        rule = f"must be at {'least' if self.least else 'most'} {self.bound:g}"
        return f"{self.what} {rule}, got {'nothing: not measured' if self.value is None else f'{self.value:.4g}'}"


def promises(record: Record) -> list[Promise]:
    """Return all promises for the machine and the model of a record."""
    cuda = record["machine"]["device"] == "cuda"
    labels = _value(_rows(record, "agreement", contestant=NAIVE, threat="clean"), "share")
    general = [
        Promise("labels of the naive loop equal to those without pruning", labels, 0.99),
        *(_on_cuda(record) if cuda else _on_cpu(record)),
        *(
            Promise(f"100 classes, {prune}: share of the naive passes", _share(record, prune), bound, least=False)
            for prune, bound in (("exact", 0.53), ("race", 0.20))
        ),
    ]
    return [*general, *_attacks(record)]


def _on_cpu(record: Record) -> Iterable[Promise]:
    model = record.get("subject", {}).get("model")
    if model in CPU_SPEEDUPS:
        for name, bound in (("compiled float32 exact", CPU_SPEEDUPS[model]), ("compiled float32 race", 6.0)):
            value = _value(_rows(record, "speed", contestant=name), "times_naive")
            yield Promise(f"{name} on {model}: times the naive loop", value, bound)


def _on_cuda(record: Record) -> Iterable[Promise]:
    for name, faster, equal, seconds in ((EXACT, 28.0, 0.997, 5.0), (RACE, 50.0, 0.99, 1.5)):
        row = _rows(record, "speed", contestant=name)
        yield Promise(f"{name}: times the naive loop", _value(row, "times_naive"), faster)
        yield Promise(f"{name}: seconds for one image", _value(row, "latency_seconds"), 0.060, least=False)
        for threat in THREATS:
            value = _value(_rows(record, "agreement", contestant=name, threat=threat), "share")
            yield Promise(f"{name}: equal labels, {threat}", value, equal)
        large = _value(_rows(record, "imagenet", contestant=name), "seconds_per_image")
        yield Promise(f"{name}: seconds an image with 1000 classes at 224 pixels", large, seconds, least=False)
    share = record.get("bare", {}).get("shares", {}).get(EXACT)
    yield Promise(f"{EXACT}: share of the passes of the bare model", share, 0.8)
    recompilations = [each["compilations"] for each in record.get("batch", [])[1:]]
    yield Promise("compilations for a further size of batch", sum(recompilations) if recompilations else None, 0, least=False)
    memory = record.get("memory", {})
    for part in ("classes", "batch"):
        ratios = [ratio for name, ratio in memory.items() if name.startswith(part)]
        yield Promise(f"growth of memory with {part}", max(ratios, default=None), MOST_GROWTH, least=False)


def _attacks(record: Record) -> Iterable[Promise]:
    rows = {each["library"]: each["cross_entropy"] for each in record.get("attacks", [])}
    for name in rows.keys() - {OURS}:
        yield Promise(f"cross-entropy after PGD, ours minus that of {name}", rows.get(OURS, 0) - rows[name], -TOLERANCE)


def _rows(record: Record, part: str, **values: object) -> list[Record]:
    return [each for each in record.get(part, []) if all(each[name] == value for name, value in values.items())]


def _value(rows: list[Record], name: str) -> float | None:
    return float(rows[0][name]) if rows else None


def _share(record: Record, prune: str) -> float | None:
    rows = [each for each in _rows(record, "classes", classes=100) if each["contestant"].endswith(prune)]
    return _value(rows, "share_of_naive")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for every promise that is broken, and how many are kept; return the exit status."""
    parser = argparse.ArgumentParser("python -m tools.promises", description=__doc__)
    parser.add_argument("records", nargs="+", type=Path, metavar="FILE", help="a record that drq bench wrote")
    try:
        measured = [
            each for path in parser.parse_args(arguments).records for each in promises(read(path)) if each.value is not None
        ]
    except InputError as error:
        parser.error(str(error))
    broken = [each for each in measured if not each.kept]
    print(*(each.line for each in broken), f"{len(measured) - len(broken)} of {len(measured)} promises kept", sep="\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
