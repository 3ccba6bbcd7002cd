"""Classifiers by name: what is in the box, what comes from files, and what is refused."""

import copy
import os
import pickle
import warnings
import zipfile

import pytest
import torch
from safetensors.torch import load_file, save_file
from testbed.refusals import refused
from torch import nn

import drq
from drq.models import Card, Classifier, Denoised, DnCNN, WrongRange, weights
from drq.models.architectures import architecture
from drq.models.trained import PACKAGE, STORED

SMALL = PACKAGE / "cifar10-small.safetensors"
MEASURED = [1.637, 0.343, 3.882, 0.117, -2.91, -0.289, 1.242, -2.716, -1.024, -0.288]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DRQ_MODELS", str(tmp_path))
    return tmp_path


@pytest.fixture(scope="module")
def net():
    """A network of ours with values of its own."""
    torch.manual_seed(0)
    return architecture("wrn_28_2_swish").build(10).eval()


class TestInTheBox:
    def test_the_files_are_small_enough(self):
        assert SMALL.stat().st_size <= 3_000_000
        assert (PACKAGE / "cifar10-denoiser.safetensors").stat().st_size <= 1_500_000

    def test_they_hold_matrices_in_float16(self):
        assert {each.dtype for each in load_file(SMALL).values() if each.dim() > 1} == {torch.float16}

    @pytest.mark.parametrize("name", ["digits", "cifar10-small", "cifar10-tiny"])
    def test_they_load_without_files_or_network(self, name, folder, monkeypatch):
        monkeypatch.setenv("DRQ_DATA", str(folder))
        model = drq.load_model(name)
        x = torch.rand(2, model.card.view.channels, model.card.view.height, model.card.view.width, requires_grad=True)
        logits = model(x)
        assert logits.shape == (2, len(model.card.classes))
        (gradient,) = torch.autograd.grad(logits.sum(), x)
        assert gradient.abs().max() > 0
        assert not model.training
        assert not any(each.requires_grad for each in model.parameters())
        assert drq.DRQ(model, **model.card.explored).norm == drq.Linf()

    def test_the_network_computes_what_it_was_measured_for(self):
        """Its logits on a pattern, as they were when its accuracy was measured: normalisation, activation, padding, names."""
        row = torch.linspace(0, 6.28, 32)
        x = torch.stack([(row[:, None] + k * row).sin() * 0.4 + 0.5 for k in range(3)])[None]
        model = drq.load_model("cifar10-small")
        with torch.no_grad():
            torch.testing.assert_close(model(x)[0], torch.tensor(MEASURED), rtol=0, atol=2e-3)
        assert " ".join(model.card.classes) == "airplane automobile bird cat deer dog frog horse ship truck"

    @pytest.mark.parametrize(
        ("name", "norm", "radius"),
        [
            ("cifar10-small", "linf", 8 / 255),
            ("cifar10-tiny", "linf", 8 / 255),
            ("cifar10-linf", "linf", 8 / 255),
            ("cifar10-l2", "l2", 0.5),
            ("cifar10-augment", None, None),
            ("cifar10-plain", None, None),
        ],
    )
    def test_cards_name_the_training(self, name, norm, radius):
        assert (STORED[name].card.norm, STORED[name].card.radius) == (norm, radius)

    def test_what_drq_explores_is_twice_the_training_radius(self):
        assert drq.load_model("cifar10-small").card.explored == {"norm": "linf", "radius": 16 / 255}
        assert Card("plain").explored == {}

    def test_the_card_knows_the_file(self):
        assert drq.load_model("cifar10-small").card.sha256 == drq.system.files.digest(SMALL)

    def test_a_model_survives_copies_and_pickles(self):
        model, x = drq.load_model("cifar10-small"), torch.rand(1, 3, 32, 32)
        for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            torch.testing.assert_close(other(x), model(x))
            assert other.card == model.card

    def test_the_global_random_state_rests(self):
        before = torch.get_rng_state()
        drq.load_model("cifar10-small")
        drq.models.denoiser()
        assert torch.equal(torch.get_rng_state(), before)


def umask() -> int:
    present = os.umask(0)
    os.umask(present)
    return present


