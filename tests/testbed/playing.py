"""What the tests of ``drq play`` share: hostile files, and a server as the command starts it."""

import io
import json
import queue
import struct
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
from PIL import Image

from drq.data.loading import load
from testbed.repository import ROOT, reaching
from testbed.synthetic import records

REPAIRED, BROKEN = [*range(4, 60, 10)], [*range(7, 60, 10)]  # samples of the run
# Writes down every connection to another machine that the server tries to make.
WATCHER = """
import os, socket
def watched(real):
    def connect(self, address, *rest):
        if isinstance(address, tuple) and not str(address[0]).startswith(("127.", "::1", "localhost")):
            with open(os.environ["OUTSIDE"], "a") as file: file.write(f"{address}\\n")
        return real(self, address, *rest)
    return connect
socket.socket.connect = watched(socket.socket.connect)
socket.socket.connect_ex = watched(socket.socket.connect_ex)
asked = socket.getaddrinfo
def resolved(host, *rest, **more):
    if host not in (None, "127.0.0.1", "localhost", "::1", "0.0.0.0", socket.gethostname()):
        with open(os.environ["OUTSIDE"], "a") as file: file.write(f"{host}\\n")
    return asked(host, *rest, **more)
socket.getaddrinfo = resolved
"""


def png(width: int, height: int, pixels: bytes) -> bytes:
    """A PNG file with this header, whatever its pixels are."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(pixels)) + chunk(b"IEND", b"")


def photograph(colour: tuple[int, int, int] = (200, 30, 30), size: tuple[int, int] = (64, 48)) -> bytes:
    """A picture that is fine."""
    held = io.BytesIO()
    Image.new("RGB", size, colour).save(held, "PNG")
    return held.getvalue()


@cache
def uploads() -> dict[str, bytes]:
    """Files that must be refused, by name."""
    return {
        "empty.png": b"",
        "text.png": b"this is no picture",
        "page.png": b"<html><script>alert(1)</script></html>",
        "vector.png": b'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>',
        "truncated.png": photograph()[:60],
        "header.png": photograph()[:33],
        "bomb.png": png(50_000, 50_000, b"\0" * 1000),
        "wide.png": png(2**31 - 1, 1, b"\0"),
        "nothing.png": png(0, 0, b""),
        "large.png": photograph() + b"\0" * (9 * 2**20),
        "broken.png": png(10, 10, b"\xff" * 3),
    }


def run(path: Path) -> None:
    """A run of 60 digits: the model alone is wrong on every fifth; DRQ repairs and breaks every tenth. Three images are kept."""
    frame = records(60, models=("digits",), data=("digits",), threats={"clean": "clean", "PGD": "attacks"})
    wrong = (pl.col("label") + 1) % 10
    frame = frame.with_columns(base_prediction=pl.when(pl.col("index") % 5 == 4).then(wrong).otherwise("label"))
    answer = pl.when(pl.col("index") % 10 == 4).then("label").when(pl.col("index") % 10 == 7).then(wrong)
    defended = answer.otherwise("base_prediction")
    frame = frame.with_columns(prediction=pl.when(pl.col("defence") == "standard").then("base_prediction").otherwise(defended))
    (path / "records").mkdir(parents=True)
    frame.write_parquet(path / "records" / "0000.parquet")
    defences = {"standard": {"defence": "standard"}, "DRQ linf": {"defence": "drq", "norm": "linf", "radius": 0.3}}
    task = {"model": "digits", "data": "digits", "victim": "base", "defences": [*defences]}
    about = {
        "title": "<b>Bold</b> & ${1+1} {{value}} <img src=x onerror=alert(1)>",
        "spec": {"name": "one", "threats": {"clean": {"title": "clean"}, "PGD": {"title": "PGD"}}, "defences": defences},
        "spec_hash": "0" * 64,
        "tasks": [task | {"threat": name} for name in ("clean", "PGD")],
    }
    (path / "run.json").write_text(json.dumps(about))
    (path / "images").mkdir()
    np.savez(path / "images" / "0000-0000000.npz", images=load("digits", limit=5).batch(range(5))[0].numpy())


@contextmanager
def playground(folder: Path, scratch: Path, *options: str) -> Iterator[tuple[str, Path]]:
    """The address of ``drq play`` in a process of its own, and the file with what it asked of other machines."""
    (scratch / "site").mkdir(parents=True, exist_ok=True)
    (scratch / "site" / "sitecustomize.py").write_text(WATCHER)
    outside = scratch / "outside.txt"
    outside.write_text("")
    environment = reaching(scratch / "site", ROOT) | {"OUTSIDE": str(outside), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    environment |= {"GRADIO_TEMP_DIR": str(scratch / "uploads")}
    command = [sys.executable, "-m", "drq", "play", str(folder), "--no-browser", *options]
    with (scratch / "errors.txt").open("w") as errors:
        running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
        lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=lambda: [lines.put(line) for line in running.stdout], daemon=True).start()
        try:
            line = lines.get(timeout=120)
            assert "until Ctrl-C" in line, line
            yield line.split(" at ")[1].split(" until")[0].rstrip("/"), outside
        finally:
            running.terminate()
            running.wait(30)
            running.stdout.close()
