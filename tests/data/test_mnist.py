"""MNIST and Fashion-MNIST from idx files, gzipped or not; and what damaged, hostile and exchanged files are told."""

import gzip
import hashlib
import zlib

import numpy as np
import pytest
import torch
from testbed.layouts import idx, mnist

import drq.data
from drq.data import mnist as module
from drq.data.dataset import Files
from drq.data.mnist import LAYOUTS
from drq.errors import InputError
from drq.images import View
from drq.threats import Rotation, RotationTranslation, Translation
from drq.threats.corruptions import KINDS, Corruption

IMAGES, LABELS = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("DRQ_DATA", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("name", "folder", "classes"),
    [
        ("mnist", "MNIST/raw", ("0", "9")),
        ("mnist", "MNIST", ("0", "9")),
        ("fashion-mnist", "FashionMNIST/raw", ("T-shirt/top", "Ankle boot")),
    ],
)
def test_images_and_labels(home, name, folder, classes, packed):
    x, y = mnist(home, folder, packed=packed)
    data = drq.data.load(name)
    images, labels = data.batch([0, 9_999, 5])
    assert len(data) == 10_000
    assert torch.equal(images, torch.tensor(x[[0, 9_999, 5]])[:, None].float() / 255)
    assert labels.tolist() == y[[0, 9_999, 5]].tolist()
    assert (data.classes[0], data.classes[-1], len(data.classes)) == (*classes, 10)
    names = tuple(f"{each}{'.gz' if packed else ''}" for each in (IMAGES, LABELS))
    assert data.sha256 == Files(home / folder, names).sha256
    assert data.note == f"read from {', '.join(names)}, not as published"
    assert next(each.present for each in drq.data.list() if each.name == name)


def test_the_training_images(home):
    x, y = mnist(home, split="train")
    data = drq.data.load("mnist:train")
    assert len(data) == 60_000
    assert torch.equal(data[59_999][0], torch.tensor(x[59_999])[None].float() / 255)
    assert data[59_999][1] == y[59_999]
    with pytest.raises(InputError, match="'mnist' without"):
        drq.data.load("mnist")


def test_a_file_is_gzipped_where_its_content_says_so(home):
    """Browsers unpack files and keep their names."""
    x, _ = mnist(home)
    folder = home / "MNIST" / "raw"
    (folder / IMAGES).rename(folder / f"{IMAGES}.gz")
    (folder / LABELS).write_bytes(gzip.compress((folder / LABELS).read_bytes()))
    assert torch.equal(drq.data.load("mnist")[7][0], torch.tensor(x[7])[None].float() / 255)


def test_published_files_are_known_by_their_content(home, monkeypatch):
    mnist(home, packed=True)
    folder = home / "MNIST" / "raw"
    for name in (IMAGES, LABELS):
        content = gzip.decompress((folder / f"{name}.gz").read_bytes())
        monkeypatch.setitem(LAYOUTS["mnist"].published, name, hashlib.md5(content).hexdigest())
    assert drq.data.load("mnist").note == ""
    monkeypatch.setitem(LAYOUTS["mnist"].published, LABELS, "0" * 32)
    assert drq.data.load("mnist").note == f"read from {LABELS}.gz, not as published"


def test_every_file_has_its_published_checksums():
    for layout in LAYOUTS.values():
        assert {f"{name}.gz" for name in layout.published} == {each.file_name for each in layout.origin.gzipped}
        known = [*layout.published.values(), *(each.checksum for each in layout.origin.gzipped)]
        assert len(set(known)) == 8
        assert all(len(each) == 32 and int(each, 16) for each in known)


def test_only_a_view_that_leaves_images_alone(home):
    mnist(home)
    assert drq.data.load("mnist", view=View(28, 28, channels=1))[0][0].shape == (1, 28, 28)
    with pytest.raises(InputError, match=r"leave images of shape \(1, 28, 28\)"):
        drq.data.load("mnist", view=View(28, 28))


def test_a_download_fetches_what_is_missing_and_checks_it(home, server, monkeypatch):
    x, _ = mnist(home)
    raw = home / "MNIST" / "raw"
    server.content = gzip.compress((raw / IMAGES).read_bytes(), 1)
    (raw / IMAGES).unlink()
    with pytest.raises(InputError, match=r"run drq data mnist --download .* or get https://\S+/t10k-images\S+.gz by hand"):
        drq.data.load("mnist")
    address = server.url.replace("data.bin", f"{IMAGES}.gz")
    remote = module.RemoteFile(address, hashlib.md5(server.content).hexdigest())
    labels = module.RemoteFile(server.url.replace("data.bin", f"{LABELS}.gz"), "0" * 32)
    origin = module.Origin(("MNIST/raw", "MNIST"), gzipped=(remote, labels))
    monkeypatch.setitem(LAYOUTS, "mnist", LAYOUTS["mnist"]._replace(origin=origin))
    assert torch.equal(drq.data.load("mnist", download=True)[3][0], torch.tensor(x[3])[None].float() / 255)
    assert len(server.asked) == 1
    assert drq.data.load("mnist", download=True).sha256
    assert len(server.asked) == 1  # what is there is not fetched again
    (raw / f"{IMAGES}.gz").unlink()
    server.content += b"\0"
    with pytest.raises(InputError, match="another md5"):
        drq.data.load("mnist", download=True)
    assert not (raw / f"{IMAGES}.gz").exists()


