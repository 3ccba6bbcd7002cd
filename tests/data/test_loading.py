"""Data by name: what every data set can do, Datasets that are handed in, and what a wrong name is told."""

import pickle
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from testbed.layouts import cifar10
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import drq.data
import drq.data.digits
from drq.data.dataset import InMemory
from drq.errors import InputError
from drq.images import View

X = torch.arange(24.0).view(4, 1, 2, 3) / 24
Y = torch.tensor([7, 3, 9, 3])


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("DRQ_DATA", str(tmp_path))
    return tmp_path


@pytest.fixture
def data():
    return drq.data.Data("four", InMemory(X, Y), tuple("0123456789"), subset=(3, 7, 9))


class Items(Dataset):
    """Whatever items a test needs."""

    def __init__(self, *items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, position):
        return self.items[position]


def test_items_and_batches(data):
    x, y = data[1]
    assert torch.equal(x, X[1])
    assert type(y) is int
    assert y == 3
    assert torch.equal(data[-1][0], X[3])
    x, y = data.batch([2, 0, -1])
    assert torch.equal(x, X[[2, 0, 3]])
    assert torch.equal(y, Y[[2, 0, 3]])
    assert torch.equal(data.batch(torch.tensor([1]))[0], X[1:2])
    assert [label for _, label in data] == Y.tolist()  # the loop ends


def test_nobody_changes_the_data(data):
    data[0][0].fill_(0.5)
    data.batch([0])[0].fill_(0.5)
    assert torch.equal(data[0][0], X[0])


@pytest.mark.parametrize(("indices", "named"), [([], "at least one"), ([4], "below 4, got 4"), ([-5], "got -5")])
def test_batches_outside_are_refused(data, indices, named):
    with pytest.raises(InputError, match=named):
        data.batch(indices)


def test_a_data_loader_reads_it(data):
    batches = list(DataLoader(data, batch_size=3))
    assert torch.equal(torch.cat([x for x, _ in batches]), X)
    assert torch.equal(torch.cat([y for _, y in batches]), Y)


def test_it_survives_pickling(data):
    other = pickle.loads(pickle.dumps(data))
    assert torch.equal(other.batch([3, 1])[0], X[[3, 1]])
    assert other.sha256 == data.sha256


def test_limit_takes_the_first(data):
    few = drq.data.load(data, limit=2)
    assert len(few) == 2
    assert torch.equal(few[-1][0], X[1])
    assert (few.name, few.classes, few.subset, few.sha256) == (data.name, data.classes, data.subset, data.sha256)
    with pytest.raises(IndexError):
        few[2]
    assert len(drq.data.load(data)) == 4


@pytest.mark.parametrize("limit", [0, -1, 5, True, 1.5, "2"])
def test_wrong_limits(data, limit):
    with pytest.raises(InputError, match=r"^limit must be a whole number from 1 to 4, the size of four, got"):
        drq.data.load(data, limit=limit)


def test_labels_within_the_subset(data):
    cut = drq.data.Relabelled(data)
    assert cut.batch(range(4))[1].tolist() == [1, 0, 2, 0]
    assert torch.equal(cut.batch(range(4))[0], X)
    assert cut.classes == ("3", "7", "9")
    assert cut.subset is None
    assert cut.sha256 == data.sha256
    assert [y for _, y in drq.data.load(cut, limit=3)] == [1, 0, 2]
    with pytest.raises(InputError, match="data must have a subset"):
        drq.data.Relabelled(cut)


def test_digits_are_those_of_the_demonstration():
    pytest.importorskip("sklearn")
    for split, images in zip(("train", "test"), drq.data.digits.split(), strict=True):
        loaded = drq.data.load("digits", split)
        x, y = loaded.batch(range(len(loaded)))
        assert torch.equal(x, images.x)
        assert torch.equal(y, images.y)
    assert loaded.classes == tuple("0123456789")
    assert len(loaded.sha256) == 64
    assert loaded.sha256 != drq.data.load("digits", "train").sha256
    assert [int(each) for each in images.y[:8]] == [0, 1, 3, 6, 7, 1, 3, 5]  # once and for all


