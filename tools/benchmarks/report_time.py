"""How long tables and the report of a large run take, and how much memory.

``python -m tools.benchmarks.report_time [--rows 1000000]``. The records are made up (tests/testbed/synthetic.py) and wait in a Parquet
file, as those of a run do; a process of its own reads them and writes the report, so that its peak is all that is counted.
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

TESTS = Path(__file__).parent.parent / "tests"
THREATS = {"clean": "clean", "FAB": "ensemble", "Square": "ensemble", "APGD-CE": "ensemble", "PGD": "PGD"}
CELLS = 2 * len(THREATS) * 2  # models, threats and defences


def make(path: Path, rows: int) -> None:
    """Write records of two models under five threats, each answered by two defences."""
    sys.path.insert(0, str(TESTS))
    from testbed.synthetic import records

    records(max(1, rows // CELLS), threats=THREATS).write_parquet(path)


def measure(path: Path) -> dict[str, float]:
    """Read records, make the tables and the report."""
    import polars

    from drq.report import tables
    from drq.report.html import report

    start = time.perf_counter()
    records = polars.read_parquet(path)
    read = time.perf_counter()
    found = tables.cells(records), tables.worst_case(records), tables.mean_over_data(records)
    tabled = time.perf_counter()
    page = report(records)
    end = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # kibibytes on Linux
    seconds = {"read_seconds": read - start, "tables_seconds": tabled - read, "report_seconds": end - tabled}
    return {"rows": len(records), "cells": len(found[0]), **seconds, "peak_gib": peak, "page_mb": len(page.encode()) / 1e6}


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
