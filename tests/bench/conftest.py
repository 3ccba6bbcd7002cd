"""A record of the benchmark, made hastily."""

import pytest
import torch

from drq.bench import growth
from drq.bench.measure import measure
from drq.bench.settings import PARTS, BenchSettings


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """A cache that holds a hastily trained model of digits."""
    from drq.data.digits import split
    from drq.models import digits, weights

    folder = tmp_path_factory.mktemp("cache")
    weights.write(digits.train(digits.Recipe(epochs=1), split()[0]), folder / digits.Recipe().file_name, half=False)
    return folder


def hurry(patch, cache):
    """No training, and no compiler, which takes half a minute."""
    patch.setenv("DRQ_CACHE", str(cache))
    patch.setattr(torch, "compile", lambda function, **_: function)


@pytest.fixture
def hasty(cache, monkeypatch):
    hurry(monkeypatch, cache)


@pytest.fixture(scope="session")
def record(tmp_path_factory, cache):
    """All parts that a CPU has, on digits, hastily."""
    folder = tmp_path_factory.mktemp("bench")
    with pytest.MonkeyPatch.context() as patch:
        hurry(patch, cache)
        patch.setattr(growth, "STEPS", {"cpu": 5})
        patch.setattr(growth, "IMAGES", {"cpu": 4})
        patch.setattr(growth, "DIGITS", {"cpu": (1,)})
        settings = BenchSettings.with_defaults("cpu", PARTS, model="digits", images=4, naive_images=3, samples=3)
        told, said = [], []
        found = measure(settings, folder / "record.json", lambda *each: told.append(each), said.append)
    return found, folder / "record.json", told, said
