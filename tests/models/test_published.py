"""Small networks as others published them: what they compute, what is known of them, and which files are refused."""

import hashlib
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from testbed import published_networks as networks
from testbed.assets import needs_assets
from testbed.refusals import refused
from testbed.robustbench_networks import Shapes, values

import drq
from drq.models import published
from drq.models.architectures import blank
from drq.models.weights import Weights, fill
from drq.system.downloads import RemoteFile

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CIFAR = ((0.4914, 0.4822, 0.4465), (0.2471, 0.2435, 0.2616))
CNN_A = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
GREY = ((0.0,), (1.0,))


class Known(NamedTuple):
    """What others say of a network; accuracies are on all 10 000 test images, parameters as counted in its file."""

    shapes: Shapes
    run: object
    channels: tuple[tuple[float, ...], tuple[float, ...]]
    parameters: int
    clean: float
    explored: dict[str, object]  # by DRQ: twice the radius of the training, where the source states one


plain = networks.run_plain_resnet
KNOWN = {
    "resnet20": Known(networks.resnet(20), networks.run_resnet, IMAGENET, 269_722, 91.73, {}),
    "resnet56": Known(networks.resnet(56), networks.run_resnet, IMAGENET, 853_018, 93.39, {}),
    "resnet2b": Known(networks.plain_resnet(8, 1), plain, CIFAR, 112_006, 69.25, {"norm": "linf", "radius": 4 / 255}),
    "resnet4b": Known(networks.plain_resnet(16, 2), plain, CIFAR, 123_734, 77.20, {"norm": "linf", "radius": 4 / 255}),
    "cnn-a-mix": Known(networks.four_layers(3, 32), networks.run_four_layers, CNN_A, 214_918, 76.77, {}),
    "cnn-a-adv4": Known(networks.four_layers(3, 32), networks.run_four_layers, CNN_A, 214_918, 60.07, {}),
    "lenet5-advtrained": Known(networks.lenet5(), networks.run_lenet5, GREY, 648_226, 98.64, {"norm": "linf", "radius": 0.6}),
    "lenet5-clntrained": Known(networks.lenet5(), networks.run_lenet5, GREY, 648_226, 98.89, {}),
    "convex-mnist": Known(
        networks.four_layers(1, 28), networks.run_four_layers, GREY, 166_406, 98.20, {"norm": "linf", "radius": 0.2}
    ),
}
SMALL = "cnn-a-mix"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DRQ_MODELS", str(tmp_path))
    return tmp_path


@pytest.fixture
def shared(monkeypatch) -> Path:
    """The files themselves."""
    weights = Path(os.environ["DRQ_TEST_ASSETS"]) / "weights"
    monkeypatch.setenv("DRQ_MODELS", str(weights))
    return weights / "published"


def images(name: str) -> torch.Tensor:
    channels = len(KNOWN[name].channels[0])
    return torch.rand(2, channels, *((28, 28) if channels == 1 else (32, 32)), generator=torch.Generator().manual_seed(1))


