"""Stop jobs of ``drq predict --out`` at random moments, compare what they leave with an undisturbed one, and measure their cost.

    python -m tools.benchmarks.predict_jobs        some minutes on two cores, with Ray and psutil

Two thousand small pictures are answered by a model of the package: undisturbed; killed ten times, every other time with the table
cut off at a random byte besides; and on two workers of Ray, which are killed as well. All tables must be equal but for the
seconds. Then the memory for 200 and for all pictures, and the pace beside that of ``decide`` on the same batches.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from drq.evaluation.engines import Local
from drq.serving.answering import Answering, Asked, answering
from drq.serving.jobs import fill, parts, survey, together, with_inputs
from tools import ROOT

MODEL, PRESET = "cifar10-tiny", "nature"
ON_RAY = ("--engine", "ray", "--workers", "2")
PATIENCE = 300.0  # seconds for a job to write anything
PEAK = "import resource, sys; from drq.commands.cli import main; main(sys.argv[1:]); print(resource.getrusage(0).ru_maxrss)"


def pictures(folder: Path, count: int, seed: int = 0) -> Path:
    """Fill a folder with small pictures, in folders of a hundred, one of them broken and two of a name."""
    from PIL import Image

    generator = torch.Generator().manual_seed(seed)
    for number in range(count):
        place = folder / f"{number // 100:03}" / f"{'same' if number in (0, 100) else number:05}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        values = (255 * torch.rand(6, 6, 3, generator=generator)).to(torch.uint8).numpy()
        Image.fromarray(values).resize((40, 36), Image.Resampling.BICUBIC).save(place)
    place.write_bytes(place.read_bytes()[:-20])
    return folder


def job(folder: Path, out: Path, *options: str, model: str = MODEL, preset: str = PRESET) -> list[str]:
    """Return the command that fills a table."""
    chosen = ["--model", model, "--preset", preset, "--out", str(out), "--quiet"]
    return [sys.executable, "-m", "drq", "predict", str(folder), *chosen, *options]


def ended(command: Sequence[str]) -> None:
    """Run a job to its end; status 2 says that a picture could not be read."""
    done = subprocess.run(command, capture_output=True, text=True, env=_environment())
    if done.returncode not in (0, 2) or "Traceback" in done.stderr:
        raise RuntimeError(f"status {done.returncode}: {done.stderr}")


def _environment() -> dict[str, str]:
    """One thread, and this very repository."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}


def size(path: Path) -> int:
    """Return the bytes of a table, 0 where there is none."""
    return path.stat().st_size if path.exists() else 0


def killed(command: Sequence[str], out: Path, growth: int, late: float) -> bool:
    """Start a job, and kill it once its table has grown so much, some seconds later; return whether it was killed."""
    target, began = size(out) + growth, time.monotonic()
    work = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=_environment())
    while size(out) < target and work.poll() is None and time.monotonic() - began < PATIENCE:
        time.sleep(0.001)
    time.sleep(late)
    work.send_signal(signal.SIGKILL)
    return work.wait() == -signal.SIGKILL


