"""Classifiers by name: what is in the box, and the list of all."""

import copy
import pickle

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import drq
from drq.models import Card
from drq.models.trained import PACKAGE, STORED

SMALL = PACKAGE / "cifar10-small.safetensors"
MEASURED = [1.637, 0.343, 3.882, 0.117, -2.91, -0.289, 1.242, -2.716, -1.024, -0.288]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DRQ_MODELS", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("cifar10-tiny", {}, "cifar10-tiny"),
        ("digits?epochs=2", {"seed": 1, "download": True}, "digits?epochs=2&seed=1"),
        ("denoised:cifar10-tiny", {}, "denoised:cifar10-tiny"),
        ("python:testbed.brightness:stripes", {"radius": 0.5}, "python:testbed.brightness:stripes?radius=0.5"),
    ],
)
def test_a_model_knows_the_name_that_makes_it_again(name, options, expected):
    """Also in a copy; leave to download is not part of it."""
    pytest.importorskip("sklearn") if name.startswith("digits") else None
    model = drq.load_model(name, **options)
    assert copy.deepcopy(model).loaded_as == pickle.loads(pickle.dumps(model)).loaded_as == expected
    again = drq.load_model(expected)
    assert again.card.radius == model.card.radius
    assert drq.models.weights.checksum(again) == drq.models.weights.checksum(model)


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
