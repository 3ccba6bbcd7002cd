"""The card of a decision over views: what is drawn are the model's own numbers at every view, and it can be read in grey."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb
from testbed.brightness import Quarters
from testbed.explained import images
from testbed.refusals import refused

import drq
from drq.report import plots, views_card
from drq.views.seen import seen

VIEWS = "Rotation(90, 3) + Mirror()"
SKEWED = (3.0, -2.0, 0.5), (2.0, 0.5, 1.0)


def looked(views=VIEWS, gate=None, channels=3, number=0, classes=None):
    """A decision on one image, and what the model says at its views."""
    robust = drq.DRQ(Quarters().eval(), views=views, gate=gate, classes=classes)
    x = images(channels, count=6)[number : number + 1]
    decision = robust.decide(x)
    return decision, seen(robust.model, robust.views, robust.gate, x, robust.bounds, decision.classes)


def thumbnails(figure):
    return [ax for ax in figure.axes if ax.images]


def chart(figure):
    (ax,) = (ax for ax in figure.axes if ax.get_xlabel() == "view")
    return ax


def drawn(figure):
    """The heights of every class over the views, by what the legend says."""
    return {line.get_label(): line.get_ydata() for line in chart(figure).lines if line.get_linestyle() == "None"}


def words(figure):
    parts = [figure, *figure.subfigs]
    texts = [each.get_text() for part in parts for each in (*part.texts, *([part._supxlabel] if part._supxlabel else []))]
    return " ".join(texts).replace("\n", " ")


@pytest.mark.parametrize("channels", [1, 3])
def test_every_view_is_shown_as_the_model_saw_it(channels):
    decision, views = looked(channels=channels)
    x = images(channels, count=6)[:1]
    expected = [x, x.rot90(-1, (2, 3)), x.rot90(1, (2, 3)), x.flip(3)]
    pictures = thumbnails(plots.views_card(decision, views))
    assert len(pictures) == 4
    for ax, picture, name in zip(pictures, expected, views.names, strict=True):
        shown = np.asarray(picture[0, 0] if channels == 1 else picture[0].permute(1, 2, 0))
        np.testing.assert_allclose(ax.images[0].get_array(), shown, atol=1e-6)
        assert name in ax.get_title().replace("\n", " ")
    confidence = Quarters()(torch.cat(expected)).softmax(1)
    best = confidence.amax(0)
    best[decision.label] = -1
    for ax, values in zip(pictures, confidence, strict=True):
        assert ax.get_xlabel() == f"{values[int(decision.label)]:.2f}  {values[int(best.argmax())]:.2f}"


@pytest.mark.parametrize("number", range(6))
def test_the_view_that_spoke_is_marked(number):
    decision, views = looked(number=number)
    figure = plots.views_card(decision, views)
    framed = [place for place, ax in enumerate(thumbnails(figure)) if ax.spines["left"].get_linewidth() > 2]
    assert framed == [int(decision.view)]
    (mark,) = (line for line in chart(figure).lines if line.get_label() == "the view that spoke")
    assert [*mark.get_xdata()] == [int(decision.view)] * 2
    highest = {label: float(np.nanmax(heights)) for label, heights in drawn(figure).items()}
    (answer,) = (label for label in highest if label.endswith("the answer"))
    assert highest[answer] == max(highest.values())
    assert int(np.nanargmax(drawn(figure)[answer])) == int(decision.view)


@pytest.mark.parametrize("standardised", [False, True])
@pytest.mark.parametrize("threshold", [-50.0, 50.0])
def test_the_gate_is_a_line_and_said_to_hold_or_to_give_way(threshold, standardised):
    gate = drq.views.Gate(threshold, *(SKEWED if standardised else ()))
    decision, views = looked(gate=gate)
    figure = plots.views_card(decision, views)
    (line,) = (line for line in chart(figure).lines if line.get_label() == "the gate: to be exceeded")
    own = float(decision.base_log_odds[0, decision.base_label])
    assert line.get_ydata()[0] == pytest.approx(own + threshold, abs=1e-4)
    evidence = float(decision.gate_margin) + threshold
    heights = np.stack([*drawn(figure).values()])
    assert np.nanmax(heights) == pytest.approx(own + evidence, abs=1e-4)
    assert bool(decision.kept) == (threshold > 0)
    assert f"The gate {'held' if decision.kept else 'gave way'}: evidence of {evidence:.2f} for " in words(figure)
    assert ("standardised" in chart(figure).get_ylabel()) == ("in standardised log-odds" in words(figure)) == standardised
    if decision.kept:
        assert thumbnails(figure)[0].spines["left"].get_linewidth() > 2


def test_without_a_gate_none_is_drawn():
    decision, views = looked()
    figure = plots.views_card(decision, views, names=["north", "east", "south", "west"])
    assert "; no gate." in words(figure)
    assert not [line for line in chart(figure).lines if line.get_linestyle() == "--"]
    assert f"DRQ answers {['north', 'east', 'south', 'west'][int(decision.label)]}" in words(figure)
    assert "Cost: 4 forward passes" in words(figure)
    endless, views = looked(gate=drq.views.Gate(float("inf")))
    assert not [line for line in chart(plots.views_card(endless, views)).lines if line.get_linestyle() == "--"]


def test_of_many_views_those_that_matter_are_shown():
    decision, views = looked("Rotation(90, 61)", number=2)
    assert int(decision.view) >= views_card.MOST - 3
    figure = plots.views_card(decision, views)
    pictures = thumbnails(figure)
    assert len(pictures) == views_card.MOST
    assert sum(ax.spines["left"].get_linewidth() > 2 for ax in pictures) == 1
    assert f"{views_card.MOST} of 61 views are shown." in words(figure)
    assert all(len(heights) == 61 for heights in drawn(figure).values())


def test_classes_that_take_no_part_are_no_rivals():
    decision, views = looked(classes=2)
    assert views.counted.isfinite().sum(1).tolist() == [2] * 4
    labels = [*drawn(plots.views_card(decision, views))]
    assert len(labels) == 2


def test_inputs_that_are_no_pictures_have_a_chart():
    model = torch.nn.Linear(5, 3).eval()
    robust, x = drq.DRQ(model, views="Monotone()"), torch.rand(1, 5)
    decision = robust.decide(x)
    figure = plots.views_card(decision, seen(model, robust.views, None, x, robust.bounds, decision.classes))
    assert not thumbnails(figure)
    assert len(chart(figure).get_xticks()) == len(robust.views)


def test_views_whose_logits_are_not_finite_are_left_out():
    class Lost(torch.nn.Module):
        def forward(self, x):
            return torch.where((x[:, :1, 0, 0] > 0.5), torch.nan, Quarters()(x))

    x = torch.full((1, 3, 6, 6), 0.2)
    x[..., 0, -1] = 0.9  # mirrored, it lies where the model is lost
    robust = drq.DRQ(Lost().eval(), views="Mirror() + Blur()")
    decision = robust.decide(x)
    views = seen(robust.model, robust.views, None, x, robust.bounds, decision.classes)
    figure = plots.views_card(decision, views)
    assert [np.isnan(heights).tolist() for heights in drawn(figure).values()] == [[False, True, False]] * len(drawn(figure))
    figure.draw_without_rendering()


def test_words_stay_on_the_page_and_do_not_overlap():
    long = [f"{name} with a name that is longer than most" for name in ("north", "east", "south", "west")]
    for gate in (None, drq.views.Gate(0.5, *SKEWED)):
        decision, views = looked(gate=gate)
        figure = plots.views_card(replace(decision, base_label=(decision.label + 2) % 4), views, names=long)
        figure.draw_without_rendering()
        page = figure.bbox
        said = [each for part in figure.subfigs for each in part.texts]
        said += [each for ax in figure.axes for each in (ax.title, ax.xaxis.label) if each.get_text()]
        boxes = [each.get_window_extent() for each in said]
        for number, box in enumerate(boxes):
            assert page.x0 - 1 <= box.x0, said[number].get_text()
            assert box.x1 <= page.x1 + 1, said[number].get_text()
            assert not any(box.overlaps(other) for other in boxes[:number]), said[number].get_text()


def test_marks_differ_in_shape_and_in_lightness():
    forms = [each["marker"] for each in views_card.MARKERS]
    fills = [sum(to_rgb(each.get("markerfacecolor", each["color"]))) for each in views_card.MARKERS]
    assert len({*forms}) == 3
    assert abs(fills[0] - fills[1]) > 0.5


def test_errors():
    decision, views = looked()
    several = drq.DRQ(Quarters().eval(), views=VIEWS).decide(images(3))
    refused(plots.views_card, several, views, words=["decision must be about one sample, got 3"])
    refused(plots.views_card, decision, views, names=["one"], words=["names must hold one for each of 4 classes, got 1"])
    fewer = looked("Mirror()")[1]
    late = replace(decision, view=torch.tensor([3]))
    refused(plots.views_card, late, fewer, words=["seen must be of the views of the decision, got 2 views"])
