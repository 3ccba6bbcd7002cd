"""Views and gates that a model's card brings along."""

from types import SimpleNamespace

import pytest
import torch
from testbed.refusals import refused
from torch import nn

import drq
from drq.views.fitted import DETAIL, for_side


@pytest.mark.parametrize(
    ("side", "detail"), [(8, 0.25), (28, 0.25), (32, 0.25), (45, 0.25), (64, 0.18), (128, 0.15), (224, 0.12), (1000, 0.12)]
)
def test_detail_is_that_of_pictures_of_about_the_size(side, detail):
    views = drq.views.parse("Mirror() * Detail() + Detail(0.3) * (Blur() + Detail())")
    found = for_side(views, side)
    expected = drq.views.parse(f"Mirror() * Detail({detail}) + Detail(0.3) * (Blur() + Detail({detail}))")
    assert str(found) == str(expected)
    assert len(found) == len(views)


def test_the_shares_of_detail_fall_with_the_size():
    assert sorted(DETAIL.values(), reverse=True) == [*DETAIL.values()]
    assert [*DETAIL] == sorted(DETAIL)
    assert drq.views.Detail().detail == DETAIL[32]


def test_a_card_is_asked_for_views_and_gate():
    """Whatever has one: what it says about the views that were asked for is taken, unless evidence is of another kind."""
    model, asked = nn.Sequential(nn.Flatten(), nn.Linear(12, 2)).eval(), []
    other, gate = drq.views.Blur(), drq.views.Gate(2.0, (0.0,), (1.0,))

    def answer(views, given):
        asked.append((str(views), given))
        return other, gate

    model.card = SimpleNamespace(fitted=answer)
    robust = drq.DRQ(model, views="Sharpen()", gate="card")
    assert (robust.views, robust.gate) == (other, gate)
    assert asked == [("Sharpen()", model)]
    for settings in ({"radius": 0.1}, {"front": torch.sqrt}):
        robust = drq.DRQ(model, views="Sharpen()", gate="card", **settings)
        assert (robust.views, robust.gate) == (other, None)
    assert drq.DRQ(model, "l2", 0.1, gate="card").gate is None
    assert len(asked) == 3


def test_a_model_without_a_card_is_not_gated():
    robust = drq.DRQ(nn.Sequential(nn.Flatten(), nn.Linear(12, 2)).eval(), **drq.preset("nature"))
    assert robust.gate is None
    assert len(robust.views) == 12


def test_other_words_are_refused():
    words = ["gate must be a drq.views.Gate, 'card' or None, got 'crad'"]
    refused(drq.DRQ, nn.Flatten().eval(), views="Mirror()", gate="crad", words=words)
