"""A caller's mistake is one line that names argument, rule, value and remedy."""

import math

import pytest
import torch
from testbed.every_view import PICTURES, SOUND, TABLES, batch, flat
from testbed.refusals import refused

import drq
from drq import views
from drq.views import Contrast, Gamma, Mirror, Monotone, Rotation


@pytest.mark.parametrize(
    ("kind", "arguments", "words"),
    [
        (views.Rotation, (0, 3), "degrees must be a number above 0, 180 at most, got 0: 90 finds what lies on its side"),
        (views.Rotation, (-90, 3), "degrees must be a number above 0, 180 at most, got -90"),
        (views.Rotation, (181, 3), "degrees must be a number above 0, 180 at most, got 181"),
        (views.Rotation, (math.nan, 3), "degrees must be a number above 0, 180 at most, got nan"),
        (views.Rotation, ("90", 3), "degrees must be a number above 0, 180 at most, got '90'"),
        (views.Rotation, (True, 3), "degrees must be a number above 0, 180 at most, got True"),
        (views.Rotation, (90, 4), "views must be an odd number of at least 3, the input itself among them, got 4: 13 with"),
        (views.Rotation, (90, 1), "views must be an odd number of at least 3, the input itself among them, got 1"),
        (views.Rotation, (90, 3.0), "views must be an odd number of at least 3, the input itself among them, got 3.0"),
        (views.Rotation, (90, True), "views must be an odd number of at least 3, the input itself among them, got True"),
        (views.Rotation, (180, 1), "views must be a whole number of at least 2, got 1: 24 are steps of 15 degrees"),
        (views.Scale, (1, 3), "factor must be a number above 1, 16 at most, got 1: 2 doubles and halves the size"),
        (views.Scale, (math.inf, 3), "factor must be a number above 1, 16 at most, got inf"),
        (views.Scale, (0.5, 3), "factor must be a number above 1, 16 at most, got 0.5"),
        (views.Scale, (2, 6), "views must be an odd number of at least 3, the input itself among them, got 6"),
        (views.Shift, (0,), "pixels must be a whole number of at least 1, got 0: 4 suits pictures of 32 pixels"),
        (views.Shift, (1.5,), "pixels must be a whole number of at least 1, got 1.5"),
        (views.Shift, (4, 7), "views must be 5 or 9, got 7: 5 is the picture and one step to each side"),
        (views.Gamma, (0,), "exponents must be a number above 0, 16 at most, got 0: below 1 makes brighter, above 1 darker"),
        (views.Gamma, (0.5, 17), "exponents must be a number above 0, 16 at most, got 17"),
        (views.Detail, (0,), "detail must be None or a number above 0, got 0"),
        (views.Detail, (None,), "detail must be a number above 0, got None: drq.views.Contrast() stretches alone"),
        (views.Sharpen, (-1,), "amount must be a number above 0, 16 at most, got -1: 1 adds it once"),
        (views.Gain, (1, 3), "factor must be a number above 1, 1000 at most, got 1: 4 is 12 decibels up and down"),
        (views.Gain, (2, 2), "views must be an odd number of at least 3"),
        (views.TimeShift, (1, 5), "samples must be a whole number of at least 2, got 1"),
        (views.TimeShift, (0.5, 3), "samples must be a whole number of at least 1, got 0.5"),
        (views.NoiseFloor, (0,), "levels must be a number above 0, and finite, got 0: 0.01 is 40 decibels below full scale"),
        (views.NoiseFloor, (math.inf,), "levels must be a number above 0, and finite, got inf"),
        (views.Monotone, (-2,), "exponents must be a number above 0, 16 at most, got -2: below 1 lifts low values"),
    ],
)
def test_settings(kind, arguments, words):
    refused(kind, *arguments, words=[words])


@pytest.mark.parametrize(
    ("looks", "shape", "words"),
    [
        *((PICTURES[name], (6,), "x must be pictures (N, C, H, W) for ") for name in PICTURES),
        (Rotation(90, 3), (2, 12), "for Rotation(90, 3), got shape (12, 2, 12): leave Rotation out of the views"),
        (Mirror(), (3, 1, 8), "x must be pictures (N, C, H, W) for Mirror(), got shape (12, 3, 1, 8)"),
        (views.Shift(8), (3, 8, 9), "for Shift(8), got shape (12, 3, 8, 9): leave Shift out of the views"),
        *((SOUND[name], (3, 8, 8), "x must be sound (N, samples) or (N, channels, samples) for ") for name in SOUND),
        (views.TimeShift(12, 3), (2, 12), "for TimeShift(12, 3), got shape (12, 2, 12)"),
        *((TABLES[name], (3, 8, 8), "x must be rows of a table (N, features) for Monotone(0.5, 3), got") for name in TABLES),
        (Monotone(), (2, 12), "x must be rows of a table (N, features) for Monotone(), got shape (12, 2, 12)"),
    ],
)
@pytest.mark.parametrize("radius", [None, 0.1])
def test_inputs_of_another_kind(looks, shape, words, radius):
    ball = {} if radius is None else {"radius": radius}
    refused(drq.DRQ(flat(shape), views=looks, **ball).decide, batch(shape), words=[words])