def test_a_name_may_say_the_split():
    pytest.importorskip("sklearn")
    named, given = drq.data.load("digits:train"), drq.data.load("digits", "train")
    assert (named.name, len(named), named.sha256) == (given.name, len(given), given.sha256)
    assert drq.data.load("digits:train", "train").sha256 == given.sha256
    assert drq.data.load("digits:test").sha256 == drq.data.load("digits").sha256 != given.sha256


def test_a_dataset_of_floats_and_of_bytes():
    x = torch.rand(3, 1, 4, 5)
    floats = drq.data.load(TensorDataset(x.double(), torch.tensor([2, 0, 1])))
    assert floats.name == "TensorDataset"
    assert floats.sha256 is None
    assert floats[0][0].dtype == torch.float32
    assert torch.equal(floats.batch([0, 1, 2])[0], x)
    assert floats.batch([0, 1, 2])[1].tolist() == [2, 0, 1]
    values = torch.tensor([[[0, 51, 255]]], dtype=torch.uint8)
    loaded = drq.data.load(Items((values, 1), (values, np.int64(2)), (values, torch.tensor(3))))
    assert torch.equal(loaded[0][0], torch.tensor([[[0, 51 / 255, 1]]]))
    assert [y for _, y in loaded] == [1, 2, 3]
    assert torch.equal(next(iter(DataLoader(loaded, 2)))[1], torch.tensor([1, 2]))


def test_a_dataset_of_pil_images():
    grey, colour = Image.new("L", (3, 2), 51), Image.new("RGB", (4, 8), (255, 0, 51))
    assert torch.equal(drq.data.load(Items((grey, 0)))[0][0], torch.full((1, 2, 3), 51 / 255))
    x, _ = drq.data.load(Items((colour, 0)), view=View(2, 2))[0]
    assert torch.equal(x, torch.tensor([1, 0, 51 / 255]).view(3, 1, 1).expand(3, 2, 2))


def test_a_dataset_that_names_its_classes():
    items = Items((torch.rand(1, 2, 2), 0))
    items.classes = ["cat", "dog"]
    assert drq.data.load(items).classes == ("cat", "dog")


OK = torch.full((3, 4, 4), 0.5)


@pytest.mark.parametrize(
    ("item", "named"),
    [
        ((OK * 510, 0), r"item 0 of the data must have an image in \[0, 1\], got values from 255 to 255"),
        ((OK - 1, 0), "values from -0.5 to -0.5"),
        ((OK * float("nan"), 0), "finite image"),
        ((OK.long(), 0), "got torch.int64"),
        ((torch.tensor(0.5), 0), r"got shape \(\)"),
        ((torch.zeros(4, 4, 3, dtype=torch.uint8), 0), "channels first"),
        ((OK.numpy(), 0), "got ndarray"),
        ((OK, 1.0), "label that is a whole number of at least 0, got 1.0"),
        ((OK, -1), "got -1"),
        ((OK, True), "got True"),
        ((OK, "cat"), "got 'cat'"),
        ((OK, torch.tensor([1, 2])), "got tensor"),
        ((OK, 1, 2), r"a pair \(image, label\), got tuple"),
        (OK, "got Tensor"),
    ],
)
def test_wrong_items(item, named):
    with pytest.raises(InputError, match=named) as error:
        drq.data.load(Items(item))[0]
    assert "\n" not in str(error.value)


def test_images_of_one_batch_have_one_shape():
    loaded = drq.data.load(Items((OK, 0), (OK[:, :2], 0)))
    assert loaded[1][0].shape == (3, 2, 4)
    with pytest.raises(InputError, match=r"one shape, got \[\(3, 2, 4\), \(3, 4, 4\)\]"):
        loaded.batch([0, 1])