class TestFiles:
    def test_what_was_written_is_read(self, net, folder):
        about = {"architecture": "wrn_28_2_swish", "classes": "10", "mean": "0.5,0.5,0.5", "std": "0.25,0.25,0.25"}
        weights.write(net, folder / "mine.safetensors", about | {"norm": "l2", "radius": "0.5", "training": "mine"}, half=False)
        model, x = drq.load_model("file:mine.safetensors"), torch.rand(2, 3, 32, 32)
        with torch.no_grad():
            torch.testing.assert_close(model(x), net((x - 0.5) / 0.25))
        assert (model.card.norm, model.card.radius, model.card.summary) == ("l2", 0.5, "mine")

    def test_half_precision_costs_little(self, net, folder):
        weights.write(net, folder / "mine.safetensors", {"architecture": "wrn_28_2_swish", "classes": "10"})
        model, x = drq.load_model("file:mine.safetensors"), torch.rand(2, 3, 32, 32)
        with torch.no_grad():
            torch.testing.assert_close(model(x), net(x), rtol=0, atol=2e-2)

    def test_bfloat16_is_read(self, net, folder):
        about = {"architecture": "wrn_28_2_swish", "classes": "10"}
        weights.write(copy.deepcopy(net).bfloat16(), folder / "mine.safetensors", about, half=False)
        assert drq.load_model("file:mine.safetensors")(torch.rand(1, 3, 32, 32)).isfinite().all()

    def test_options_in_the_name_and_as_arguments_count_alike(self, net, folder):
        save_file(net.state_dict(), folder / "bare.safetensors")
        torch.save({"state_dict": net.state_dict()}, folder / "bare.pt")
        x = torch.rand(1, 3, 32, 32)
        first = drq.load_model("file:bare.safetensors?arch=wrn_28_2_swish&classes=10&mean=0.5,0.5,0.5&std=0.5,0.5,0.5")
        second = drq.load_model("file:bare.pt", arch="wrn_28_2_swish", classes=10, mean=(0.5,) * 3, std=(0.5,) * 3)
        third = drq.load_model(f"file:{folder / 'bare.pt'}?arch=wrn_28_2_swish", classes=10, mean=(0.5,) * 3, std=(0.5,) * 3)
        with torch.no_grad():
            torch.testing.assert_close(first(x), net(2 * x - 1))
            torch.testing.assert_close(second(x), first(x))
            torch.testing.assert_close(third(x), first(x))

    def test_what_is_given_goes_before_what_the_file_says(self):
        path = f"file:{SMALL}"
        assert drq.load_model(f"{path}?radius=4/255").card.explored == {"norm": "linf", "radius": pytest.approx(8 / 255)}
        assert drq.load_model(f"{path}?norm=l2").card.explored == {}  # the radius is one of linf
        assert drq.load_model(path, mean=(0.5,) * 3).mean.flatten().tolist() == [0.5] * 3

    def test_a_saved_classifier_keeps_its_normalisation(self, folder):
        model, x = drq.load_model("cifar10-small"), torch.rand(1, 3, 32, 32)
        torch.save(model.state_dict(), folder / "mine.pt")
        again = drq.load_model("file:mine.pt?arch=wrn_28_2_swish&classes=10")
        torch.testing.assert_close(again(x), model(x), rtol=1e-4, atol=1e-4)

    def test_a_file_without_a_normalisation_is_remarked_upon(self, net, folder, caplog):
        save_file(net.state_dict(), folder / "bare.safetensors")
        drq.load_model("file:bare.safetensors?arch=wrn_28_2_swish&classes=10")
        assert "says nothing of a normalisation" in caplog.text

    def test_written_files_can_be_read_by_others(self, net, folder):
        weights.write(net, folder / "mine.safetensors")
        assert (folder / "mine.safetensors").stat().st_mode & 0o777 == 0o666 & ~umask()

    def test_the_trained_models_are_found_by_name(self, folder):
        torch.manual_seed(0)
        net = architecture("preact_resnet18").build(10).eval()
        weights.write(net, folder / "cifar10-plain.safetensors")
        model = drq.load_model("cifar10-plain")
        assert model.card.sha256 == drq.system.files.digest(folder / "cifar10-plain.safetensors")
        assert {entry.name: entry.present for entry in drq.models.list()}["cifar10-plain"]


