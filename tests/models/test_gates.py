"""Gates that come with models by name: each for its weights and its views, learnt from inputs that are named."""

from dataclasses import replace

import pytest
import torch
from testbed.assets import needs_assets
from torch import nn

import drq
from drq.models import gates, imagenet, loading, published, trained
from drq.models.architectures import architecture
from drq.presets import named
from drq.system.files import digest
from drq.views.fitted import for_side

TINY = "cifar10-tiny"
PRESETS = ("shift", "nature", "upright")
ENTRIES = [(name, each) for name, known in gates.known().items() for each in known.learnt]
LIMITS = {"cifar10": 5000, "mnist": 5000, "nips2017": 200}  # reports are about inputs from there on


@pytest.fixture
def tiny():
    return drq.load_model(TINY)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_is_gated_around_a_model_whose_card_has_its_gate(tiny, preset):
    (learnt,) = (each for each in gates.known()[TINY].learnt if each.preset == preset)
    for settings in (drq.preset(preset), drq.preset(preset, tiny)):
        robust = drq.DRQ(tiny, **settings)
        assert robust.gate == learnt.gate == tiny.card.gates[preset]
        assert str(robust.views) == learnt.views
        assert robust.variant().gate == learnt.gate
        assert len(robust.gate.mean) == len(robust.views) - 1
    decision = robust.decide(torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(0)))
    assert not decision.gate_margin.isnan().any()
    assert torch.equal(decision.label[decision.kept], decision.base_label[decision.kept])


def test_other_weights_have_none(tiny):
    parameter = next(tiny.parameters())
    value = parameter.data.flatten()[0].clone()
    parameter.data.view(-1)[0] += 1e-3
    assert drq.DRQ(tiny, **drq.preset("nature")).gate is None
    parameter.data.view(-1)[0] = value
    assert drq.DRQ(tiny, **drq.preset("nature")).gate is not None
    tiny.std += 1e-3  # the normalisation is part of the function
    assert drq.DRQ(tiny, **drq.preset("nature")).gate is None


def test_another_name_or_file_has_none(tiny):
    for card in (replace(tiny.card, name="cifar10-small"), replace(tiny.card, sha256="0" * 64), replace(tiny.card, sha256=None)):
        tiny.card = card
        assert not card.gates
        assert drq.DRQ(tiny, **drq.preset("nature")).gate is None
    file = loading.load(f"file:{trained.place(TINY)}?arch=wrn_10_2_half&classes=10")
    denoised = loading.load(f"denoised:{TINY}")
    for model in (file, denoised, nn.Sequential(tiny)):
        assert drq.DRQ(model, **drq.preset("upright")).gate is None


def test_it_belongs_to_its_views_and_to_them_alone(tiny):
    upright = drq.preset("upright")
    for changes in (
        {"views": "Rotation(90, 11)"},
        {"front": drq.Restoration()},
        {"radius": 0.01},
        {"views": None, "radius": 0.01},
    ):
        assert drq.DRQ(tiny, **upright | changes).gate is None
    assert (
        drq.DRQ(tiny, **upright | {"views": "Mirror() * Detail() + Rotation(90.0, views=13)"}).gate == tiny.card.gates["upright"]
    )
    given = drq.views.Gate(1.0)
    assert drq.DRQ(tiny, **upright | {"gate": given}).gate == given
    assert drq.DRQ(tiny, **upright | {"gate": None}).gate is None


@pytest.mark.parametrize(("name", "learnt"), ENTRIES, ids=[f"{name} {each.preset}" for name, each in ENTRIES])
def test_every_gate_in_the_file_is_one_that_is_asked_for(name, learnt):
    """No views of yesterday, no more changes than its preset allows, and no input that a report may be about."""
    found = {f"published:{each}": (known.stored, known.source.checksum) for each, known in published.PUBLISHED.items()}
    found |= {each: (known.stored, known.sha256) for each, known in imagenet.PACKAGED.items()}
    found |= {each: (stored, None) for each, stored in trained.STORED.items()}
    stored, sha256 = found[name]
    if name in trained.IN_THE_BOX:
        sha256 = digest(trained.place(name))
    preset = named(learnt.preset)
    view = stored.card.view or architecture(stored.arch).view
    assert str(for_side(preset.settings["views"], min(view.height, view.width))) == learnt.views
    assert learnt.changes == preset.changes
    assert learnt.gate.inputs >= 100
    assert learnt.gate.changed <= learnt.changes * learnt.gate.inputs
    assert learnt.first + learnt.gate.inputs <= LIMITS[learnt.data]
    assert sha256 in (None, gates.known()[name].sha256)


def test_models_in_the_box_and_published_ones_have_gates():
    papers = {f"published:{name}" for name in published.PUBLISHED}
    ours = {"cifar10-small", TINY, "cifar10-linf", "cifar10-l2", "cifar10-augment"}
    assert gates.known().keys() == papers | ours | imagenet.PACKAGED.keys()
    assert all({each.preset for each in known.learnt} == {*PRESETS} for known in gates.known().values())


@needs_assets
@pytest.mark.parametrize("preset", PRESETS)
def test_it_can_be_learnt_again(preset, assets):
    """From the inputs that the file names: as many answers change as it says, and another gate would be the same."""
    assert assets.is_dir()
    model = drq.load_model("published:resnet2b")
    robust = drq.DRQ(model, **drq.preset(preset))
    (learnt,) = (each for each in gates.known()["published:resnet2b"].learnt if each.preset == preset)
    x = drq.load_data(learnt.data).batch(range(learnt.first, learnt.first + learnt.gate.inputs))[0]
    decision = robust.decide(x)
    assert int((decision.label != decision.base_label).sum()) == learnt.gate.changed
    again = robust.gated(x, learnt.changes).gate
    assert again.threshold == pytest.approx(learnt.gate.threshold, rel=1e-3)
    torch.testing.assert_close(torch.tensor(again.mean), torch.tensor(learnt.gate.mean), rtol=1e-3, atol=1e-4)
