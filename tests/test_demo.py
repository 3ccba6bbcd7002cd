"""The demonstration: shifts against closed forms, counts by hand, and a cache that survives whatever happens to it."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest
import torch

import drq
from drq import demo, files
from drq.data.digits import TEST_IMAGES, split
from drq.demo import Answers, Tally
from drq.models import digits, weights
from drq.models.digits import Recipe
from drq.seeds import generator

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


@pytest.mark.parametrize("name", ["noise", "rotation", "translation", "PGD"])
def test_shifts_stay_in_the_box_and_belong_to_the_image(name, images, quick_model):
    x, y = (each[:4] for each in images[1])
    shift, index = demo.shifts(QUICK.radius, seed=0)[name], torch.arange(4)
    together = shift(quick_model, x, y, index=index)
    assert together.min() >= 0
    assert together.max() <= 1
    assert (together != x).flatten(1).any(1).all()
    torch.testing.assert_close(shift(quick_model, x[2:3], y[2:3], index=index[2:3]), together[2:3], atol=1e-5, rtol=0)
    if name != "PGD":
        assert not torch.equal(demo.shifts(QUICK.radius, seed=1)[name](quick_model, x, y, index=index), together)


def test_counts_by_hand():
    truth = torch.tensor([0, 1])
    label = torch.tensor([[0, 0, 1], [1, 0, 1], [0, 0, 0], [0, 1, 0]])  # two shifts of two images, three methods
    trust = torch.tensor([[3.0, 0, 1], [2, 1, 3], [1, 2, 4], [0, 3, 2]])
    tallies, half = demo.count(truth, Answers(label, trust, label), ["a", "b"])
    assert tallies == {
        "a": {"standard": Tally(2, 2, 0, 0), "linf": Tally(2, 1, 0, 1), "l2": Tally(2, 1, 0, 1)},
        "b": {"standard": Tally(2, 1, 0, 0), "linf": Tally(2, 2, 1, 0), "l2": Tally(2, 1, 0, 0)},
    }
    assert half == {"standard": 100.0, "linf": 100.0, "l2": 100.0}


def test_tallies_against_known_values():
    assert Tally(200, 150, 0, 0).interval == pytest.approx((68.57, 80.48), abs=0.02)  # Wilson, from a textbook formula
    assert Tally(200, 150, 9, 1).p_value == pytest.approx(22 / 1024)
    assert Tally(200, 150, 9, 1).difference == 4
    assert Tally(200, 150, 0, 0).p_value == Tally(200, 150, 4, 4).p_value == 1
    assert Tally(500, 0, 0, 500).p_value < 1e-100


@pytest.mark.parametrize("images", [0, -3, 501, 99999])
def test_impossible_numbers_of_images_are_refused(images):
    with pytest.raises(drq.InputError, match=f"images must lie between 1 and 500.*got {images}:"):
        demo.demonstrate(images, QUICK)


def test_a_negative_seed_is_refused():
    with pytest.raises(drq.InputError, match="seed must be at least 0, got -1"):
        Recipe(seed=-1)


def test_same_numbers_whether_trained_or_cached_and_nothing_global_moves(cache, monkeypatch, tmp_path):
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist(), torch.get_num_threads()
    first = demo.demonstrate(3, QUICK)
    assert [each.name for each in cache.iterdir()] == [QUICK.file_name]
    with monkeypatch.context() as patch:
        patch.setattr(digits, "train", None)
        cached = demo.demonstrate(3, QUICK)
    monkeypatch.setenv("DRQ_CACHE", str(tmp_path / "other"))
    torch.rand(3, generator=torch.Generator())
    retrained = demo.demonstrate(3, QUICK)
    assert first == cached == retrained
    after = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist(), torch.get_num_threads()
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]


def test_the_seed_changes_model_and_shifts(images, quick_model):
    assert not torch.equal(weights_of(digits.train(replace(QUICK, seed=1), images[0])), weights_of(quick_model))
    numbers = {torch.rand(1, generator=generator(*key)).item() for key in [(0, 1), (1, 0), (2**32, 1), (2**40, 1)]}
    assert len(numbers) == 4


def test_every_entry_of_the_recipe_names_another_file():
    changed = {name: value + 1 for name, value in vars(Recipe()).items()}
    names = {replace(Recipe(), **{name: value}).file_name for name, value in changed.items()}
    assert len(names | {Recipe().file_name}) == len(changed) + 1


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


@pytest.mark.slow
@pytest.mark.usefixtures("cache")
def test_the_model_is_decent_and_every_shift_hurts_it():
    tallies = demo.demonstrate(200, Recipe()).tallies
    assert tallies["clean"]["standard"].accuracy > 95
    for shift in ("noise", "rotation", "translation", "PGD"):
        assert 55 < tallies[shift]["standard"].accuracy < 90
