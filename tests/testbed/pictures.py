"""Pictures of which every pixel is known, and files of them."""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

from drq.images import read
from testbed.refusals import refused

RED, BLUE, WHITE = (255, 0, 0), (0, 0, 255), (255, 255, 255)
ROTATED = {1: "AB CD", 2: "BA DC", 3: "DC BA", 4: "CD AB", 5: "AC BD", 6: "CA DB", 7: "DB CA", 8: "BD AC"}  # EXIF 2.32, tag 274


def letters(picture: Image.Image) -> str:
    """What lies in the four corners of a picture whose quarters have four levels of grey."""
    values = np.asarray(picture.convert("L"))
    corners = values[2, 2], values[2, -3], values[-3, 2], values[-3, -3]
    found = ["ABCD"[round(int(each) / 80)] for each in corners]
    return "".join(found[:2]) + " " + "".join(found[2:])


def quarters() -> Image.Image:
    values = np.kron(np.array([[0, 80], [160, 240]]), np.ones((16, 16))).astype(np.uint8)
    return Image.fromarray(values).convert("RGB")


def saved(image: Image.Image, path: Path, **options) -> Path:
    image.save(path, **options)
    return path


def encoded(image: Image.Image, kind: str, **options) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width: int, height: int, bits: int, colour: int, rows: bytes, *more: bytes) -> bytes:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(more) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def unread(path, *words: str) -> None:
    refused(read, path, words=words)


DAMAGED = b"Exif\0\0II*\0\x08\0\0\0\xff\xff" + b"\x12\x01" * 9  # PIL warns of it


def textured() -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8))