FAULTS = {
    "no such file": ("file:nothing.safetensors", {}, "be a file"),
    "no architecture": ("file:bare.safetensors", {}, "arch and classes must be given"),
    "unknown architecture": ("file:bare.safetensors?arch=wrn_28_2_swis&classes=10", {}, "did you mean wrn_28_2_swish?"),
    "another architecture": ("file:bare.safetensors?arch=preact_resnet18&classes=10", {}, "it is of another architecture"),
    "too many classes": ("file:bare.safetensors?arch=wrn_28_2_swish&classes=100", {}, "the file has 10 classes; pass classes=10"),
    "one class": ("file:bare.safetensors?arch=wrn_28_2_swish&classes=1", {}, "classes must be at least 2"),
    "no number": ("file:bare.safetensors?arch=wrn_28_2_swish&classes=ten", {}, "classes must be a whole number, got 'ten'"),
    "no numbers": ("file:bare.safetensors?mean=a,b", {}, "numbers with commas"),
    "no flag": ("timm:resnet18?pretrained=maybe", {}, "be 1 or 0"),
    "unknown option": ("file:bare.safetensors?architecture=x", {}, "options must be among arch, classes"),
    "option of a model without": ("cifar10-small", {"classes": 3}, "options must be among sha256, got classes"),
    "no option of digits": ("digits", {"recipe": 3}, "options must be among seed, epochs, got recipe"),
    "no training of digits": ("digits?epochs=0", {}, "epochs must be a whole number of at least 1"),
    "no seed of digits": ("digits", {"seed": "a"}, "seed must be a whole number of at least 0"),
    "no number of digits": ("digits?seed=one", {}, "seed must be a whole number, got 'one'"),
    "a model without options": ("gaussians-svm?seed=1", {}, "options must be left out, got seed"),
    "an option twice": ("file:bare.safetensors?arch=a&arch=b", {}, "have every option once"),
    "its own argument": ("denoised:cifar10-small?name=x", {}, "have every option once, and itself none"),
    "denoised twice": ("denoised:denoised:cifar10-small", {}, "be denoised once"),
    "denoised digits": ("denoised:digits", {}, "be of a model of colour images"),
    "several radii": ("file:bare.safetensors?radius=1,2", {}, "be one number"),
    "odd number": ("file:bare.safetensors?classes=\u00b2", {}, "classes must be a whole number"),
    "long name": ("file:" + "x" * 300, {}, "lead to files that can be read"),
    "whole numbers": ("file:int.safetensors?arch=wrn_28_2_swish&classes=10", {}, "must be floats, got torch.int8"),
    "a name twice": ("file:twice.pt?arch=wrn_28_2_swish&classes=10", {}, "name every weight once"),
    "expanded": ("file:expanded.pt?arch=wrn_28_2_swish&classes=10", {}, "be named tensors"),
    "bomb": ("file:bomb.pt?arch=wrn_28_2_swish&classes=10", {}, "hold no more than its own size"),
    "a page": ("file:page.pt?arch=wrn_28_2_swish&classes=10", {}, "be a file of torch.save"),
    "another checksum": ("file:bare.safetensors?sha256=0123", {}, "have the sha256 0123"),
    "truncated": ("file:truncated.safetensors?arch=wrn_28_2_swish&classes=10", {}, "be a whole safetensors file"),
    "truncated pickle": ("file:truncated.pt?arch=wrn_28_2_swish&classes=10", {}, "be a whole file of torch.save"),
    "tampered": ("file:tampered.safetensors", {}, "hold the weights with the checksum"),
    "not finite": ("file:nan.safetensors?arch=wrn_28_2_swish&classes=10", {}, "must be finite"),
    "code": ("file:code.pt?arch=wrn_28_2_swish&classes=10", {}, "nothing else, got"),
    "a pickled model": ("file:model.pt?arch=wrn_28_2_swish&classes=10", {}, "(it asks for drq.models.wide_resnet.WideResNet)"),
    "no tensors": ("file:list.pt?arch=wrn_28_2_swish&classes=10", {}, "be named tensors"),
    "empty": ("file:empty.pt?arch=wrn_28_2_swish&classes=10", {}, "be a whole file of torch.save"),
    "not trained yet": ("cifar10-linf", {}, "python training/cifar10.py linf"),
    "misspelt": ("cifar10-smal", {}, "did you mean cifar10-small?"),
    "unknown source": ("tim:resnet50", {}, "did you mean timm:?"),
    "nothing behind the colon": ("timm:", {}, "go on behind timm:"),
    "no name": ("", {}, "be the name of a model"),
    "no text": (3, {}, "be the name of a model"),
}


