"""The scripts that train the models: the loop on a toy, and recipes that make what the package loads."""

import sys
from dataclasses import replace

import augmentation
import cifar10
import denoiser
import loop
import pytest
import torch
from torch import nn

import drq
from drq.models import DnCNN, weights
from drq.models.trained import STORED, place


def told(*_):
    pass


@pytest.fixture
def toy():
    """Images whose first feature tells the class; a linear model would do."""
    draws = torch.Generator().manual_seed(0)
    x = torch.rand(256, 3, 4, 4, generator=draws) * 0.5 + 0.25
    y = torch.randint(2, (256,), generator=draws)
    x[:, 0] += torch.where(y == 1, 0.15, -0.15)[:, None, None]
    return x.clamp(0, 1), y


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(128, 2))


def unchanged(x, _):
    return x


TOY = loop.Recipe("", epochs=20, batch=32, rate=0.05)


@pytest.mark.parametrize("norm", [None, "linf", "l2"])
def test_the_loop_learns(toy, norm):
    x, y = toy
    recipe = TOY if norm is None else replace(TOY, norm=norm, radius={"linf": 0.03, "l2": 0.2}[norm], steps=2)
    model = loop.train(network(), recipe, x, y, unchanged, told)
    assert not model.training
    assert (model(x).argmax(1) == y).float().mean() > 0.97


def test_adversarial_training_makes_robust(toy):
    """A second feature separates the classes too, by a hair: plain training leans on it, and an attack breaks that."""
    x, y = toy
    x[:, 1, 0, 0] = 0.5 + torch.where(y == 1, 0.02, -0.02)
    attack = drq.threats.PGD("linf", 0.08, steps=20)
    robust = {}
    for steps in (0, 4):
        recipe = replace(TOY, norm="linf", radius=0.08, steps=steps)
        model = loop.train(network(), recipe, x, y, unchanged, told)
        robust[steps] = (model(attack(model, x, y)).argmax(1) == y).float().mean()
    assert robust[4] > robust[0] + 0.02


def test_the_attack_leaves_no_trace_in_batch_norm(toy):
    x, y = toy
    training = loop.Training(network(), replace(TOY, norm="linf", radius=0.1, steps=3), (3, 4, 4), "cpu", 100)
    training.x.copy_(x[:32])
    training.start.copy_(x[:32])
    training.y.copy_(y[:32])
    norm = training.model[1]
    before = norm.running_mean.clone()
    points = training._attacked()
    assert torch.equal(norm.running_mean, before)
    assert (points - x[:32]).abs().max() <= 0.1 + 1e-6
    training.step()
    assert not torch.equal(norm.running_mean, before)


def test_the_rate_goes_up_and_down_once():
    rates = [TOY.rate_at(each / 100) for each in range(101)]
    top = rates.index(max(rates))
    assert rates[0] == rates[-1] == 0
    assert max(rates) == TOY.rate
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)


def test_every_recipe_makes_what_the_package_loads():
    made = {name: name.removeprefix("cifar10-").partition("-seed")[0] for name in STORED}
    assert {*cifar10.RECIPES} == {*made.values()}
    for name, recipe in ((name, cifar10.RECIPES[each]) for name, each in made.items()):
        stored = STORED[name]
        assert (recipe.arch, recipe.norm) == (stored.arch, stored.card.norm)
        assert recipe.radius == (stored.card.radius or 0)


@pytest.mark.parametrize("name", ["small", "tiny"])
def test_the_files_in_the_box_were_made_by_their_recipes(name):
    """What they say of themselves is what their recipes say today."""
    about = weights.read(place(f"cifar10-{name}")).about
    expected = cifar10.about(cifar10.RECIPES[name])
    assert {key: about[key] for key in expected} == expected


@pytest.fixture
def few(monkeypatch):
    """Stands for CIFAR-10."""
    x, y = torch.rand(32, 3, 32, 32), torch.randint(10, (32,))
    for module in (cifar10, denoiser):
        monkeypatch.setattr(module, "images", lambda *_: (x, y))
    monkeypatch.setitem(cifar10.RECIPES, "small", replace(cifar10.RECIPES["small"], batch=16, steps=1))


@pytest.mark.usefixtures("few")
def test_one_command_trains_and_writes(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(sys, "argv", ["cifar10.py", "small", "--epochs", "1", "--out", str(tmp_path / "new.safetensors")])
    monkeypatch.setattr(cifar10, "measure", lambda *_: "not measured")
    cifar10.main()
    assert "cifar10-small: not measured" in capsys.readouterr().out
    model = drq.load_model(f"file:{tmp_path / 'new.safetensors'}")
    assert model(torch.rand(1, 3, 32, 32)).isfinite().all()
    assert model.card.explored == {"norm": "linf", "radius": pytest.approx(16 / 255)}
    assert "1 epochs" in model.card.summary


def test_the_denoiser_learns(monkeypatch):
    """A small one, on images of one colour each: what varies is noise."""
    monkeypatch.setattr(denoiser, "DnCNN", lambda: DnCNN(layers=3, width=16))
    x = torch.rand(128, 3, 1, 1, generator=torch.Generator().manual_seed(0)).expand(-1, -1, 8, 8).contiguous()
    before = denoiser.squared_error(nn.Identity(), x, 0)
    assert before == pytest.approx(denoiser.NOISE**2, rel=0.1)
    assert denoiser.squared_error(denoiser.train(x, 150, 0, told), x, 0) < 0.6 * before


class TestAugmentation:
    x = torch.rand(64, 3, 32, 32, generator=torch.Generator().manual_seed(1))

    def draws(self, seed=0):
        return torch.Generator().manual_seed(seed)

    @pytest.mark.parametrize("augment", [augmentation.light, augmentation.strong])
    def test_images_stay_images(self, augment):
        out = augment(self.x, self.draws())
        assert out.shape == self.x.shape
        assert out.min() >= 0
        assert out.max() <= 1
        assert torch.equal(out, augment(self.x, self.draws()))
        assert not torch.equal(out, augment(self.x, self.draws(1)))

    def test_light_moves_and_mirrors(self):
        """A single bright pixel tells where an image went: at most 4 pixels, half of them mirrored."""
        x = torch.zeros(400, 1, 32, 32)
        x[:, :, 12, 6] = 1
        out = augmentation.light(x, self.draws())
        assert (out.sum((1, 2, 3)) == 1).all()
        rows, columns = out[:, 0].amax(2).argmax(1), out[:, 0].amax(1).argmax(1)
        assert sorted(set((rows - 12).tolist())) == list(range(-4, 5))
        mirrored = columns > 15
        assert 0.4 < mirrored.float().mean() < 0.6
        assert sorted(set((columns[~mirrored] - 6).tolist())) == list(range(-4, 5))
        assert sorted(set((columns[mirrored] - 25).tolist())) == list(range(-4, 5))