class Endless(IterableDataset):
    """No items by position."""

    def __iter__(self):
        return iter([])

    def __len__(self):
        return 3


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: drq.data.load("cifar11"), r"got 'cifar11': the nearest is cifar10"),
        (lambda: drq.data.load("cifar10/fog"), r"got 'cifar10/fog'"),
        (lambda: drq.data.load("folder"), r"got 'folder'"),
        (lambda: drq.data.load(7), r"be the name of a data set or a torch Dataset, got int"),
        (lambda: drq.data.load("cifar10", "valid"), r"split must be one of train, test for cifar10, got 'valid'"),
        (lambda: drq.data.load("imagenet-a", "train"), r"split must be one of test for imagenet-a, got 'train'"),
        (lambda: drq.data.load("cifar10:valid"), r"split must be one of train, test for cifar10, got 'valid'"),
        (lambda: drq.data.load("imagenet-a:train"), r"split must be one of test for imagenet-a, got 'train'"),
        (lambda: drq.data.load("cifar10:test", "train"), r"be left out, or be that of 'cifar10:test', got 'train'"),
        (lambda: drq.data.load("cifar11:train"), r"got 'cifar11': the nearest is cifar10"),
        (lambda: drq.data.load("cifar10", severity=3), r"severity must be None for cifar10, got 3"),
        (lambda: drq.data.load(Items((OK, 0)), "train"), r"split must be one of test for a Dataset"),
        (lambda: drq.data.load(Items()), r"at least one item"),
        (lambda: drq.data.load(Endless()), r"a length and items by position, got Endless"),
        (lambda: drq.data.load("digits", view=View(224, 224)), r"view must be None or leave images of shape \(1, 8, 8\)"),
        (
            lambda: drq.data.load(Items((OK, 0)), view=View(224, 224))[0],
            r"view must be None or leave images of shape \(3, 4, 4\)",
        ),
    ],
)
def test_wrong_requests(call, named):
    with pytest.raises(InputError, match=named) as error:
        call()
    assert "\n" not in str(error.value)


def test_a_view_that_leaves_images_alone_is_welcome():
    assert len(drq.data.load("digits", view=View(8, 8, channels=1))) == 500


@pytest.mark.parametrize(
    ("name", "expected", "remedy"),
    [
        ("cifar10", "cifar-10-batches-py/test_batch", "run drq data cifar10 --download"),
        ("cifar10", "cifar-10-batches-py/test_batch", "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"),
        ("cifar100", "cifar-100-python/test", "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz"),
        ("cifar10-c/fog/3", "CIFAR-10-C/fog.npy", "https://zenodo.org/records/2535967/files/CIFAR-10-C.tar"),
        ("cifar100-c/fog", "CIFAR-100-C/fog.npy", "where cifar100 is present, it is made on the fly"),
        ("mnist", "MNIST/raw/t10k-images-idx3-ubyte", "run drq data mnist --download"),
        (
            "fashion-mnist",
            "FashionMNIST/raw/t10k-images-idx3-ubyte",
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
        ),
        ("nips2017", "nips2017/dev_dataset.csv", "https://github.com/cleverhans-lab/cleverhans"),
        ("imagenet", "imagenet/val", "https://image-net.org"),
        ("imagenet-c/fog/3", "imagenet-c/fog/3", "https://zenodo.org/records/2235448"),
        ("imagenet-a", "imagenet-a", "https://people.eecs.berkeley.edu/~hendrycks/imagenet-a.tar"),
        ("imagenet-r", "imagenet-r", "https://people.eecs.berkeley.edu/~hendrycks/imagenet-r.tar"),
    ],
)
def test_missing_data_says_how_to_come_by_it(home, name, expected, remedy):
    with pytest.raises(InputError) as error:
        drq.data.load(name)
    message = str(error.value)
    assert str(home / expected) in message
    assert remedy in message
    assert "DRQ_DATA" in message
    assert "\n" not in message
    assert list(home.iterdir()) == []


def test_the_list_says_what_is_present(home):
    before = {entry.name: entry for entry in drq.data.list()}
    assert before["digits"].present
    assert not before["cifar10"].present
    assert before["cifar10"].expected == str(home / "cifar-10-batches-py")
    assert {"cifar100", "cifar10-c/KIND/SEVERITY", "imagenet-c/KIND/SEVERITY", "imagenet-r", "folder:NAME"} <= set(before)
    assert all(entry.summary for entry in before.values())
    cifar10(home)
    after = {entry.name for entry in drq.data.list() if entry.present}
    assert after == {name for name, entry in before.items() if entry.present} | {
        "cifar10",
        "cifar10-c/KIND/SEVERITY",
    }  # made on the fly


def test_files_that_cannot_be_read_are_one_line(home):
    (home / "cifar-10-batches-py" / "test_batch").mkdir(parents=True)
    with pytest.raises(InputError, match="name must be a data set that can be read, got 'cifar10'"):
        drq.data.load("cifar10")


def test_scikit_learn_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(InputError, match=r"pip install 'decision-region-quantification\[demo\]'"):
        drq.data.load("digits")
