"""CIFAR in its published files, read back exactly; and pickles that are not to be trusted."""

import hashlib
import os
import pickle

import numpy as np
import pytest
import torch
from testbed.assets import needs_assets
from testbed.layouts import NAMES, cifar10, old_pickle, pictures

import drq.data
from drq.data.cifar import LAYOUTS
from drq.data.pickles import read_pickle
from drq.errors import InputError
from drq.images import View
from drq.system.files import digest


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("DRQ_DATA", str(tmp_path))
    return tmp_path


def test_the_test_images(home):
    x, y = cifar10(home)
    data = drq.data.load("cifar10")
    assert len(data) == 6
    images, labels = data.batch(range(6))
    assert images.dtype == torch.float32
    assert np.array_equal((images * 255).round().numpy().astype(np.uint8), x)
    assert torch.equal(images, torch.tensor(x).float() / 255)
    assert labels.tolist() == y
    assert data.classes == tuple(NAMES)
    assert data.sha256 == digest(home / "cifar-10-batches-py" / "test_batch")
    assert data.note == "read from test_batch, not as published"


def test_the_training_images_come_in_the_order_of_their_files(home):
    cifar10(home, train=2)
    data = drq.data.load("cifar10", "train")
    assert data.batch(range(10))[1].tolist() == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert torch.equal(data[4][0], torch.tensor(pictures(2, seed=3)[0]).float() / 255)


def test_several_files_have_the_digest_that_sha256sum_gives(home):
    cifar10(home)
    names = [f"data_batch_{number}" for number in range(1, 6)]
    lines = "".join(f"{digest(home / 'cifar-10-batches-py' / name)}  {name}\n" for name in names)
    assert drq.data.load("cifar10", "train").sha256 == hashlib.sha256(lines.encode()).hexdigest()


def test_cifar100_has_the_fine_labels(home):
    folder = home / "cifar-100-python"
    folder.mkdir()
    x = pictures(3)
    (folder / "test").write_bytes(old_pickle(x.reshape(3, -1), [99, 0, 42], key="fine_labels"))
    data = drq.data.load("cifar100")
    assert data.batch(range(3))[1].tolist() == [99, 0, 42]
    assert data.classes is None  # without the file of names
    names = [f"class {number}" for number in range(100)]
    (folder / "meta").write_bytes(pickle.dumps({"fine_label_names": names, "coarse_label_names": []}, protocol=2))
    assert drq.data.load("cifar100").classes == tuple(names)


def test_limit_and_view(home):
    x, _ = cifar10(home)
    assert torch.equal(drq.data.load("cifar10", limit=2, view=View(32, 32)).batch([1])[0][0], torch.tensor(x[1]).float() / 255)
    for view in (View(224, 224), View(32, 32, resize=40), View(32, 32, channels=1)):
        with pytest.raises(InputError, match=r"view must be None or leave images of shape \(3, 32, 32\) as they are"):
            drq.data.load("cifar10", view=view)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("key", [str, str.encode])
@pytest.mark.parametrize("labels", [list, np.array])
def test_trimmed_files_of_any_protocol(tmp_path, protocol, key, labels):
    x = pictures(2).reshape(2, -1)
    content = {key("data"): x, key("labels"): labels([3, 258]), key("columns"): np.asfortranarray(x)}
    (tmp_path / "batch").write_bytes(pickle.dumps(content, protocol=protocol))
    read = read_pickle(tmp_path / "batch")
    assert np.array_equal(read["data"], x)
    assert np.array_equal(read["columns"], x)
    assert list(read["labels"]) == [3, 258]


