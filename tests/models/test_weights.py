"""Classifiers from files of weights: what is read, and what is refused."""

import copy
import os
import zipfile

import pytest
import torch
from safetensors.torch import save_file
from testbed.refusals import refused

import drq
from drq.models import weights
from drq.models.architectures import architecture
from drq.models.trained import PACKAGE

SMALL = PACKAGE / "cifar10-small.safetensors"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DRQ_MODELS", str(tmp_path))
    return tmp_path


@pytest.fixture(scope="module")
def net():
    """A network of ours with values of its own."""
    torch.manual_seed(0)
    return architecture("wrn_28_2_swish").build(10).eval()


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
