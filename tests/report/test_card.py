"""The card that explains a decision: what is drawn are the decision's own numbers, and it can be read in grey."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from matplotlib import colormaps
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from testbed.brightness import Quarters
from testbed.explained import about, images, titled
from testbed.refusals import refused
from torch import nn

import drq
from drq.report import card as cards
from drq.report import card_content, found_points, plane_plots, plots


def rows(features=4, norm="l2", radius=0.5, **settings):
    """A linear classifier of rows, and its decision on one."""
    model = nn.Linear(features, 3)
    with torch.no_grad():
        model.weight.copy_(torch.randn(3, features, generator=torch.Generator().manual_seed(0)))
        model.bias.zero_()
    robust = drq.DRQ(model.eval(), norm, radius, bounds=None, keep_points=True, prune="none", **settings)
    return robust, robust.decide(torch.randn(1, features, generator=torch.Generator().manual_seed(1)))


def walk(figure):
    for each in figure.subfigs:
        yield from (each, *walk(each))


def texts(figure):
    own = [each.get_text() for part in (figure, *walk(figure)) for each in part.texts]
    drawn = [each.get_text() for ax in figure.axes for each in ax.texts]
    ticks = [each.get_text() for ax in figure.axes for each in (*ax.get_yticklabels(), ax.xaxis.label, ax.yaxis.label, ax.title)]
    return [*own, *drawn, *ticks]


def pictures(figure):
    """The arrays of all images, but for that of the key, in the order in which they are drawn."""
    return [ax.images[0] for ax in figure.axes if ax.images and ax.get_label() != "<colorbar>"]


@pytest.mark.parametrize("channels", [1, 3])
def test_images_are_those_of_the_decision(channels):
    _, decision = about(channels)
    drawn = [each.get_array() for each in pictures(plots.card(decision))]
    assert len(drawn) == 9
    label, second = int(decision.label), int(decision.runner_up)
    assert label != second >= 0

    def seen(tensor):
        return np.asarray(tensor[0] if channels == 1 else tensor.permute(1, 2, 0))

    np.testing.assert_allclose(drawn[0], seen(decision.x[0]), atol=1e-6)
    for place, each in enumerate((label, second)):
        explored, quantified = decision.explored[0, each], decision.quantified[0, each]
        shown = drawn[1 + 4 * place : 5 + 4 * place]
        np.testing.assert_allclose(shown[0], seen(explored), atol=1e-6)
        np.testing.assert_allclose(shown[1], seen(quantified), atol=1e-6)
        np.testing.assert_allclose(shown[2], (explored - decision.x[0]).mean(0), atol=1e-6)
        np.testing.assert_allclose(shown[3], (quantified - explored).mean(0), atol=1e-6)


@pytest.mark.filterwarnings("ignore:drq. radius should be small")
@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_all_changes_have_one_symmetric_scale(norm):
    """The radius for linf; else a third of the largest change that is drawn, so that most of the small ones are seen."""
    for radius in {"linf": (0.1, 0.2), "l2": (1, 2), "l1": (9, 12)}[norm]:
        figure = plots.card(about(norm=norm, radius=radius)[1])
        changes = [each for each in pictures(figure) if each.get_cmap().name == "cividis"]
        assert len(changes) == 4
        largest = max(float(np.abs(each.get_array()).max()) for each in changes)
        expected = radius if norm == "linf" else largest / 3
        assert 0 < largest <= 1.001 * radius
        for each in changes:
            assert each.get_clim() == pytest.approx((-expected, expected), rel=1e-5)
        assert any(card_content.format_radius(expected) in each and "one scale" in each for each in texts(figure))


def test_names_are_whole_where_there_is_room():
    """Whole above the pictures, in lines that fit, and beside the bars; shortened beside bars next to a slice."""
    robust, decision = about()
    names = [f"{name} retriever from far away" for name in ("curly", "golden", "smooth", "flat")]
    other = replace(decision, base_label=decision.runner_up)
    figure = plots.card(other, names=names)
    answer, reasons = (each.get_text() for each in figure.subfigs[0].texts)
    for text, most in ((answer, cards.ANSWER[0]), (reasons, cards.REASONS[0])):
        assert all(names[int(label)] in text.replace("\n", " ") for label in (decision.label, decision.runner_up))
        assert max(map(len, text.split("\n"))) <= most
    assert {each.get_text().split("\n")[0] for each in confidence_bars(figure).get_yticklabels()} == {*names}
    beside = confidence_bars(plots.card(decision, robust.slice(decision, pixels=4), names=names)).get_yticklabels()
    assert all(len(each.get_text().split("\n")[0]) == card_content.LONGEST for each in beside)


def confidence_bars(figure):
    (ax,) = (each for each in figure.axes if each.get_xlabel().startswith("confidence"))
    return ax


def test_bars_are_the_confidences():
    _, decision = about()
    ax = confidence_bars(plots.card(decision, names=["a", "b", "c", "d"]))
    order = ["abcd".index(each.get_text().partition("\n")[0]) for each in ax.get_yticklabels()]
    assert order[:2] == [int(decision.label), int(decision.runner_up)]
    assert sorted(order) == [0, 1, 2, 3]
    found = (decision.base_confidence, decision.explored_confidence, decision.robustness)
    for container, values in zip(ax.containers, found, strict=True):
        np.testing.assert_allclose([bar.get_width() for bar in container], values[0, order], atol=1e-6)
    assert [each.get_label() for each in ax.containers] == [*card_content.PLACES]
    logits = Quarters()(decision.x)
    torch.testing.assert_close(decision.base_confidence, logits.softmax(1))


def test_many_classes_are_cut_and_said_to_be():
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 9)).eval()
    decision = drq.DRQ(model, "linf", 0.1, keep_points=True, classes=4).decide(images(1)[:1])
    ax = confidence_bars(plots.card(decision))
    assert len(ax.get_yticklabels()) == card_content.MOST_CLASSES == 6
    assert "6 most confident of 9 classes" in ax.get_xlabel()
    notes = [each.get_text() for each in ax.texts]
    assert notes.count("not searched") == 2
    pruned = [each for each in decision.classes[0].tolist() if not decision.exact[0, each]]
    assert notes.count("pruned") == len(pruned)
    assert ("pruned" in ax.get_xlabel()) == bool(pruned)


def test_what_was_pruned_is_an_empty_bar():
    decision = about()[1]
    third = next(each for each in range(4) if each not in (int(decision.label), int(decision.runner_up)))
    exact = decision.exact.clone()
    exact[0, third] = False
    ax = confidence_bars(plots.card(replace(decision, exact=exact)))
    line = [each.get_text().partition("\n")[0] for each in ax.get_yticklabels()].index(f"class {third}")
    assert ax.containers[2][line].get_facecolor()[3] == 0
    assert ax.containers[2][0].get_facecolor()[3] == 1
    assert [each.get_text() for each in ax.texts].count("pruned") == 1


def test_words_say_the_answer_the_region_and_the_cost():
    _, decision = about(norm="linf", radius=8 / 255)
    names = ["north", "east", "south", "west"]
    said = " ".join(texts(plots.card(decision, names=names)))
    assert f"DRQ answers {names[int(decision.label)]}" in said
    assert f"margin {decision.margin.item():.3f}" in said
    assert "linf, radius 8/255" in said
    assert f"{int(decision.passes)} passes" in said
    other = replace(decision, base_label=decision.runner_up)
    assert f"where the model alone answers {names[int(decision.runner_up)]}" in " ".join(
        card_content.CardContent.from_decision(other, names).sentences()
    )
    if int(decision.label) == int(decision.base_label):
        assert "as the model alone does" in said


def test_features_are_bars_of_what_changed():
    _, decision = rows()
    names = ["height", "weight", "age", "pulse"]
    figure = plots.card(decision, features=names)
    for role, label in (("winner", int(decision.label)), ("runner-up", int(decision.runner_up))):
        ax = titled(figure, f"{role}: class {label}")
        explored, quantified = decision.explored[0, label], decision.quantified[0, label]
        for container, change in zip(ax.containers, (explored - decision.x[0], quantified - explored), strict=True):
            np.testing.assert_allclose([bar.get_width() for bar in container], change, atol=1e-6)
        assert ax.get_xlim() == pytest.approx((-1.04 * 0.5, 1.04 * 0.5))
        assert "from -0.5 to 0.5, the radius" in ax.get_xlabel()
    lines = [each.get_text() for each in titled(figure, f"winner: class {int(decision.label)}").get_yticklabels()]
    assert lines == [f"{name} = {value:.4g}" for name, value in zip(names, decision.x[0].tolist(), strict=True)]
    assert not pictures(figure)


def test_of_many_features_those_that_changed_most_are_shown():
    _, decision = rows(features=30, norm="l1", radius=4)
    label, second = int(decision.label), int(decision.runner_up)
    ax = titled(plots.card(decision), f"winner: class {label}")
    shown = {int(each.get_text().split()[1]) for each in ax.get_yticklabels()}
    points = decision.points_of
    most = torch.zeros(30)
    for each in (label, second):
        explored, quantified = (point[0] for point in points(torch.tensor([each])))
        most = torch.stack([most, (explored - decision.x[0]).abs(), (quantified - explored).abs()]).amax(0)
    assert len(shown) == found_points.MOST_FEATURES == 10
    assert most[[*shown]].min() >= max(most[each] for each in range(30) if each not in shown)


def test_without_a_radius():
    """The model alone answers; there is nothing to show but the input and its confidences."""

    class Certain(nn.Module):
        def forward(self, x):
            mean = x.mean((1, 2, 3))
            return torch.stack([5 + mean, mean.square()], 1)

    robust = drq.DRQ(Certain().eval(), keep_points=True)
    decision = robust.decide(images(1)[:1])
    assert not decision.found
    figure = plots.card(decision)
    assert len(pictures(figure)) == 1
    said = " ".join(texts(figure))
    assert "The model alone answers class 0" in said
    assert "no radius" in said
    refused(robust.slice, decision, words=["x must have a radius"])
    assert figure_is_drawn(figure)


def test_errors():
    robust, decision = about()
    several = robust.decide(images(3))
    refused(plots.card, several, words=["decision must be about one sample, got 3", "decision[i : i + 1]"])
    refused(robust.slice, several, words=["decision must be about one sample, got 3", "decision[i : i + 1]"])
    for row in range(3):
        assert figure_is_drawn(plots.card(several[row : row + 1]))
    without = drq.DRQ(Quarters().eval(), "linf", 0.1).decide(images(3)[:1])
    for call in (plots.card, robust.slice):
        refused(call, without, words=["decision must hold the points that were found", "keep_points=True"])
    refused(plots.card, decision, names=["one"], words=["names must hold one for each of 4 classes, got 1"])
    refused(plots.card, rows()[1], features=["one"], words=["features must name each of 4 features, got 1"])
    other = robust.slice(several[1:2], pixels=4)
    refused(plots.card, decision, other, words=["plane must go through the sample of the decision", "robust.slice(decision)"])
    volume = replace(decision, x=torch.zeros(1, 2, 3, 4, 5), explored=torch.zeros(1, 4, 2, 3, 4, 5))
    refused(plots.card, volume, words=["decision must be about images or rows of features"])


def figure_is_drawn(figure):
    """Nothing leaves the page, and no words lie on other words."""
    figure.draw_without_rendering()
    assert isinstance(figure, Figure)
    page = figure.bbox
    said = [each for part in (figure, *walk(figure)) for each in part.texts if each.get_text()]
    said += [each for ax in figure.axes for each in (ax.title, ax.xaxis.label, ax.yaxis.label) if each.get_text()]
    boxes = [each.get_window_extent() for each in said]
    for number, box in enumerate(boxes):
        assert page.x0 - 1 <= box.x0, said[number].get_text()
        assert box.x1 <= page.x1 + 1, said[number].get_text()
        for other in range(number):
            assert not box.overlaps(boxes[other]), (said[number].get_text(), said[other].get_text())
    return True


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_words_do_not_overlap(norm):
    long = [f"{name} with a name that is longer than most" for name in ("north", "east", "south", "west")]
    robust, decision = about(norm=norm, radius={"linf": 0.1, "l2": 1.234}[norm])
    other = replace(decision, base_label=decision.runner_up)
    for names in (None, long):
        assert figure_is_drawn(plots.card(other, robust.slice(decision, pixels=4), names=names))
        assert figure_is_drawn(plots.card(other, names=names))
    robust, decision = rows()
    assert figure_is_drawn(plots.card(decision, robust.slice(decision, pixels=4)))


def luminance(colour):
    """Relative luminance of sRGB, from 0 for black to 1 for white (WCAG 2)."""
    linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in to_rgb(colour)]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


def test_colours_can_be_told_apart_in_grey():
    """Bars by lightness, two also by hatching; regions by hatching, the first two also by lightness; marks by form."""
    ax = confidence_bars(plots.card(about()[1]))
    bars = [container[0] for container in ax.containers]
    levels = sorted(luminance(each.get_facecolor()) for each in bars)
    assert min(np.diff(levels)) > 0.2
    assert len({each.get_hatch() or "" for each in bars}) == 2
    looks = [(luminance(tint), hatch) for tint, hatch in zip(plane_plots.TINTS, plane_plots.HATCHES, strict=True)]
    assert len({hatch for _, hatch in looks}) == len(looks)
    assert abs(looks[0][0] - looks[1][0]) > 0.2  # of the winner and of the runner-up
    assert len({*cards.MARKS, "^"}) == 3
    greys = [luminance(each) for each in colormaps["cividis"](np.linspace(0, 1, 64))]
    assert min(np.diff(greys)) > 0
