"""``python -m drq.reproduction``: as ``drq reproduce``, on machines with nothing but torch, numpy and safetensors."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from drq.errors import InputError
from drq.evaluation.loop import Event
from drq.reproduction.experiments import entries, repeat, wanted
from drq.system.progress import Bar


def arguments() -> argparse.ArgumentParser:
    """What can be asked for."""
    parser = argparse.ArgumentParser("python -m drq.reproduction", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="tables, figures and claims, or all")
    parser.add_argument("--out", type=Path, default=Path("runs"), metavar="DIR", help="of the runs")
    parser.add_argument("--limit", type=int, metavar="N", help="of samples: a first look")
    parser.add_argument("--device", help="auto, cpu or cuda")
    parser.add_argument(
        "--only", metavar="NAME", help="of a model, of data, of a threat or of a victim, or a pattern; the rest waits"
    )
    return parser


def say(line: str) -> None:
    """To standard error."""
    print(f"drq: {line}", file=sys.stderr)


def main(given: Sequence[str] | None = None) -> int:
    """Run the experiments; return the exit status. One that lacks everything is told, and the next one runs."""
    asked = arguments().parse_args(given)
    if not asked.names:
        print(*(f"{entry.name:24} {entry.title}" for entry in entries().values()), sep="\n")
        return 0
    status = 0
    try:
        names = [*wanted(asked.names)]
    except InputError as error:
        say(str(error))
        return 2
    for name in names:
        bar = Bar(name, 10)

        def tell(event: Event, bar: Bar = bar) -> None:
            if event.what == "missing":
                say(event.text)
            else:
                bar(event.share, event.text)

        try:
            print(repeat(name, asked.out, asked.limit, asked.device, tell, asked.only).path, flush=True)
        except InputError as error:
            say(f"{name}: {error}")
            status = 2
    return status


if __name__ == "__main__":
    sys.exit(main())