class Harmful:
    """Leaves a file behind where it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_that_calls_something_is_refused(tmp_path, protocol):
    path = tmp_path / "batch"
    content = pickle.dumps({"data": Harmful(tmp_path / "made")}, protocol=protocol)
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"got a pickle that calls for \w+\.mkdir, which could be harmful: remove it"):
        read_pickle(path)
    assert not (tmp_path / "made").exists()
    pickle.loads(content)
    assert (tmp_path / "made").exists()  # it was a real one


def old(**changed):
    """An old pickle with a piece exchanged for another of the same length."""
    content = old_pickle(pictures(2).reshape(2, -1), [1, 2])
    for before, after in changed.values():
        assert before in content
        content = content.replace(before, after)
    return content


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"", "0 bytes"),
        (b"not a pickle at all", "whole pickle of a dict"),
        (old()[:-3000], "whole pickle of a dict"),
        (old()[:300], "whole pickle of a dict"),
        (pickle.dumps([1, 2]), "whole pickle of a dict"),
        (pickle.dumps(7), "whole pickle of a dict"),
        (old(shape=(b"J\x02\x00\x00\x00J\x00\x0c", b"J\x09\x00\x00\x00J\x00\x0c")), "6144 values for an array of shape"),
        (old(kind=(b"U\x02u1", b"U\x02O8")), "array of type"),
        (old(kind=(b"cnumpy\ndtype\n", b"cnumpy\nloadtxt\n")), "calls for numpy.loadtxt"),
        (old(kind=(b"cnumpy\nndarray\n", b"cbuiltins\neval\n")), "calls for builtins.eval"),
    ],
)
def test_damaged_pickles_are_one_line(tmp_path, content, named):
    (tmp_path / "batch").write_bytes(content)
    with pytest.raises(InputError, match=named) as error:
        read_pickle(tmp_path / "batch")
    assert str(tmp_path / "batch") in str(error.value)
    assert "\n" not in str(error.value)


def test_stand_ins_cannot_be_changed_by_a_pickle(tmp_path):
    """A pickle may set the state of what it names; here that must reach no class."""
    from drq.data.pickles import STAND_INS

    before = {kind: dict(vars(kind)) for kind in set(STAND_INS.values())}
    for module, name in STAND_INS:
        (tmp_path / "batch").write_bytes(f"c{module}\n{name}\n(N}}S'value'\nS'changed'\nstb.".encode())
        with pytest.raises(InputError):
            read_pickle(tmp_path / "batch")
    assert before == {kind: dict(vars(kind)) for kind in before}


@pytest.mark.parametrize(
    ("x", "y", "named"),
    [
        (pictures(2).reshape(2, -1)[:, :3071], [1, 2], r"data in .* must be an array \(N, 3072\) of bytes, got uint8 of shape"),
        (pictures(2).reshape(2, -1)[:0], [], r"data in .* must be an array"),
        (pictures(2).reshape(2, -1), [1], "labels in .* must be 2 whole numbers below 10, got a list of 1"),
        (pictures(2).reshape(2, -1), [1, 10], "whole numbers below 10"),
        (pictures(2).reshape(2, -1), [1, -1], "whole numbers below 10"),
    ],
)
def test_files_that_hold_something_else(home, x, y, named):
    folder = home / "cifar-10-batches-py"
    folder.mkdir()
    (folder / "test_batch").write_bytes(old_pickle(x, y))
    with pytest.raises(InputError, match=named):
        drq.data.load("cifar10")


def test_labels_that_are_no_whole_numbers(home):
    folder = home / "cifar-10-batches-py"
    folder.mkdir()
    for labels in ([1.0, 2.0], ["1", "2"], None, [[1], [2]]):
        (folder / "test_batch").write_bytes(pickle.dumps({"data": pictures(2).reshape(2, -1), "labels": labels}))
        with pytest.raises(InputError, match=r"labels in .* must be 2 whole numbers below 10"):
            drq.data.load("cifar10")


@pytest.mark.slow
@needs_assets
def test_the_real_files(assets):
    folder = assets / "cifar-10-batches-py"
    for name, md5 in LAYOUTS["cifar10"].published.items():
        assert digest(folder / name, "md5") == md5
    data = drq.data.load("cifar10")
    truth = pickle.loads((folder / "test_batch").read_bytes(), encoding="bytes")
    x, y = data.batch(range(10000))
    assert np.array_equal((x * 255).round().to(torch.uint8).numpy().reshape(10000, -1), truth[b"data"])
    assert y.tolist() == truth[b"labels"]
    assert y[:4].tolist() == [3, 8, 8, 0]
    assert data.classes == tuple(NAMES)
    assert data.note == ""
    train = drq.data.load("cifar10", "train")
    assert len(train) == 50000
    assert train.batch(range(50000))[1].bincount().tolist() == [5000] * 10
