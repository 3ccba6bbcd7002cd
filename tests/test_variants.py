"""The search for a better DRQ: rules are tried on log-odds that are made up here, whose best rule is known."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))
import variants

IMAGES, CLASSES = 40, 10


@pytest.fixture(name="kept")
def _kept(tmp_path):
    """Every look is right about its own share of the images, whatever the shift; the paper's about half of them."""
    titles = ["clean", *variants.SHIFTS, "PGD"]
    doors = ("none", "restored", "denoised", "mirrored", "mirrored only", "stretched")
    looks = [f"{front}: {title}" for title, look in variants.LOOKS.items() for front in look.fronts]
    looks += [f"{front}: alone" for front in doors] + [f"none: {title}" for title in variants.FEATURES]
    source = np.random.default_rng(0)
    labels = source.integers(0, CLASSES, IMAGES)
    odds = source.normal(size=(len(titles), len(looks), 3, IMAGES, CLASSES))
    right = {f"none: {variants.PAPER}": 20, "restored: alone": 36}
    for look, count in right.items():
        odds[:, looks.index(look), :, np.arange(IMAGES), labels] = -50
        odds[:, looks.index(look), :, np.arange(count), labels[:count]] = 50
    odds[titles.index("clean"), looks.index("restored: alone"), :, np.arange(IMAGES), labels] = 50  # no shift, so no gain
    path = tmp_path / "seen.npz"
    about = {"model": "made up", "first": 0, "looks": looks, "passes": np.full(len(looks), 30.0)}
    np.savez_compressed(path, log_odds=odds.astype(np.float16), labels=labels, conditions=titles, **about)
    return path


def test_every_rule_is_compared_with_the_paper_on_the_same_images(kept, tmp_path, capsys):
    variants.attempt(kept, most=3, out=tmp_path / "deep" / "tried.json")
    tried = json.loads((tmp_path / "deep" / "tried.json").read_text())
    assert tried["images"] == IMAGES
    by = {(row["idea"], row["rule"]): row for row in tried["rules"]}
    assert len(by) == len(tried["rules"]) > 200
    paper = by["settings", f"none: {variants.PAPER}"]
    assert (paper["gain"], paper["low"], paper["high"], paper["shifts"], paper["passes"]) == (0, 0, 0, 50, 30)
    restored = by["the model behind a front", "restored"]
    half = 1.96 * 100 * (0.4 * 0.6 * IMAGES / (IMAGES - 1)) ** 0.5 / IMAGES**0.5  # 16 of 40 images are right in addition
    assert (restored["gain"], restored["shifts"], restored["clean"], restored["passes"]) == (40, 90, 100, 1)
    assert restored["low"] == pytest.approx(40 - half, abs=1e-3)
    assert [row["shifts"] for row in tried["rules"]] == sorted((row["shifts"] for row in tried["rules"]), reverse=True)
    assert "restored" in capsys.readouterr().out.splitlines()[0]


def test_probabilities_do_not_overflow():
    assert variants.probability(np.array([-1e4, 0.0, 1e4])).tolist() == [0, 0.5, 1]
