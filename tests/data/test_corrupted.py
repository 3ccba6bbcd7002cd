"""Corrupted data: published arrays and pictures read back exactly, and what is made where they are missing."""

import logging
import pickle

import numpy as np
import pytest
import torch
from PIL import Image
from testbed.layouts import NAMES, cifar10, cifar10_c, folder_of
from torch.utils.data import DataLoader

import drq.data
from drq.data import corrupted
from drq.data.dataset import Files
from drq.errors import InputError
from drq.images import View
from drq.threats.corruptions import KINDS, Corruption
from drq.threats.corruptions.ice import PHOTOGRAPHS


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("DRQ_DATA", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("severity", [1, 2, 5])
def test_a_severity_is_its_fifth_of_the_published_array(home, severity):
    x, y = cifar10_c(home, "fog", each=4)
    data = drq.data.load(f"cifar10-c/fog/{severity}")
    assert len(data) == 4
    images, labels = data.batch([0, 1, 2, 3])
    rows = slice(4 * (severity - 1), 4 * severity)
    assert torch.equal(images, torch.tensor(x[rows]).permute(0, 3, 1, 2).float() / 255)
    assert labels.tolist() == y[rows].tolist()
    assert data.name == f"cifar10-c/fog/{severity}"
    assert data.note == ""


def test_labels_follow_their_severity(home):
    cifar10_c(home, "fog", each=2)
    np.save(home / "CIFAR-10-C" / "labels.npy", np.arange(10))
    assert drq.data.load("cifar10-c/fog/4").batch([0, 1])[1].tolist() == [6, 7]


def test_severity_five_is_the_default_and_may_be_an_argument(home):
    cifar10_c(home, "snow")
    strongest = drq.data.load("cifar10-c/snow")
    assert strongest.name == "cifar10-c/snow/5"
    assert torch.equal(strongest[1][0], drq.data.load("cifar10-c/snow/5")[1][0])
    assert torch.equal(drq.data.load("cifar10-c/snow", severity=2)[1][0], drq.data.load("cifar10-c/snow/2", severity=2)[1][0])


def test_the_digest_is_of_the_array_and_its_labels(home):
    cifar10_c(home, "fog")
    before = drq.data.load("cifar10-c/fog").sha256
    assert before == Files(home / "CIFAR-10-C", ("fog.npy", "labels.npy")).sha256
    np.save(home / "CIFAR-10-C" / "labels.npy", np.zeros(20, dtype=np.uint8))
    assert drq.data.load("cifar10-c/fog").sha256 != before


def test_an_array_goes_to_other_processes_as_its_path(home):
    x, _ = cifar10_c(home, "fog", each=50)
    data = drq.data.load("cifar10-c/fog/1")
    content = pickle.dumps(data)
    assert len(content) < x.nbytes / 100
    assert torch.equal(pickle.loads(content)[7][0], data[7][0])
    assert sum(len(images) for images, _ in DataLoader(data, 16, num_workers=0)) == 50


def test_names_of_classes_come_from_the_clean_data(home):
    cifar10_c(home, "fog")
    assert drq.data.load("cifar10-c/fog").classes is None
    cifar10(home)
    assert drq.data.load("cifar10-c/fog").classes == tuple(NAMES)


@pytest.mark.parametrize(
    ("write", "named"),
    [
        (lambda path: np.save(path, np.zeros((20, 32, 32, 3))), "array .* of bytes, .* got float64 of shape"),
        (lambda path: np.save(path, np.zeros((21, 32, 32, 3), np.uint8)), "N a multiple of 5"),
        (lambda path: np.save(path, np.zeros((20, 3, 32, 32), np.uint8)), r"got uint8 of shape \(20, 3, 32, 32\)"),
        (lambda path: np.save(path, np.zeros((25, 32, 32, 3), np.uint8)), "must be 25 whole numbers below 10, got uint8"),
        (lambda path: np.save(path, np.array([{}], dtype=object), allow_pickle=True), "whole array of numpy"),
        (lambda path: path.write_bytes(path.read_bytes()[:-9]), "whole array of numpy"),
        (lambda path: path.write_bytes(b"garbage"), "whole array of numpy"),
        (lambda path: path.write_bytes(b""), "whole array of numpy"),
    ],
)
def test_damaged_arrays_are_one_line(home, write, named):
    cifar10_c(home, "fog")
    write(home / "CIFAR-10-C" / "fog.npy")
    with pytest.raises(InputError, match=named) as error:
        drq.data.load("cifar10-c/fog")
    assert "\n" not in str(error.value)
    assert str(home / "CIFAR-10-C") in str(error.value)


@pytest.mark.parametrize(
    ("name", "severity", "named"),
    [
        ("cifar10-c", None, "name must be cifar10-c/KIND or cifar10-c/KIND/SEVERITY, got 'cifar10-c'"),
        ("cifar10-c/fog/3/1", None, "name must be cifar10-c/KIND"),
        ("cifar10-c/frog", None, "the nearest is 'fog'"),
        ("cifar10-c/fog/6", None, "name must end in a severity from 1 to 5, got 'cifar10-c/fog/6'"),
        ("cifar10-c/fog/x", None, "severity from 1 to 5"),
        ("cifar10-c/fog/", None, "severity from 1 to 5"),
        ("cifar10-c/fog", 0, "severity must be a whole number from 1 to 5, got 0"),
        ("cifar10-c/fog", "3", "severity must be a whole number from 1 to 5, got '3'"),
        ("cifar10-c/fog", True, "severity must be a whole number from 1 to 5, got True"),
        ("cifar10-c/fog/3", 4, "severity must agree with the name, cifar10-c/fog/3, got 4"),
        ("cifar10-c/spatter", None, "cifar10-c/spatter/5' without"),  # published, but nobody here can make it
    ],
)
def test_wrong_names(home, name, severity, named):
    cifar10(home)
    with pytest.raises(InputError, match=named):
        drq.data.load(name, severity=severity)


@pytest.mark.parametrize("kind", ["gaussian_noise", "contrast", "fog"])
def test_what_is_missing_is_made_on_the_fly(home, kind, caplog):
    x, y = cifar10(home)
    corrupted._tell.cache_clear()
    with caplog.at_level(logging.WARNING, logger="drq"):
        data = drq.data.load(f"cifar10-c/{kind}/3")
        clean = torch.tensor(x).float() / 255
        made = Corruption(kind, 3)(None, clean, None, index=torch.arange(6))
        for positions in ([0, 1, 2, 3, 4, 5], [4, 2]):
            images, labels = data.batch(positions)
            assert torch.equal(images, (made[positions] * 255).round() / 255)
            assert labels.tolist() == [y[each] for each in positions]
    assert torch.equal(images, (images * 255).round() / 255)
    assert data.note.startswith("made on the fly from cifar10")
    assert f"CIFAR-10-C/{kind}.npy is missing" in data.note
    assert str(home) not in data.note
    assert len(caplog.records) == 1
    assert data.note.split(";")[0] in caplog.text
    assert data.sha256 == drq.data.load("cifar10").sha256
    with caplog.at_level(logging.WARNING, logger="drq"):
        assert len(drq.data.load(f"cifar10-c/{kind}/3", limit=2)) == 2
    assert len(caplog.records) == 1  # it is said once


def test_photographs_of_frost_are_used_where_they_lie(home):
    x, _ = cifar10(home)
    clean, name = torch.tensor(x).float() / 255, "cifar10-c/frost/5"
    drawn = drq.data.load(name)
    assert "ice drawn" in drawn.note
    (home / "frost").mkdir()
    for number, photograph in enumerate(PHOTOGRAPHS):
        Image.new("RGB", (64, 64), (40 * number, 20, 30)).save(home / "frost" / photograph)
    data = drq.data.load(name)
    assert "ice from the published photographs" in data.note
    made = Corruption("frost", 5, photographs=home / "frost")(None, clean, None, index=torch.arange(6))
    assert torch.equal(data.batch(range(6))[0], (made * 255).round() / 255)
    assert not torch.equal(data.batch(range(6))[0], drawn.batch(range(6))[0])
    first = data.sha256
    assert drawn.sha256 == drq.data.load("cifar10").sha256 != first
    Image.new("RGB", (64, 64)).save(home / "frost" / PHOTOGRAPHS[0])
    assert drq.data.load(name).sha256 != first
    (home / "frost" / PHOTOGRAPHS[3]).unlink()
    assert "ice drawn" in drq.data.load(name).note


def test_labels_that_are_missing_are_named(home):
    cifar10(home)
    cifar10_c(home, "fog")
    (home / "CIFAR-10-C" / "labels.npy").unlink()
    assert "CIFAR-10-C/labels.npy is missing" in drq.data.load("cifar10-c/fog").note


@pytest.mark.parametrize("place", ["imagenet-c/fog/3", "imagenet-c/weather/fog/3", "ImageNet-C/weather/fog/3"])
def test_imagenet_c_with_and_without_the_folder_of_the_family(home, place):
    folder_of(home / place, {"n01443537/a": (0, 0, 255)}, size=(224, 224), ending="JPEG")
    image = np.random.default_rng(0).integers(0, 256, (224, 224, 3), dtype=np.uint8)
    (home / place / "n01440764").mkdir()
    Image.fromarray(image).save(home / place / "n01440764" / "b.JPEG", format="PNG")
    data = drq.data.load("imagenet-c/fog/3")
    x, y = data.batch([0, 1])
    assert torch.equal(x[0], torch.tensor(image).permute(2, 0, 1).float() / 255)  # neither resized nor cropped
    assert y.tolist() == [0, 1]
    assert data.subset is None
    with pytest.raises(InputError, match="'imagenet-c/fog/4' without"):
        drq.data.load("imagenet-c/fog/4")


def test_imagenet_c_is_made_of_what_the_view_shows(home):
    folder_of(home / "imagenet/val", {"n01443537/a": (0, 99, 255), "n01440764/b": (255, 0, 51)}, size=(50, 40), ending="JPEG")
    view = View(24, 24, resize=32)
    data = drq.data.load("imagenet-c/brightness/2", view=view)
    clean, _ = drq.data.load("imagenet", view=view).batch([1])
    made = Corruption("brightness", 2)(None, clean, None, index=torch.tensor([1]))
    assert torch.equal(data.batch([1])[0], (255 * made).round() / 255)
    assert "imagenet-c/brightness/2 is missing" in data.note


def test_every_corruption_has_a_name(home):
    cifar10(home, count=1)
    for kind in KINDS:
        assert drq.data.load(f"cifar10-c/{kind}/1")[0][0].shape == (3, 32, 32)
