"""Lower precision: the labels are those of full precision, whatever rounding makes of near ties."""

import pytest
import torch
from testbed.every_view import batch, flat
from torch import nn

import drq
from drq.views import Gate, Mirror, Rotation

SHAPE = (3, 8, 8)
VIEWS = Rotation(90, 7) + Mirror()
LOWER = pytest.mark.parametrize("precision", ["bfloat16", "float16"])


def crowded(gain: float = 3.0) -> nn.Module:
    """Three of its classes are nearly alike, so that many samples are close."""
    model = flat(SHAPE, 6, gain).float()
    last = model[1][-1]
    with torch.no_grad():
        for other in (1, 2):
            last.weight[other] = last.weight[0] * (1 + 1e-3 * other)
            last.bias[other] = last.bias[0] + 1e-3 * other
    return model


@LOWER
@pytest.mark.parametrize("alpha", [0.0, 1 / 3])
@pytest.mark.parametrize("gate", ["none", "plain", "standardised"])
def test_labels_are_those_of_full_precision(precision, alpha, gate):
    model, x = crowded(), batch(SHAPE, 300).float()
    full = drq.DRQ(model, views=VIEWS, alpha=alpha)
    if gate != "none":
        full = full.gated(batch(SHAPE, 200, 9).float(), 0.2, leads="standardised" if gate == "standardised" else "plain")
    lower, expected = full.variant(precision=precision), full.decide(x)
    found = lower.decide(x)
    assert torch.equal(found.label, expected.label)
    assert torch.equal(found.base_label, expected.base_label)
    again = found.passes > len(VIEWS)
    assert 10 < int(again.sum()) < 300
    assert (found.passes[again] == 2 * len(VIEWS)).all()
    assert torch.equal(found.log_odds[again], expected.log_odds[again]) or (
        (found.log_odds - expected.log_odds)[again].abs().max() < 1e-4
    )
    assert (found.log_odds - expected.log_odds)[~again].abs().max() > 1e-5  # it was rounded
    rounded = torch.stack([model(each(x)) for each in VIEWS], 1)
    with torch.autocast("cpu", getattr(torch, precision)):
        assert (model(x).float() - rounded[:, 0]).abs().max() > 1e-4
    scores = lower(x.clone().requires_grad_())
    assert torch.equal(scores.argmax(1), found.label)
    assert torch.equal(lower(x).argmax(1), found.label)


def test_rounding_alone_would_change_labels():
    """So the test above can fail."""
    model, x = crowded(), batch(SHAPE, 300).float()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        odds = torch.stack([drq.objectives.log_odds(model(each(x)).float()) for each in VIEWS], 1)
    assert int((odds.amax(1).argmax(1) != drq.DRQ(model, views=VIEWS).decide(x).label).sum()) > 3


@LOWER
def test_gates_are_learnt_in_full_precision(precision):
    model, clean = crowded(), batch(SHAPE, 150, 9).float()
    gates = [drq.DRQ(model, views=VIEWS, precision=each).gated(clean).gate for each in ("float32", precision)]
    assert gates[0] == gates[1]
    held = drq.DRQ(model, views=VIEWS, precision=precision, gate=gates[1]).decide(clean)
    assert int((held.label != held.base_label).sum()) == gates[1].changed


class Loud(nn.Module):
    """Beyond what float16 can hold, at views that are mirrored alone."""

    def forward(self, x):
        loud = torch.where(x[:, 0, 0, 0] > 0.5, 1e5, 1.0)
        mean = x.flatten(1).mean(1)
        weight = torch.stack([mean, 0.5 - mean, x[:, 0, 0, 0]], 1)
        return (weight.to(torch.get_autocast_dtype("cpu")) if torch.is_autocast_enabled("cpu") else weight) * loud[:, None].to(
            torch.float16 if torch.is_autocast_enabled("cpu") else torch.float32
        )


def test_views_beyond_the_lower_precision_are_looked_at_again():
    x = 0.4 * batch(SHAPE, 20).float()
    x[:, 0, 0, -1] = 0.9
    full, lower = (drq.DRQ(Loud().eval(), views="Mirror()", precision=each).decide(x) for each in ("float32", "float16"))
    assert torch.equal(full.label, lower.label)
    assert (full.label == 2).all()
    assert not lower.nonfinite.any()
    assert lower.passes.tolist() == [4] * 20


def test_a_gate_that_surely_holds_spares_another_look():
    model, x = crowded(), batch(SHAPE, 100).float()
    lower = drq.DRQ(model, views=VIEWS, precision="bfloat16", gate=Gate(50.0)).decide(x)
    assert lower.kept.all()
    assert (lower.passes == len(VIEWS)).all()