@pytest.mark.parametrize(("bounds", "shown"), [((0.0, 255.0), "(0.0, 255.0)"), ((-1.0, 1.0), "(-1.0, 1.0)"), (None, "None")])
@pytest.mark.parametrize("looks", ["Contrast()", "Mirror() * Detail()", "Gamma(2)", "Sharpen()", "Monotone()"])
def test_bounds_of_views_in_0_to_1(bounds, shown, looks):
    name = looks.rpartition("* ")[2]
    words = [f"bounds must lie in [0, 1] for {name}, got {shown}: scale inputs, or leave these views out"]
    refused(drq.DRQ, flat((6,)), views=looks, bounds=bounds, words=words)


@pytest.mark.parametrize("bounds", [(0.0, 255.0), (-1.0, 1.0), None])
def test_other_views_take_any_bounds(bounds):
    looks = Rotation(90, 3) + Mirror() + views.Blur() + views.Denoise() + views.Scale(2, 3)
    x = 0.9 * batch((3, 8, 8)) + 0.05
    assert len(drq.DRQ(flat((3, 8, 8)), views=looks, bounds=bounds).decide(x)) == 12


def test_bounds_of_single_features():
    low, high = torch.zeros(6, dtype=torch.float64), torch.ones(6, dtype=torch.float64)
    assert len(drq.DRQ(flat((6,)), views=Monotone(), bounds=(low, high)).decide(batch((6,)))) == 12
    high[3] = 2
    refused(drq.DRQ, flat((6,)), views=Monotone(), bounds=(low, high), words=["bounds must lie in [0, 1] for Monotone(), got"])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"views": 3}, "views must be views, text or a function, got 3: as in drq.views.Rotation(90, 13) + drq.views.Mirror()"),
        ({"views": Mirror}, "views must be views, text or a function, got <class 'drq.views.spatial.Mirror'>"),
        ({"views": "Miror()"}, "did you mean Mirror?"),
        ({"views": Mirror(), "alpha": 2}, "alpha must lie in [0, 1], got 2"),
        (
            {"views": Mirror(), "frozen": torch.ones(6) > 0},
            "frozen must be None with views, which change all features, got a mask",
        ),
        ({"views": Mirror(), "classes": 0}, "classes must be"),
        ({"views": Mirror(), "gate": {"mean": []}}, "gate must have a threshold"),
    ],
)
def test_settings_that_do_not_fit(settings, words):
    refused(drq.DRQ, flat((6,)), **settings, words=[words])


class Averaging(torch.nn.Module):
    """Wrong whenever there are several rows."""

    def forward(self, x):
        return flat((3, 8, 8))(x).mean(0, keepdim=True)


def test_models_that_mix_rows():
    refused(drq.DRQ(Averaging().eval(), views=Mirror()).decide, batch((3, 8, 8)), words=["model must return one row of logits"])
    refused(drq.DRQ(Averaging().eval(), views=Rotation(90, 3)).decide, batch((3, 8, 8), 1), words=["got shape (1, 5) for 2"])
    training = flat((3, 8, 8))
    training[0].train()
    refused(drq.DRQ(training, views=Mirror()).decide, batch((3, 8, 8)), words=["model must be in evaluation mode"])


def test_inputs():
    robust, x = drq.DRQ(flat((3, 8, 8)), views=Mirror() + Contrast() + Gamma()), batch((3, 8, 8))
    refused(robust.decide, 2 * x, words=["x must lie within bounds=(0.0, 1.0)"])
    refused(robust.decide, x * math.nan, words=["x must be finite, got NaN or infinity"])
    refused(robust.decide, (255 * x).byte(), words=["x must be float32 or float64"])
    refused(robust.decide, x[0, 0, 0], words=["x must be a batch of shape (N, ...)"])
    refused(robust.variant(classes=9).decide, x, words=["classes must be at most 5, the model's classes, got 9"])