def cut_off(out: Path, draws: random.Random) -> int:
    """Cut the table off at a random byte, mostly of its last tenth, as a full disk may; return the bytes that are gone."""
    before = size(out)
    after = draws.randrange(before - before // draws.choice([1, 10, 10]), before + 1)
    os.truncate(out, after) if before else None
    return before - after


def disturbed(command: Sequence[str], out: Path, whole: int, kills: int, seed: int = 0) -> str:
    """Kill a job so many times, every other time with its table cut off, then let it end; ``whole`` is the size it will have."""
    draws, lost, count = random.Random(seed), [], 0
    for number in range(kills):
        left = max(1, whole - size(out))
        count += killed(command, out, draws.randrange(2 * left // (kills - number + 1) + 1), draws.choice([0, 0, 0.003, 0.02]))
        lost += [cut_off(out, draws)] if number % 2 else []
    ended(command)
    return f"{count} kills, {len(lost)} cuts of {', '.join(map(str, lost))} bytes"


def disturbed_workers(command: Sequence[str], out: Path, kills: int, whole: int, seed: int = 0) -> str:
    """Kill workers of Ray in one run at random moments, so many times, and let it end."""
    import psutil

    draws, count = random.Random(seed), 0
    work = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=_environment())
    targets = sorted(draws.randrange(1, max(2, whole * 8 // 10)) for _ in range(kills))
    while work.poll() is None:
        if targets and size(out) >= targets[0]:
            children = psutil.Process(work.pid).children(recursive=True)
            if busy := [each for each in children if _title(each).startswith("ray::answered")]:
                draws.choice(busy).kill()
                count += 1
                targets.pop(0)
        time.sleep(0.005)
    errors = work.communicate()[1]
    if work.returncode not in (0, 2) or "Traceback" in errors:
        raise RuntimeError(f"status {work.returncode}: {errors}")
    return f"{count} of its workers killed"


def _title(process: Any) -> str:
    import psutil

    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a table without their seconds, by the name of the file."""
    with path.open(newline="", encoding="utf-8") as file:
        found = [{name: cell for name, cell in row.items() if name != "seconds"} for row in csv.DictReader(file)]
    return sorted(found, key=lambda row: row["file"])


def verdict(path: Path, whole: Path, count: int) -> str:
    """Say whether a table has a row a picture, and whether it is the undisturbed one."""
    found, expected = rows(path), rows(whole)
    once = len(found) == len({row["file"] for row in found}) == count
    return f"{'one row a picture' if once else f'{len(found)} ROWS'}, {'equal' if found == expected else 'DIFFERENT'}"


def peak(command: Sequence[str]) -> float:
    """Return the most memory of a job, in MB."""
    done = subprocess.run(
        [sys.executable, "-c", PEAK, *command[3:], "--json"], capture_output=True, text=True, env=_environment()
    )
    return int(done.stdout.split()[-1]) / 1024


def pace(found: Answering, folder: Path, out: Path, rounds: int) -> list[list[float]]:
    """Return the seconds of ``decide`` on all batches and of the whole job, in turns here, each with those of the processors."""
    paths, predictor = [str(folder)], found.predictor
    work = with_inputs(predictor, parts(paths, survey(paths, b""), together(predictor)))
    batches = [torch.stack([*part.read.x.values()]) for part in work if part.read]

    def deciding() -> None:
        for x in batches:
            predictor.robust.decide(x, progress=False)

    def whole() -> None:
        fill(found, paths, out, Local(), restart=True)

    measured = []
    for _ in range(rounds):
        row = []
        for call in (deciding, whole):
            began, busy = time.perf_counter(), time.process_time()
            call()
            row += [time.perf_counter() - began, time.process_time() - busy]
        measured.append(row)
    return measured


def told(measured: Sequence[Sequence[float]], count: int) -> str:
    """Return the pace in words: of the quickest of all rounds, and by the time of processors, which other work does not touch."""
    decide, busy, job_, job_busy = (min(each) for each in zip(*measured, strict=True))
    rounds = ", ".join(f"{row[0] / row[2]:.1%}" for row in measured)
    quickest = f"{count / job_:.0f} pictures a second, {decide / job_:.1%} of decide alone ({count / decide:.0f})"
    return f"{quickest}; by rounds {rounds}; {busy / job_busy:.1%} if reading did not overlap, by the time of processors"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5, help="of measuring the pace, in turns")
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        room, count = Path(name), given.pictures
        folder, whole = pictures(room / "pictures", count), room / "whole.csv"
        ended(job(folder, whole))
        print("undisturbed:", verdict(whole, whole, count), flush=True)
        for title, options in (("here", ()), ("on Ray", ON_RAY)):
            out = room / f"{title}.csv"
            said = disturbed(job(folder, out, *options), out, size(whole), given.kills)
            print(f"{title}, {said}:", verdict(out, whole, count), flush=True)
        out = room / "workers.csv"
        said = disturbed_workers(job(folder, out, *ON_RAY), out, given.kills, size(whole))
        print(f"on Ray, {said}:", verdict(out, whole, count), flush=True)
        few = pictures(room / "few", count // 10)
        least, most = (peak(job(each, room / f"{each.name}-peak.csv")) for each in (few, folder))
        print(f"memory: {least:.0f} MB for {count // 10} pictures, {most:.0f} MB for {count}", flush=True)
        for preset in (PRESET, "instant"):  # some two and ten milliseconds a picture
            measured = pace(answering(Asked(model=MODEL, preset=preset)), folder, room / f"{preset}.csv", given.rounds)
            print(f"pace, {preset}:", told(measured, count), flush=True)


if __name__ == "__main__":
    main()
