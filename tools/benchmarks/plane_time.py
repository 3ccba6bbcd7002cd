"""Measure how long a plane takes, and the page that shows it; writes results/plane-time.json.

DRQ's regions on 300 x 300 points for every data set and classifier of the playground's first tab, what a click there takes, and
how long ``drq play`` and its page take to open. Needs an idle machine, and a Chromium for the page.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from drq.bench.timing import machine
from drq.playground import plane_tab, scene
from drq.playground.points import DATA, MODELS, classifier
from drq.report.typesetting import text_table
from tools.benchmarks.assets import RESULTS, write

PIXELS = 300
RADIUS = 0.1  # about the one that calibration finds in Figure 1
CLICKS = ((0.3, 0.7), (0.42, 0.6), (0.5, 0.5), (0.65, 0.35), (0.8, 0.2))
VISITS = 3
REPEATS = 3  # of which the fastest counts, since other processes only make planes slower


def seconds(work: Callable[[], Any]) -> float:
    """Return the seconds that the work takes."""
    began = time.perf_counter()
    work()
    return round(time.perf_counter() - began, 3)


def pairs(pixels: int) -> Iterator[dict[str, Any]]:
    """Yield a row for every data set and classifier: the whole plane, and clicks with a calibrated radius."""
    for data in DATA:
        for model in MODELS:
            classifier(model, data)  # fits it, so that fitting is not timed
            robust, x = scene.PlaneSettings(data, model).robust(RADIUS), torch.tensor([CLICKS[0]])
            whole = min(seconds(lambda robust=robust, x=x: robust.plane(x, pixels=pixels)) for _ in range(REPEATS))
            clicks = []
            for at in CLICKS:
                for cached in (scene.scene, scene.defended_regions):
                    cached.cache_clear()
                clicks.append(
                    seconds(lambda at=at, data=data, model=model: plane_tab.render(scene.PlaneSettings(data, model), *at))
                )
            yield {"data": data, "model": model, "plane": whole, "click": statistics.median(clicks), "slowest_click": max(clicks)}


def busy_seconds() -> tuple[float, float]:
    """Return how many seconds all cores, and this process, were busy so far; on Linux."""
    busy = [int(each) for each in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    idle = busy[3] + busy[4]  # and waiting for disks
    return (sum(busy[:8]) - idle) / os.sysconf("SC_CLK_TCK"), time.process_time()


@contextmanager
def playing() -> Iterator[tuple[str, float]]:
    """Run ``drq play`` in its own process; give its address, and the seconds until it listened."""
    with tempfile.TemporaryDirectory() as folder:
        command, began = [sys.executable, "-m", "drq", "play", folder, "--no-browser"], time.perf_counter()
        running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"})
        assert running.stdout is not None
        try:
            line = running.stdout.readline()
            yield line.split(" at ")[1].split(" until")[0], round(time.perf_counter() - began, 3)
        finally:
            running.terminate()
            running.wait(30)


def page() -> dict[str, Any]:
    """Return the seconds until the server listens, and until a new browser shows the panels."""
    from playwright.sync_api import sync_playwright

    chromium, loads = shutil.which("chromium") or shutil.which("chromium-browser"), []
    with playing() as (address, start), sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for _ in range(VISITS):
            shown, began = browser.new_context().new_page(), time.perf_counter()
            shown.goto(address)
            shown.locator(".panel svg").first.wait_for()
            shown.locator("[data-ready]").first.wait_for(state="attached")
            loads.append(round(time.perf_counter() - began, 3))
        browser.close()
    return {"start": start, "load": statistics.median(loads), "slowest_load": max(loads)}


def table(record: dict[str, Any]) -> str:
    """Return the table of what was measured, in seconds."""
    facts, pixels = record["made_on"], record["pixels"]
    rows = [
        [each["data"], each["model"], f"{each['plane']:.2f} s", f"{each['click']:.2f} s", f"{each['slowest_click']:.2f} s"]
        for each in record["pairs"]
    ]
    quickest = f"plane of {pixels} x {pixels}, quickest of {record['repeats']}"
    head = ["points", "classifier", quickest, f"a click, median of {record['clicks']}", "the slowest"]
    where = f"{facts['processor']}, {facts['threads']} threads, torch {facts['torch']}"
    shown = f"Measured on {where}, while others kept {record['others']:.1f} cores busy:\n\n{text_table(head, rows)}"
    if "page" not in record:
        return shown
    opened = record["page"]
    load = f"{opened['load']:.1f} s (the slowest of {record['visits']} visits: {opened['slowest_load']:.1f} s)"
    start = f"`drq play` listens after {opened['start']:.1f} s, nearly all of which its libraries take to load."
    return f"{shown}\n\n{start} Then the page opens in {load}."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pixels", type=int, default=PIXELS)
    parser.add_argument("--no-page", action="store_true", help="where there is no Chromium")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the record")
    chosen = parser.parse_args()
    logging.getLogger("drq").setLevel(logging.ERROR)  # what a call costs is known here
    found, began, before = [], time.perf_counter(), busy_seconds()
    for each in pairs(chosen.pixels):
        print(each, flush=True)
        found.append(each)
    busy, own = (now - then for now, then in zip(busy_seconds(), before, strict=True))
    others = round(max(0.0, busy - own) / (time.perf_counter() - began), 2)
    record = {"made_on": machine("cpu"), "pixels": chosen.pixels, "radius": RADIUS, "visits": VISITS, "repeats": REPEATS}
    record |= {"clicks": len(CLICKS), "others": others, "pairs": found}
    if not chosen.no_page:
        record["page"] = page()
        print(record["page"])
    write(chosen.out, "plane-time", record)


if __name__ == "__main__":
    main()
