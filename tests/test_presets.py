"""Presets: what their names stand for, in Python, in a spec and on the command line."""

import pytest
import torch
from testbed.refusals import refused

import drq
from drq.commands.cli import main
from drq.defences import Standard
from drq.evaluation import reading
from drq.models.classifier import Card
from drq.reproduction.experiments import experiments_behind
from drq.serving.picture import Picture
from drq.serving.predict import Predictor


@pytest.mark.parametrize("name", drq.presets.PRESETS)
def test_every_preset_is_made_of_arguments_and_rests_on_an_experiment(name):
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 6)).eval()
    model.card = Card("mine", norm="linf", radius=0.1)
    robust = drq.DRQ(model, **drq.preset(name, model))
    assert robust.decide(torch.rand(2, 3, 4, 4)).label.shape == (2,)
    assert experiments_behind([drq.presets.PRESETS[name].experiment])


def test_the_paper_is_the_default():
    paper, default = (drq.DRQ(torch.nn.Identity(), **given).settings for given in (drq.preset("paper"), {}))
    assert paper == default


def test_a_preset_may_reach_less_far():
    model = torch.nn.Identity().eval()
    model.card = Card("mine", norm="linf", radius=0.1)
    made = {name: reading.defence("mine", {"defence": "drq", "preset": name}, "defences.mine") for name in ("paper", "guarded")}
    assert {name: each.around(model).radius for name, each in made.items()} == {"paper": 0.2, "guarded": 0.1}
    assert [each.record for each in made.values()] == [{"defence": "drq"}, {"defence": "drq", "reach": 1.0}]
    given = {"defence": "drq", "preset": "guarded", "norm": "linf", "radius": 0.3}
    refused(reading.defence, "mine", given, "defences.mine", words=["defences.mine must leave norm and radius to this preset"])
    assert drq.preset("guarded", model) == {"norm": "linf", "radius": 0.1}
    assert drq.preset("fast", model) == drq.preset("fast") | {"norm": "linf", "radius": 0.2}
    other = reading.defence("mine", {"defence": "drq", "preset": "guarded"}, "defences.mine")
    refused(
        other.around, torch.nn.Identity().eval(), words=["preset must be for the norm and the radius of a model's adversarial"]
    )
    refused(Predictor, "cifar10-small", "l2", preset="guarded", words=["preset must be for the norm", "leave out norm, radius"])
    refused(Predictor, "cifar10-small", radius=0.1, preset="guarded", words=["preset must be for the norm"])
    refused(drq.preset, "guarded", words=["model must be given for guarded, which follows its training"])
    refused(drq.preset, "guarded", torch.nn.Identity(), words=["model must have a card that says how it was trained"])


def test_one_step_is_a_tenth_of_the_cost():
    fast, paper = (drq.DRQ(torch.nn.Identity(), "linf", 0.1, **drq.preset(name)).most_passes(10) for name in ("fast", "paper"))
    assert (fast, paper) == (41, 421)


def test_a_preset_is_no_ones_to_change():
    drq.preset("fast")["explore"] = None
    assert drq.preset("fast")["explore"] == drq.Gradient(1)
    with pytest.raises(TypeError):
        drq.presets.PRESETS["mine"] = None


def test_specs_take_presets_and_change_them():
    table = {"norm": "linf", "radius": "8/255", "preset": "fast", "explore": {"search": "Gradient", "steps": 3}}
    front = {"front": "Restoration"}
    robust = reading.defence("mine", table | front, "defences.mine").around(torch.nn.Identity().eval())
    assert (robust.explore, robust.quantify, robust.front) == (drq.Gradient(3), drq.Gradient(1), drq.Restoration())
    assert robust.radius == 8 / 255
    usual = reading.defence("mine", {"preset": "instant", "defence": "drq"}, "defences.mine").around(torch.nn.Identity().eval())
    assert (usual.norm, usual.radius, usual.classes) == (drq.L2(), drq.Calibrated(steps=10), 5)
    words = ["defences.mine: preset must have a name that exists, got 'fats'", "did you mean fast"]
    refused(reading.defence, "mine", {"norm": "linf", "preset": "fats"}, "defences.mine", words=words)
    refused(reading.defence, "mine", {"norm": "linf", "fornt": "x"}, "defences.mine", words=["did you mean front"])


def test_the_model_alone_may_have_a_front():
    model, x = torch.nn.Flatten().eval(), torch.rand(2, 3, 4, 4)
    restored = reading.defence("restored", {"defence": "standard", "front": "Restoration"}, "defences.restored")
    torch.testing.assert_close(restored.around(model)(x), model(drq.Restoration()(x)))
    assert restored.record == {"defence": "standard", "front": "Restoration(detail=0.25)"}
    assert Standard().around(model) is model
    assert Standard().record == {"defence": "standard"}


def test_pictures_are_answered_with_the_preset():
    plain, fast = (Predictor("cifar10-small", preset=name) for name in ("paper", "fast"))
    assert (plain.robust.explore, plain.robust.quantify) == (drq.Gradient(20), drq.Gradient(20))
    assert (fast.robust.explore, fast.robust.quantify, fast.robust.radius) == (drq.Gradient(1), drq.Gradient(1), 16 / 255)
    asked = [Predictor("cifar10-small", preset="instant", classes=classes).robust.classes for classes in (None, 3)]
    assert (asked, plain.robust.classes) == ([5, 3], None)  # what is asked for goes before the preset
    assert Predictor("cifar10-small", preset="guarded").robust.radius == plain.robust.radius / 2


