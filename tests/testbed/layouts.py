"""Makers of small files in the layouts in which data sets are published."""

import gzip
import pickle
import struct
from pathlib import Path

import numpy as np
from PIL import Image

NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def _text(value: str) -> bytes:
    return b"U" + bytes([len(value)]) + value.encode()


def _whole(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def old_pickle(x: np.ndarray, labels: list[int], key: str = "labels") -> bytes:
    """A batch as Python 2 and the numpy of its day wrote it: byte strings, the old module, protocol 2."""
    kind = b"cnumpy\ndtype\n" + _text("u1") + b"K\x00K\x01\x87R(K\x03" + _text("|") + b"NNN" + 2 * _whole(-1) + b"K\x00tb"
    shape = _whole(x.shape[0]) + _whole(x.shape[1]) + b"\x86"
    data = b"T" + struct.pack("<i", x.size) + x.tobytes()
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + _text("b") + b"\x87R"
    array += b"(K\x01" + shape + kind + b"\x89" + data + b"tb"
    items = _text("data") + array + _text(key) + b"](" + b"".join(_whole(each) for each in labels) + b"e"
    return b"\x80\x02}(" + items + b"u."


def pictures(count: int, seed: int = 0) -> np.ndarray:
    """Bytes (N, 3, 32, 32)."""
    return np.random.default_rng(seed).integers(0, 256, (count, 3, 32, 32), dtype=np.uint8)


def cifar10(home: Path, count: int = 6, train: int = 2) -> tuple[np.ndarray, list[int]]:
    """The folder of CIFAR-10, and its test images with their labels; the training files have ``train`` images each."""
    folder = home / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    x, y = pictures(count), [(3 * each + 1) % 10 for each in range(count)]
    (folder / "test_batch").write_bytes(old_pickle(x.reshape(count, -1), y))
    for number in range(1, 6):
        part = pictures(train, seed=number).reshape(train, -1)
        (folder / f"data_batch_{number}").write_bytes(old_pickle(part, [number] * train))
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": NAMES}, protocol=2))
    return x, y


def cifar10_c(home: Path, kind: str, each: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """The file of one corruption with ``each`` images a severity: (5N, 32, 32, 3), and its labels."""
    folder = home / "CIFAR-10-C"
    folder.mkdir(parents=True, exist_ok=True)
    x = np.random.default_rng(len(kind)).integers(0, 256, (5 * each, 32, 32, 3), dtype=np.uint8)
    y = np.tile(np.arange(each) % 10, 5).astype(np.uint8)
    np.save(folder / f"{kind}.npy", x)
    np.save(folder / "labels.npy", y)
    return x, y


def folder_of(home: Path, colours: dict[str, tuple[int, int, int]], size: tuple[int, int] = (8, 6), ending: str = "png") -> Path:
    """Pictures of one colour each, by their path."""
    for path, colour in colours.items():
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", size, colour).save(home / f"{path}.{ending}", format="PNG")
    return home


def idx(values: np.ndarray, kind: int = 8) -> bytes:
    """An idx file: two zeros, the kind of the values, how many dimensions, their sizes, the values."""
    return struct.pack(f">HBB{values.ndim}I", 0, kind, values.ndim, *values.shape) + values.tobytes()


def mnist(home: Path, folder: str = "MNIST/raw", split: str = "test", packed: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """The two files of one split of MNIST: its images (N, 28, 28) and its labels, each in turn."""
    count, begins = {"test": (10_000, "t10k"), "train": (60_000, "train")}[split]
    x = np.random.default_rng(count).integers(0, 256, (count, 28, 28), dtype=np.uint8)
    y = (np.arange(count) % 10).astype(np.uint8)
    (home / folder).mkdir(parents=True, exist_ok=True)
    for name, values in {"images-idx3": x, "labels-idx1": y}.items():
        content = idx(values)
        ending = ".gz" if packed else ""
        (home / folder / f"{begins}-{name}-ubyte{ending}").write_bytes(gzip.compress(content, 0) if packed else content)
    return x, y


def nips2017(home: Path, labels: dict[str, object], present: tuple[str, ...] | None = None) -> Path:
    """The folder of the NIPS 2017 pictures with these labels, counted from 1; all of the pictures are there, or some."""
    folder = home / "nips2017"
    (folder / "images").mkdir(parents=True)
    lines = [f"{name},https://example.org/{name}.jpg,{label},1" for name, label in labels.items()]
    (folder / "dev_dataset.csv").write_text("\n".join(["ImageId,URL,TrueLabel,TargetClass", *lines, ""]))
    for number, name in enumerate(labels if present is None else present):
        Image.new("RGB", (299, 299), (10 * number, 20, 200)).save(folder / "images" / f"{name}.png")
    return folder