class Evil:
    """Runs code as it is read."""

    def __reduce__(self):
        return (print, ("code ran",))


@pytest.fixture(scope="module")
def faulty(tmp_path_factory, net):
    folder = tmp_path_factory.mktemp("faulty")
    state = net.state_dict()
    save_file(state, folder / "bare.safetensors")
    (folder / "truncated.safetensors").write_bytes((folder / "bare.safetensors").read_bytes()[:-1000])
    torch.save(state, folder / "whole.pt")
    (folder / "truncated.pt").write_bytes((folder / "whole.pt").read_bytes()[:-1000])
    weights.write(net, folder / "tampered.safetensors", {"architecture": "wrn_28_2_swish", "classes": "10"})
    content = bytearray((folder / "tampered.safetensors").read_bytes())
    content[-5] ^= 1
    (folder / "tampered.safetensors").write_bytes(content)
    save_file(state | {"fc.bias": torch.full((10,), torch.nan)}, folder / "nan.safetensors")
    torch.save({"state_dict": Evil()}, folder / "code.pt")
    torch.save(net, folder / "model.pt")
    torch.save([1, 2], folder / "list.pt")
    save_file({name: each.to(torch.int8) for name, each in state.items()}, folder / "int.safetensors")
    torch.save({f"module.{name}": each for name, each in state.items()} | {"fc.bias": state["fc.bias"]}, folder / "twice.pt")
    torch.save({"fc.bias": torch.zeros(1).expand(10**11)}, folder / "expanded.pt")
    with zipfile.ZipFile(folder / "bomb.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data/0", bytes(2**24))
    (folder / "page.pt").write_text("<!DOCTYPE html><html>not found</html>")
    (folder / "empty.pt").touch()
    return folder


@pytest.mark.parametrize("fault", FAULTS)
def test_every_mistake_is_one_clear_line(fault, faulty, monkeypatch, capsys):
    monkeypatch.setenv("DRQ_MODELS", str(faulty))
    name, options, words = FAULTS[fault]
    assert words in refused(drq.load_model, name, **options)
    assert "code ran" not in capsys.readouterr().out


class TestRange:
    """The wrapper warns where images cannot be in [0, 1], and names the likely mistake."""

    def model(self):
        return Classifier(nn.Flatten(), Card("mine"), mean=[0.5, 0.5, 0.5], std=[0.5, 0.5, 0.5])

    @pytest.mark.parametrize(
        ("x", "mistake"),
        [
            (torch.rand(2, 3, 4, 4) * 255, "divide them by 255"),
            (torch.randn(2, 3, 4, 4), "normalised already"),
            (torch.rand(2, 3, 4, 4) / 255, "divided by 255 twice"),
            (torch.rand(2, 3, 4, 4) + 0.5, "clip them"),
        ],
        ids=["bytes", "normalised", "twice", "overshot"],
    )
    def test_a_wrong_range_is_warned_of(self, x, mistake):
        with pytest.warns(WrongRange, match=mistake):
            self.model()(x)

    @pytest.mark.parametrize(
        "x", [torch.rand(2, 3, 4, 4), torch.zeros(1, 3, 4, 4), torch.ones(1, 3, 4, 4), torch.rand(0, 3, 4, 4)]
    )
    def test_a_right_one_is_not(self, x):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.model()(x)

    @pytest.mark.parametrize("before", [0, 2, 4])
    def test_later_batches_are_looked_at_too(self, before):
        model = self.model()
        for _ in range(before):
            model(torch.rand(1, 3, 4, 4))
        with pytest.warns(WrongRange):
            model(torch.full((1, 3, 4, 4), 200.0))

    @pytest.mark.parametrize(
        ("x", "words"),
        [
            (torch.rand(2, 4, 4, 3), "permute(0, 3, 1, 2)"),
            (torch.rand(3, 4, 4), "x[None] adds the batch"),
            (torch.rand(2, 1, 4, 4), "mean and std have 3 values, one a channel"),
            (torch.ones(2, 3, 4, 4, dtype=torch.uint8), "x.float() / 255"),
        ],
        ids=["channels last", "no batch", "grey", "bytes"],
    )
    def test_what_are_no_images_is_refused_at_every_call(self, x, words):
        model = self.model()
        for _ in range(4):
            refused(model, x, words=[words])

    @pytest.mark.parametrize(
        ("mean", "std"),
        [([0.5], None), ([0.5], [0.5, 0.5]), ([0.5], [0.0]), ([0.5], [-1.0]), ([float("nan")], [1.0]), ([0.5], [float("inf")])],
    )
    def test_a_normalisation_must_make_sense(self, mean, std):
        refused(Classifier, nn.Flatten(), Card("mine"), mean, std, words=["mean and std must be given together"])

    @pytest.mark.parametrize("wrong", [{"norm": "l7"}, {"radius": 0}, {"radius": float("nan")}, {"view": "square"}], ids=str)
    def test_a_card_must_make_sense(self, wrong):
        refused(Card, "mine", words=[next(iter(wrong))], **wrong)

    def test_the_precision_of_the_input_is_kept(self):
        assert self.model()(torch.rand(1, 3, 4, 4, dtype=torch.float64)).dtype == torch.float64

    def test_the_darkest_pictures_are_not_warned_of(self):
        x = torch.zeros(1, 3, 4, 4)
        x[0, 0, 0, 0] = 1 / 255
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.model()(x)


