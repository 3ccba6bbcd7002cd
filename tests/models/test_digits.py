"""The classifier of digits: trained alike everywhere, and kept in a cache that survives whatever happens to it."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest
import torch

import drq
from drq.data.digits import TEST_IMAGES, split
from drq.models import digits, weights
from drq.models.digits import Recipe
from drq.seeds import generator
from drq.system import files

pytest.importorskip("sklearn")

QUICK = Recipe(epochs=1)


def weights_of(model):
    return torch.cat([each.flatten() for each in model.parameters()])


@pytest.fixture(scope="module")
def images():
    return split()


@pytest.fixture(scope="module")
def quick_model(images):
    return digits.train(QUICK, images[0])


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DRQ_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_digits_are_split_once_and_for_all(images):
    train, test = images
    assert len(train.x) + len(test.x) == 1797
    assert len(test.x) == TEST_IMAGES
    assert train.x.min() == 0
    assert train.x.max() == 1
    assert torch.equal(test.x, split()[1].x)
    assert not {each.numpy().tobytes() for each in test.x} & {each.numpy().tobytes() for each in train.x}


def test_the_l2_ball_has_the_volume_of_the_linf_ball():
    radii = Recipe().explored_radii
    assert radii["linf"] == 2 * Recipe().radius
    log_cube = 64 * math.log(2 * radii["linf"])
    log_ball = 32 * math.log(math.pi) - math.lgamma(33) + 64 * math.log(radii["l2"])
    assert log_ball == pytest.approx(log_cube, abs=1e-9)


def test_a_negative_seed_is_refused():
    with pytest.raises(drq.InputError, match="seed must be a whole number of at least 0, got -1"):
        Recipe(seed=-1)


def test_same_weights_whether_trained_or_cached_and_nothing_global_moves(cache, images, monkeypatch, tmp_path):
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist(), torch.get_num_threads()
    first = weights_of(digits.trained(QUICK, images[0]))
    assert [each.name for each in cache.iterdir()] == [QUICK.file_name]
    with monkeypatch.context() as patch:
        patch.setattr(digits, "train", None)
        cached = weights_of(digits.trained(QUICK, images[0]))
    monkeypatch.setenv("DRQ_CACHE", str(tmp_path / "other"))
    torch.rand(3, generator=torch.Generator())
    retrained = weights_of(digits.trained(QUICK, images[0]))
    assert torch.equal(first, cached)
    assert torch.equal(first, retrained)
    after = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist(), torch.get_num_threads()
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]


def test_the_seed_changes_the_model(images, quick_model):
    assert not torch.equal(weights_of(digits.train(replace(QUICK, seed=1), images[0])), weights_of(quick_model))
    numbers = {torch.rand(1, generator=generator(*key)).item() for key in [(0, 1), (1, 0), (2**32, 1), (2**40, 1)]}
    assert len(numbers) == 4


def test_every_entry_of_the_recipe_names_another_file():
    changed = {name: value + 1 for name, value in vars(Recipe()).items()}
    names = {replace(Recipe(), **{name: value}).file_name for name, value in changed.items()}
    assert len(names | {Recipe().file_name}) == len(changed) + 1


def test_a_model_answers_to_the_last_bit_alike_whether_trained_or_cached(cache, images, quick_model):
    """One by one: products of a matrix and a vector depend on where in memory the matrix begins."""
    digits.trained(QUICK, images[0])
    cached = digits.load(QUICK, cache / QUICK.file_name)
    for x in images[1].x[:20, None]:
        assert torch.equal(cached(x), quick_model(x))
    for name in ("cifar10-tiny", "cifar10-small"):
        assert not any(each.data_ptr() % 64 for each in drq.load_model(name).parameters())


DAMAGE = {
    "empty": lambda _: b"",
    "truncated": lambda data: data[:-100],
    "garbage": lambda _: b"not weights at all",
    "one bit flipped": lambda data: data[:-5] + bytes([data[-5] ^ 1]) + data[-4:],
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_trained_again(damage, cache, images, quick_model, monkeypatch):
    path = cache / QUICK.file_name
    weights.write(quick_model, path, half=False)
    assert torch.equal(weights_of(digits.load(QUICK, path)), weights_of(quick_model))
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    assert digits.load(QUICK, path) is None
    monkeypatch.setattr(digits, "train", lambda *_: quick_model)
    digits.trained(QUICK, images[0])
    assert torch.equal(weights_of(digits.load(QUICK, path)), weights_of(quick_model))
    assert [each.name for each in cache.iterdir()] == [QUICK.file_name]


def test_weights_of_another_shape_or_a_folder_in_their_place_are_not_loaded(cache, quick_model):
    path = cache / QUICK.file_name
    weights.write(quick_model, path, half=False)
    assert digits.load(replace(QUICK, width=8), path) is None
    assert digits.load(QUICK, cache) is None


def test_where_the_cache_is(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.delenv("DRQ_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert files.cache_folder().as_posix() == "/home/somebody/.cache/drq"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert files.cache_folder() == tmp_path / "drq"
    monkeypatch.setenv("DRQ_CACHE", str(tmp_path / "mine"))
    assert files.cache_folder() == tmp_path / "mine"


def test_a_cache_that_cannot_be_written_is_one_remark(tmp_path, images, quick_model, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("DRQ_CACHE", str(tmp_path / "file" / "cache"))
    monkeypatch.setattr(digits, "train", lambda *_: quick_model)
    said = []
    assert digits.trained(QUICK, images[0], say=said.append) is quick_model
    assert len(said) == 1
    assert "cannot be kept" in said[0]
    assert "DRQ_CACHE" in said[0]


def test_options_of_the_name_make_another_model(cache):
    made = [drq.load_model(name) for name in ("digits?epochs=1", "digits?epochs=1&seed=1", "digits?epochs=2")]
    assert len(list(cache.rglob("*.safetensors"))) == 3
    first, *others = map(weights_of, made)
    assert torch.equal(first, weights_of(digits.train(QUICK, split()[0])))
    assert not any(torch.equal(first, each) for each in others)
    assert made[1].card.radius == Recipe().radius