def run(name: str, weights: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    mean, std = (torch.tensor(each).view(-1, 1, 1) for each in KNOWN[name].channels)
    return KNOWN[name].run(weights, (x - mean) / std)


def test_every_network_is_checked():
    assert KNOWN.keys() == published.PUBLISHED.keys()


@pytest.mark.parametrize("name", KNOWN)
def test_names_and_shapes_are_the_published_ones(name):
    stored = published.PUBLISHED[name].stored
    model = blank(stored.arch, stored.classes)
    assert {key: tuple(value.shape) for key, value in model.state_dict().items()} == KNOWN[name].shapes
    assert sum(each.numel() for each in model.parameters()) == KNOWN[name].parameters


@pytest.mark.parametrize("name", KNOWN)
def test_it_computes_what_was_published_on_any_weights(name):
    stored = published.PUBLISHED[name].stored
    model, weights = blank(stored.arch, stored.classes).eval(), values(KNOWN[name].shapes)
    fill(model, Weights(weights, {}, Path("made up"), ""))
    x = images(name)
    with torch.no_grad():
        torch.testing.assert_close(model(x), KNOWN[name].run(weights, x), rtol=1e-4, atol=1e-4)


@needs_assets
@pytest.mark.parametrize("name", KNOWN)
def test_it_computes_what_was_published_on_its_own_weights(name, shared):
    model, x = drq.load_model(f"published:{name}"), images(name)
    content = torch.load(shared / published.PUBLISHED[name].file, map_location="cpu", weights_only=True)
    weights = {key.removeprefix("module."): value for key, value in content.get("state_dict", content).items()}
    with torch.no_grad():
        torch.testing.assert_close(model(x), run(name, weights, x), rtol=1e-4, atol=1e-4)
    assert not model.training
    assert not any(each.requires_grad for each in model.parameters())


@needs_assets
@pytest.mark.parametrize("name", KNOWN)
def test_its_card_says_what_its_source_says(name, shared):
    card = drq.load_model(f"published:{name}").card
    assert card.name == f"published:{name}"
    assert card.explored == pytest.approx(KNOWN[name].explored)
    assert ("states no radius" in card.summary) == name.startswith("cnn-a")
    assert len(card.classes) == 10
    assert card.classes[0] == ("airplane" if len(KNOWN[name].channels[0]) == 3 else "0")
    assert card.sha256 == hashlib.sha256((shared / published.PUBLISHED[name].file).read_bytes()).hexdigest()
    assert card.licence in ("BSD-2-Clause", "BSD-3-Clause", "LGPL-3.0", "MIT")
    assert tuple(images(name).shape[1:]) == (card.view.channels, card.view.height, card.view.width)
    robust = drq.DRQ(drq.load_model(f"published:{name}"), **card.explored)
    assert robust.norm == (drq.Linf() if card.norm else drq.L2())


@pytest.mark.parametrize("name", KNOWN)
def test_it_is_fetched_as_it_was_at_a_commit(name):
    known = published.PUBLISHED[name]
    address = r"https://raw\.githubusercontent\.com/[\w-]+/[\w-]+/[0-9a-f]{40}/[\w/]+/([\w.-]+)"
    fetched = re.fullmatch(address, known.source.url)
    assert fetched is not None
    assert known.source.algorithm == "sha256"
    assert known.file.endswith(fetched[1])
    assert known.stored.card.source.endswith(known.source.url.partition("githubusercontent.com/")[2].split("/", 3)[3])
    if digits := re.search(r"-([0-9a-f]{8})\.", known.file):
        assert known.source.checksum.startswith(digits[1])


@needs_assets
def test_files_are_found_in_either_folder(folder, shared, monkeypatch):
    monkeypatch.setenv("DRQ_MODELS", str(folder))
    file = published.PUBLISHED[SMALL].file
    shutil.copy(shared / file, folder / file)
    assert drq.load_model(f"published:{SMALL}").card.sha256 == published.PUBLISHED[SMALL].source.checksum
    assert {entry.name: entry.present for entry in drq.models.list()}[f"published:{SMALL}"]
    (folder / "published").mkdir()
    (folder / file).rename(folder / "published" / file)
    assert drq.load_model(f"published:{SMALL}").card.sha256 == published.PUBLISHED[SMALL].source.checksum


class TestRefused:
    def test_a_missing_file(self, folder):
        rule = f"published:{SMALL} must be the file cifar_cnn_a_mix.model in {folder}, or in its folder published"
        address = "https://raw.githubusercontent.com/Verified-Intelligence/alpha-beta-CROWN/8250d5fbd530"
        message = refused(drq.load_model, f"published:{SMALL}", words=[rule, "no such file", "download=True", address])
        assert "DRQ_MODELS" in message
        with pytest.raises(drq.errors.MissingError):
            drq.load_model(f"published:{SMALL}")
        assert not {entry.name: entry.present for entry in drq.models.list()}[f"published:{SMALL}"]

    @needs_assets
    def test_a_file_in_which_one_bit_changed(self, folder, shared, monkeypatch):
        monkeypatch.setenv("DRQ_MODELS", str(folder))
        file = published.PUBLISHED[SMALL].file
        content = bytearray((shared / file).read_bytes())
        content[len(content) // 2] ^= 1
        (folder / file).write_bytes(content)
        refused(drq.load_model, f"published:{SMALL}", words=[str(folder / file), "have the sha256 5a1370f4", "fetch it again"])

    def test_the_file_of_another_network(self, folder):
        torch.save(values(networks.lenet5()), folder / published.PUBLISHED[SMALL].file)
        refused(drq.load_model, f"published:{SMALL}", words=["have the sha256 5a1370f4"])

    def test_weights_of_another_network(self, folder, monkeypatch):
        """Names and shapes must fit, even where the sum does."""
        known = published.PUBLISHED[SMALL]
        torch.save(values(networks.lenet5()), folder / known.file)
        checksum = hashlib.sha256((folder / known.file).read_bytes()).hexdigest()
        monkeypatch.setattr(published, "CNN_A_MIX", replace(known, source=RemoteFile(known.source.url, checksum)))
        refused(drq.load_model, f"published:{SMALL}", words=["it is of another architecture"])

    def test_a_file_that_would_run_code(self, folder, monkeypatch, capsys):
        known = published.PUBLISHED[SMALL]
        torch.save(torch.nn.Linear(1, 1), folder / known.file)
        checksum = hashlib.sha256((folder / known.file).read_bytes()).hexdigest()
        monkeypatch.setattr(published, "CNN_A_MIX", replace(known, source=RemoteFile(known.source.url, checksum)))
        refused(drq.load_model, f"published:{SMALL}", words=["must be tensors and nothing else"])
        assert not capsys.readouterr().out

    @pytest.mark.parametrize(
        ("name", "words"),
        [
            ("published:resnet2", ["published: must be one of resnet20, resnet56", "got 'resnet2'", "did you mean resnet2"]),
            ("published:vgg", ["drq models lists them"]),
            ("published:", ["go on behind published:"]),
            ("published:resnet20?seed=1", ["options must be among download, got seed"]),
        ],
    )
    def test_names_that_nobody_knows(self, name, words):
        refused(drq.load_model, name, words=words)

    @needs_assets
    @pytest.mark.parametrize("name", ["lenet5-clntrained", "resnet2b"])
    def test_images_with_other_channels(self, name, shared):
        assert shared.is_dir()
        model, x = drq.load_model(f"published:{name}"), images(name)
        other = x.expand(2, 3, 28, 28) if x.shape[1] == 1 else x[:, :1]
        refused(model, other, words=[f"(N, {x.shape[1]}, H, W)"])


class TestDownloads:
    @pytest.fixture
    def served(self, server, folder, monkeypatch):
        """The small network, from a server on this machine."""
        made = folder / "made.pt"
        torch.save(values(KNOWN[SMALL].shapes), made)
        server.content = made.read_bytes()
        source = RemoteFile(server.url, hashlib.sha256(server.content).hexdigest(), len(server.content))
        monkeypatch.setattr(published, "CNN_A_MIX", replace(published.PUBLISHED[SMALL], source=source))
        return server

    def test_it_comes_only_on_request_and_only_once(self, served, folder):
        refused(drq.load_model, f"published:{SMALL}", words=["no such file"])
        assert served.asked == []
        x = images(SMALL)
        with torch.no_grad():
            found = drq.load_model(f"published:{SMALL}", download=True)(x)
            torch.testing.assert_close(found, run(SMALL, values(KNOWN[SMALL].shapes), x), rtol=1e-4, atol=1e-4)
        assert [path.name for path in (folder / "published").iterdir()] == ["cifar_cnn_a_mix.model"]
        drq.load_model(f"published:{SMALL}?download=1")
        drq.load_model(f"published:{SMALL}")
        assert len(served.asked) == 1

    def test_what_was_changed_on_its_way_is_not_kept(self, served, folder):
        served.content = served.content[:-1] + b"?"
        refused(drq.load_model, f"published:{SMALL}", download=True, words=["another sha256", "was removed", "DRQ_MODELS"])
        assert [*(folder / "published").iterdir()] == []

    def test_a_server_that_does_not_have_it(self, served):
        served.status = [404]
        refused(drq.load_model, f"published:{SMALL}", download=True, words=["could not be downloaded", "404", "by hand"])

    @needs_assets
    def test_a_file_that_is_there_needs_no_network(self, served, shared):
        assert shared.is_dir()
        refused(drq.load_model, f"published:{SMALL}", download=True, words=["have the sha256"])  # that of the made-up one
        assert served.asked == []


CIFAR_ONES = [name for name, each in KNOWN.items() if len(each.channels[0]) == 3]
DATA = os.environ.get("DRQ_DATA", "")  # before tests on other data change it


def accuracy(name: str, data: str) -> float:
    """In percent, on all test images."""
    model, images = drq.load_model(f"published:{name}"), drq.load_data(data)
    right = 0
    with torch.no_grad():
        for start in range(0, len(images), 200):
            x, y = images.batch(range(start, start + 200))
            right += int((model(x).argmax(1) == y).sum())
    return 100 * right / len(images)


@pytest.mark.slow
@needs_assets
@pytest.mark.parametrize("name", CIFAR_ONES)
def test_it_is_as_accurate_as_published_on_cifar10(name, assets):
    assert assets.is_dir()
    assert accuracy(name, "cifar10") == pytest.approx(KNOWN[name].clean, abs=0.1)


@pytest.mark.slow
@needs_assets
@pytest.mark.parametrize("name", [name for name in KNOWN if name not in CIFAR_ONES])
def test_it_is_as_accurate_as_published_on_mnist(name, shared, monkeypatch):
    assert shared.is_dir()
    monkeypatch.setenv("DRQ_DATA", DATA)
    try:
        found = accuracy(name, "mnist")
    except drq.errors.MissingError as error:
        pytest.skip(str(error))
    assert found == pytest.approx(KNOWN[name].clean, abs=0.1)