class TestDenoiser:
    def test_it_has_the_layers_of_the_paper(self):
        convolutions = [each for each in DnCNN().modules() if isinstance(each, nn.Conv2d)]
        assert len(convolutions) == 17
        assert {each.out_channels for each in convolutions[:-1]} == {64}
        assert sum(isinstance(each, nn.BatchNorm2d) for each in DnCNN().modules()) == 15

    def test_a_denoiser_that_finds_no_noise_changes_nothing(self):
        denoiser = DnCNN(layers=3, width=4).eval()
        nn.init.zeros_(denoiser.noise[-1].weight)
        nn.init.zeros_(denoiser.noise[-1].bias)
        model, x = nn.Flatten(), torch.rand(2, 3, 8, 8)
        assert torch.equal(Denoised(denoiser, model)(x), model(x))

    def test_the_trained_one_removes_noise(self):
        """On smooth images, which leave all that is rough to the noise."""
        draws = torch.Generator().manual_seed(0)
        coarse = torch.rand(8, 3, 4, 4, generator=draws)
        clean = nn.functional.interpolate(coarse, size=32, mode="bicubic", align_corners=False).clamp(0, 1)
        noisy = clean + 0.1 * torch.randn(clean.shape, generator=draws)
        error = (drq.models.denoiser()(noisy) - clean).square().mean()
        assert error < 0.25 * (noisy - clean).square().mean()

    def test_it_composes_with_drq_and_by_name(self):
        model = drq.load_model("denoised:cifar10-small")
        x = torch.rand(1, 3, 32, 32)
        inner = drq.load_model("cifar10-small")
        with torch.no_grad():
            torch.testing.assert_close(model(x), inner(drq.models.denoiser()(x).clamp(0, 1)))
        assert model.card.name == "denoised:cifar10-small"
        robust = drq.DRQ(model, "linf", 2 / 255, explore=drq.Gradient(1), quantify=drq.Gradient(1), classes=2)
        assert robust.decide(x).robustness.isfinite().all()

    def test_it_trains_when_one_of_both_does(self):
        assert Denoised(DnCNN(3, 4), nn.Flatten().eval()).training
        assert not Denoised(DnCNN(3, 4).eval(), nn.Flatten().eval()).training


def test_the_list_names_every_model_once():
    names = [entry.name for entry in drq.models.list()]
    assert len(set(names)) == len(names)
    assert set(STORED) | {"digits"} <= set(names)
    for entry in drq.models.list():
        assert entry.summary, entry.name


def test_a_subset_of_logits_fits_relabelled_data():
    model = drq.Subset(nn.Identity(), [2, 5])
    assert torch.equal(model(torch.arange(6.0)[None]), torch.tensor([[2.0, 5.0]]))
    with pytest.raises(drq.InputError, match="have logits up to 5"):
        model(torch.rand(1, 4))
    with pytest.raises(drq.InputError, match="two different logits"):
        drq.Subset(nn.Identity(), [1, 1])
