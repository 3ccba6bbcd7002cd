"""Presets: what their names stand for, in Python, in a spec and on the command line."""

import pytest
import torch
from refusals import refused

import drq
from drq.cli import main
from drq.defences import Standard
from drq.evaluation import reading
from drq.models.classifier import Card
from drq.reproduction.catalogue import wanted


@pytest.mark.parametrize("name", drq.presets.PRESETS)
def test_every_preset_is_made_of_arguments_and_rests_on_an_experiment(name):
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 3)).eval()
    robust = drq.DRQ(model, "linf", 0.1, **drq.preset(name))
    assert robust.decide(torch.rand(2, 3, 4, 4)).label.shape == (2,)
    assert wanted([drq.presets.PRESETS[name].experiment])


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
    assert reading.defence("mine", given, "defences.mine").around(model).radius == 0.3


def test_one_step_is_a_tenth_of_the_cost():
    fast, paper = (drq.DRQ(torch.nn.Identity(), "linf", 0.1, **drq.preset(name)).most_passes(10) for name in ("fast", "paper"))
    assert (fast, paper) == (41, 421)


def test_a_preset_is_no_ones_to_change():
    drq.preset("fast")["explore"] = None
    assert drq.preset("fast")["explore"] == drq.Gradient(1)
    with pytest.raises(TypeError):
        drq.presets.PRESETS["mine"] = None


def test_specs_take_presets_and_change_them():
    table = {"norm": "linf", "radius": "8/255", "preset": "shift", "explore": {"search": "Gradient", "steps": 3}}
    robust = reading.defence("mine", table, "defences.mine").around(torch.nn.Identity().eval())
    assert (robust.explore, robust.quantify, robust.front) == (drq.Gradient(3), drq.Gradient(1), drq.Restoration())
    assert robust.radius == 8 / 255
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


def test_a_mistaken_preset_is_named(tmp_path, capsys):
    assert main(["predict", str(tmp_path / "none.png"), "--preset", "fats"]) == 2
    assert "preset must have a name that exists, got 'fats': did you mean fast" in capsys.readouterr().err