def images(count=10_000, side=28):
    return np.zeros((count, side, side), np.uint8)


LABELLED = np.zeros(10_000, np.uint8)
NINETEEN = np.full(10_000, 10, np.uint8)
WHOLE = idx(images())
REPACKED = gzip.compress(WHOLE, 1)
DAMAGED = {
    "empty": (IMAGES, b"", r"be an idx file of bytes of shape \(10000, 28, 28\), got an empty one"),
    "text": (IMAGES, b"<html>not found</html>", "got one that begins with 3c68746d6c"),
    "three bytes": (IMAGES, b"\0\0\x08", "got one that begins with 000008: "),
    "labels for images": (IMAGES, idx(LABELLED), r"got one of shape \(10000,\)"),
    "images for labels": (LABELS, WHOLE, r"bytes of shape \(10000,\), got one that begins with 0000080300002710"),
    "another split": (IMAGES, idx(images(60_000)), r"got one of shape \(60000, 28, 28\): put the published file of this split"),
    "labels of another split": (LABELS, idx(np.zeros(60_000, np.uint8)), r"shape \(10000,\), got one of shape \(60000,\)"),
    "another size": (IMAGES, idx(images(side=32)), r"got one of shape \(10000, 32, 32\)"),
    "more than there is memory": (IMAGES, WHOLE[:4] + b"\xff" * 12, r"got one of shape \(4294967295, 4294967295, 4294967295\)"),
    "whole numbers of four bytes": (IMAGES, idx(images(), kind=12), "got one of other values, of type 12"),
    "truncated": (IMAGES, WHOLE[:-1], "got 7839999 of 7840000 values: remove it and download it anew"),
    "too long": (IMAGES, WHOLE + b"\0", "got more than its 7840000 values: remove it"),
    "a header alone": (IMAGES, WHOLE[:16], "got 0 of 7840000 values"),
    "gzipped, more than its header says": (IMAGES, gzip.compress(WHOLE + bytes(10**7), 1), "got more than its 7840000 values"),
    "gzipped, less than its header says": (IMAGES, gzip.compress(WHOLE[:-1], 1), "got 7839999 of 7840000 values"),
    "gzipped, truncated": (IMAGES, REPACKED[:-20], "whole gzipped file, got a damaged one .*: remove it"),
    "gzipped, another checksum": (IMAGES, REPACKED[:-8] + b"\1\2\3\4" + REPACKED[-4:], "CRC check failed"),
    "gzipped, a header alone": (IMAGES, REPACKED[:6], "whole gzipped file, got a damaged one"),
    "gzipped, scrambled": (IMAGES, REPACKED[:10] + b"\xff" * 40, "whole gzipped file, got a damaged one"),
    "a label of 10": (LABELS, idx(NINETEEN), "labels in .* must be below 10, got 10"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_files_are_one_line(home, case):
    name, content, named = DAMAGED[case]
    mnist(home)
    (home / "MNIST" / "raw" / name).write_bytes(content)
    with pytest.raises(InputError, match=named) as error:
        drq.data.load("mnist")
    assert "\n" not in str(error.value)
    assert str(home / "MNIST" / "raw" / name) in str(error.value)


def test_a_gzipped_file_is_inflated_no_further_than_its_header_says(home, monkeypatch):
    """A few kilobytes may stand for gigabytes."""
    mnist(home)
    request = []
    real = gzip.GzipFile.read
    monkeypatch.setattr(gzip.GzipFile, "read", lambda self, size=-1: request.append(size) or real(self, size))
    packer = zlib.compressobj(1, wbits=31)
    bomb = packer.compress(WHOLE) + b"".join(packer.compress(bytes(10**6)) for _ in range(100)) + packer.flush()
    (home / "MNIST" / "raw" / IMAGES).write_bytes(bomb)
    with pytest.raises(InputError, match="got more than its 7840000 values"):
        drq.data.load("mnist")
    assert request == [16, 7_840_001]


def test_corruptions_and_movements_take_grey_images_of_28_pixels(home):
    mnist(home)
    x, y = drq.data.load("mnist").batch(range(4))
    for threat in (*(Corruption(kind, severity) for kind in KINDS for severity in (1, 5)), Rotation(30), Translation()):
        harder = threat(None, x, y, index=torch.arange(4))
        assert harder.shape == x.shape
        assert 0 <= harder.min() <= harder.max() <= 1
        assert not torch.equal(harder, x), threat
    linear = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10)).eval()
    assert RotationTranslation(worst_of=3)(linear, x, y, index=torch.arange(4)).shape == x.shape
