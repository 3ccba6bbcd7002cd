"""``python -m drq.bench``: as ``drq bench``, on machines with nothing but torch, numpy and safetensors."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from drq.bench import summary
from drq.bench.measuring import measure, read
from drq.bench.settings import PARTS, Settings
from drq.errors import InputError
from drq.system.progress import Bar, silent


def arguments() -> argparse.ArgumentParser:
    """What can be asked for."""
    parser = argparse.ArgumentParser("python -m drq.bench", description=__doc__)
    parser.add_argument("--parts", metavar="NAMES", help=f"of {','.join(PARTS)}, with commas")
    parser.add_argument("--model", help="see drq models")
    parser.add_argument("--images", type=int, metavar="N", help="timed")
    parser.add_argument("--naive-images", type=int, metavar="N", help="timed with the naive loop")
    parser.add_argument("--samples", type=int, metavar="N", help="compared, of each condition")
    parser.add_argument("--repeats", type=int, metavar="N", help="timings, whose median counts")
    parser.add_argument("--chunk", type=int, metavar="N", help="rows searched at once")
    parser.add_argument("--device", help="cpu or cuda")
    parser.add_argument("--out", type=Path, default=Path("drq-bench.json"), metavar="FILE", help="of the record")
    parser.add_argument("--add", action="store_true", help="keep other parts that FILE has")
    parser.add_argument("--read", type=Path, metavar="FILE", help="show this record and measure nothing")
    parser.add_argument("--json", action="store_true", help="print the record")
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    return parser


def say(line: str) -> None:
    """To standard error."""
    print(f"drq: {line}", file=sys.stderr)


def main(given: Sequence[str] | None = None) -> int:
    """Measure and show; return the exit status."""
    asked = vars(arguments().parse_args(given))
    out, add, stored, as_json, quiet = (asked.pop(name) for name in ("out", "add", "read", "json", "quiet"))
    asked["parts"] = asked["parts"] and asked["parts"].split(",")
    try:
        if stored is not None:
            record = read(stored)
        else:
            record = measure(Settings.of(**asked), out, silent if quiet else Bar("measuring", 10), say, add)
    except InputError as error:
        say(str(error))
        return 2
    if as_json:
        print(json.dumps(record, indent=1))
    else:
        print(summary.machine(record), *(table.plain() for table in summary.tables(record)), sep="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
