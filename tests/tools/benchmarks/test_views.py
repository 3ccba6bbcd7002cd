"""Benchmarks of views count what they say."""

import torch

import drq
from drq.views import Gate
from tools.benchmarks import view_bounds, view_variants, views_sheet


def test_a_variant_is_compared_on_the_same_images():
    model = drq.load_model("digits")
    x, y = drq.load_data("digits").batch(range(60))
    whole = drq.DRQ(model, views="Rotation(90, 5)", gate=Gate(1.0, ahead=2.0))
    variant = whole.variant(prune="race")
    found = view_variants.compared(whole, variant, x, y)
    every, some = whole.decide(x), variant.decide(x)
    looked = model(x).softmax(1).amax(1).logit() < 2  # the others are far enough ahead
    assert found["passes"] == torch.where(looked, 5.0, 1.0).double().mean()
    assert 1 < found["passes"] < 5
    assert found["alone"] == (model(x).argmax(1) == y).double().mean()
    assert found["all"] == (every.label == y).double().mean()
    assert found["variant"] == (some.label == y).double().mean()
    assert found["agree"] == (every.label == some.label).double().mean()


def test_the_table_says_what_leaving_out_costs():
    row = {"model": "m", "title": "left out early", "shift": "clean", "alone": 0.9, "all": 0.95, "variant": 0.93}
    table = view_variants.table({"found": [row | {"agree": 0.97, "passes": 3.25}]})
    assert table.splitlines()[-1] == "| m | left out early | clean | 90.0 | 95.0 | 93.0 | -2.0 | 97.0 | 3.2 |"


def test_bounds_are_those_of_the_gates_of_the_experiments(monkeypatch):
    """Of a model that takes no time, on images that it is not told."""
    spec = {
        "title": "Made up",
        "threats": {"clean": {}},
        "defences": {
            "standard": {},
            "turned": {"defence": "drq", "views": "Rotation(90, 3)", "gate": {"data": "digits", "first": 20, "count": 200}},
            "ungated": {"defence": "drq", "views": "Mirror()"},
        },
        "groups": [{"models": ["digits"], "data": ["digits"]}],
    }
    monkeypatch.setattr(view_bounds, "EXPERIMENTS", (spec,))
    (found,) = view_bounds.learnt([], "cpu")
    x = drq.load_data("digits").batch(range(20, 220))[0]
    gate = drq.DRQ(drq.load_model("digits"), views="Rotation(90, 3)").gated(x).gate
    assert found == {"model": "digits", "defence": "turned", "inputs": 200, "changed": gate.changed, "bound": gate.bound}
    assert not [*view_bounds.learnt(["another"], "cpu")]


def test_the_sheet_has_every_family_of_pictures():
    shown = {type(family) for members, _ in views_sheet.ROWS for family in members.families}
    assert shown == {getattr(drq.views, name) for name in view_families()}
    assert views_sheet.sheet().width == views_sheet.LABEL + 5 * (views_sheet.TILE + views_sheet.GAP)


def view_families() -> list[str]:
    """Families of views of pictures."""
    return ["Rotation", "Scale", "Shift", "Mirror", "Contrast", "Detail", "Gamma", "Denoise", "Blur", "Sharpen"]
