"""Measure time and memory of the tables and the report of a large run.

``python -m tools.benchmarks.report_time [--rows 1000000]``. The records are synthetic (tests/testbed/synthetic.py), in a Parquet
file like those of a run; a separate process reads them and writes the report, so that its peak memory is measured.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tools import ROOT

TESTS = ROOT / "tests"  # which make synthetic records
THREATS = {"clean": "clean", "FAB": "ensemble", "Square": "ensemble", "APGD-CE": "ensemble", "PGD": "PGD"}
CELLS = 2 * len(THREATS) * 2  # models, threats and defences


def make(path: Path, rows: int) -> None:
    """Write records of two models under five threats, each answered by two defences."""
    sys.path.insert(0, str(TESTS))
    from testbed.synthetic import records

    records(max(1, rows // CELLS), threats=THREATS).write_parquet(path)


def measure(path: Path) -> dict[str, float]:
    """Read records, make the tables and the report, and return the times and the peak memory."""
    import polars

    from drq.report import tables
    from drq.report.html import report

    start = time.perf_counter()
    records = polars.read_parquet(path)
    read = time.perf_counter()
    made = tables.cells(records), tables.worst_case(records), tables.mean_over_data(records)
    tables_done = time.perf_counter()
    page = report(records)
    end = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # kibibytes on Linux
    seconds = {"read_seconds": read - start, "tables_seconds": tables_done - read, "report_seconds": end - tables_done}
    return {"rows": len(records), "cells": len(made[0]), **seconds, "peak_gib": peak, "page_mb": len(page.encode()) / 1e6}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        print(json.dumps({name: round(value, 3) for name, value in measure(options.read).items()}))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records.parquet"
        make(path, options.rows)
        subprocess.run([sys.executable, __file__, "--read", str(path)], check=True)


if __name__ == "__main__":
    main()
