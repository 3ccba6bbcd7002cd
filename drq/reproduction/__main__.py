"""Run experiments of ``drq reproduce`` as ``python -m drq.reproduction``, on machines with only torch, numpy and safetensors."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from drq.errors import InputError
from drq.evaluation.loop import Event
from drq.reproduction.experiments import entries, experiments_behind, run_experiment
from drq.system.progress import Bar


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser("python -m drq.reproduction", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="names of tables, figures and claims, or all")
    parser.add_argument("--out", type=Path, default=Path("runs"), metavar="DIR", help="the folder for the runs")
    parser.add_argument("--limit", type=int, metavar="N", help="use at most this many samples, for a quick first look")
    parser.add_argument("--device", help="where to run: auto, cpu or cuda")
    parser.add_argument(
        "--only", metavar="NAME", help="run only the parts with this model, data, threat or victim; patterns are allowed"
    )
    return parser


def print_to_stderr(line: str) -> None:
    """Print a line to standard error."""
    print(f"drq: {line}", file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the experiments and return the exit status; where one cannot run, an error is printed and the next one runs."""
    options = build_parser().parse_args(arguments)
    if not options.names:
        print(*(f"{entry.name:24} {entry.title}" for entry in entries().values()), sep="\n")
        return 0
    status = 0
    try:
        names = [*experiments_behind(options.names)]
    except InputError as error:
        print_to_stderr(str(error))
        return 2
    for name in names:
        bar = Bar(name, 10)

        def tell(event: Event, bar: Bar = bar) -> None:
            if event.what == "missing":
                print_to_stderr(event.text)
            elif event.what == "plan":
                print_to_stderr(f"{bar.title}: {event.text}")
            else:
                bar(event.share, event.text)

        try:
            run = run_experiment(name, options.out, options.limit, options.device, tell, options.only)
            print(run.path, flush=True)
        except InputError as error:
            print_to_stderr(f"{name}: {error}")
            status = 2
    return status


if __name__ == "__main__":
    sys.exit(main())