def test_a_radius_belongs_to_a_norm():
    """One that is given to the preset's norm, the preset's to no other norm."""
    preset = drq.presets.Preset("mine", "table1", {"norm": "linf", "radius": 2 / 255, "classes": 2})
    cases = (
        ({}, ("linf", 2 / 255)),
        ({"radius": 0.1}, ("linf", 0.1)),
        ({"norm": "linf"}, ("linf", 2 / 255)),
        ({"norm": "l2", "radius": 0.5}, ("l2", 0.5)),
        ({"norm": "l2"}, ("l2", None)),  # calibrated
    )
    for card in (drq.load_model("cifar10-small").card, drq.models.classifier.Card("mine")):  # linf at 8/255; no adversary
        for given, found in cases:
            around = preset.around(card, given)
            assert (around["norm"], around.get("radius")) == found
            assert around["classes"] == 2
    assert drq.preset("instant", torch.nn.Identity()) == drq.preset("instant")  # which follows no training


def test_the_standard_answer_is_that_of_the_model_alone():
    """Dull pictures, about which the model says something else where they are restored."""
    predictor, source = Predictor("cifar10-small", preset="shift"), torch.Generator().manual_seed(0)
    coarse = torch.rand((40, 3, 4, 4), generator=source)
    dull = 0.5 + 0.1 * torch.nn.functional.interpolate(coarse, size=32, mode="bicubic")
    with torch.no_grad():
        alone = predictor.model(dull).argmax(1)
    place = int((alone != predictor.robust.decide(dull).label).long().argmax())
    (answer,) = predictor._decide([Picture("dull", "dull")], [dull[place]])
    assert answer.standard == predictor.card.classes[int(alone[place])]
    assert answer.changed
    assert answer.answer != answer.standard


@pytest.mark.parametrize(("name", "views"), [("shift", 4), ("nature", 12), ("upright", 16)])
def test_presets_of_views_cost_a_forward_pass_a_view(name, views):
    """Around any model, without gradients and without a ball; whatever is given goes before the preset."""
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 6)).eval().requires_grad_(False)
    robust = drq.DRQ(model, **drq.preset(name))
    decision = robust.decide(torch.rand(2, 3, 4, 4))
    assert len(robust.views) == robust.most_passes(6) == views
    assert decision.forward_passes.tolist() == decision.passes.tolist() == [views] * 2
    assert decision.radius.tolist() == [0, 0]
    assert len(drq.DRQ(model, **drq.preset(name) | {"views": "Mirror()"}).views) == 2
    assert drq.DRQ(model, **drq.presets.PRESETS[name].around(Card("mine", norm="linf", radius=0.1))).ball_searched is False
    around = drq.presets.PRESETS[name].around(Card("mine", norm="linf", radius=0.1), {"radius": 0.05})
    assert (around["norm"], around["radius"]) == ("linf", 0.05)


def test_presets_of_views_have_tones_first_and_then_angles():
    shift, nature, upright = (
        drq.DRQ(torch.nn.Flatten(), **drq.preset(name)).views.names for name in ("shift", "nature", "upright")
    )
    assert shift == ("the input", "restored", "mirrored, restored", "mirrored, median, sharpened")
    assert nature == shift + drq.views.Rotation(80, 9).names[1:]
    assert upright == (drq.views.Mirror() * drq.views.Detail()).names + drq.views.Rotation(90, 13).names[1:]


@pytest.mark.parametrize(("side", "detail"), [(32, 0.25), (224, 0.12), (260, 0.12)])
def test_detail_is_restored_as_pictures_of_the_models_size_have_it(side, detail):
    model = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(2), torch.nn.Flatten(), torch.nn.Linear(12, 5)).eval()
    model.card = Card("mine", view=drq.models.View(side, side))
    robust, x = drq.DRQ(model, **drq.preset("nature")), torch.rand(1, 3, side, side)
    place = robust.views.names.index("restored")
    torch.testing.assert_close(robust.views[place](x), drq.Restoration(detail)(x))
    assert robust.decide(x).label.shape == (1,)


def test_specs_take_the_gate_of_the_card():
    tiny = drq.load_model("cifar10-tiny")
    made = reading.defence("mine", {"defence": "drq", "preset": "nature"}, "defences.mine")
    assert made.around(tiny).gate == tiny.card.gates["nature"]
    assert made.record["gate"] == "card"
    given = reading.defence("mine", {"preset": "nature", "gate": {"threshold": 3.0}}, "defences.mine")
    assert given.around(tiny).gate == drq.views.Gate(3.0)


def test_a_mistaken_preset_is_named(tmp_path, capsys):
    assert main(["predict", str(tmp_path / "none.png"), "--preset", "fats"]) == 2
    assert "preset must have a name that exists, got 'fats': did you mean fast" in capsys.readouterr().err
