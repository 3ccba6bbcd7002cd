"""Run ``drq bench`` as ``python -m drq.bench``, on machines that have only torch, numpy and safetensors."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from drq.bench import summary
from drq.bench.measure import measure, read
from drq.bench.settings import PARTS, BenchSettings
from drq.errors import InputError
from drq.system.progress import Bar, silent


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser("python -m drq.bench", description=__doc__)
    parser.add_argument("--parts", metavar="NAMES", help=f"what to measure, comma-separated: {','.join(PARTS)}")
    parser.add_argument("--model", help="the model to measure with; drq models lists them")
    parser.add_argument("--images", type=int, metavar="N", help="how many images are timed")
    parser.add_argument("--naive-images", type=int, metavar="N", help="how many images are timed with the naive loop")
    parser.add_argument("--samples", type=int, metavar="N", help="how many images of each condition have their labels compared")
    parser.add_argument("--repeats", type=int, metavar="N", help="how often each timing is repeated; the median is reported")
    parser.add_argument("--chunk", type=int, metavar="N", help="how many rows are searched at once")
    parser.add_argument("--device", help="cpu or cuda; default: cuda where there is a GPU")
    parser.add_argument("--out", type=Path, default=Path("drq-bench.json"), metavar="FILE", help="where the record is written")
    parser.add_argument("--add", action="store_true", help="keep the other parts that the record in FILE already has")
    parser.add_argument("--read", type=Path, metavar="FILE", help="show the record in this file and measure nothing")
    parser.add_argument("--json", action="store_true", help="print the record as JSON")
    parser.add_argument("--quiet", action="store_true", help="print no progress")
    return parser


def print_to_stderr(line: str) -> None:
    """Print a line to standard error."""
    print(f"drq: {line}", file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print the tables; return the exit status."""
    options = vars(build_parser().parse_args(arguments))
    out, add, stored, as_json, quiet = (options.pop(name) for name in ("out", "add", "read", "json", "quiet"))
    options["parts"] = options["parts"] and options["parts"].split(",")
    try:
        if stored is not None:
            record = read(stored)
        else:
            record = measure(
                BenchSettings.with_defaults(**options), out, silent if quiet else Bar("measuring", 10), print_to_stderr, add
            )
    except InputError as error:
        print_to_stderr(str(error))
        return 2
    if as_json:
        print(json.dumps(record, indent=1))
    else:
        print(summary.machine(record), *(table.plain() for table in summary.tables(record)), sep="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
