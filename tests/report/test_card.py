"""The card that explains a decision: what is drawn are the decision's own numbers, and it can be read in grey."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from matplotlib import colormaps
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image
from testbed.brightness import Quarters
from testbed.refusals import refused
from torch import nn

import drq
from drq.commands import cli
from drq.planes import slices
from drq.report import card as cards
from drq.report import found_points, planes, plots, telling


def images(channels, count=3, side=6):
    return torch.rand(count, channels, side, side, generator=torch.Generator().manual_seed(channels)) * 0.8 + 0.1


def about(channels=3, norm="linf", radius=0.1, **settings):
    robust = drq.DRQ(Quarters().eval(), norm, radius, keep_points=True, prune="none", **settings)
    return robust, robust.decide(images(channels))[:1]


def rows(features=4, norm="l2", radius=0.5, **settings):
    """A linear classifier of rows, and its decision on one."""
    model = nn.Linear(features, 3)
    with torch.no_grad():
        model.weight.copy_(torch.randn(3, features, generator=torch.Generator().manual_seed(0)))
        model.bias.zero_()
    robust = drq.DRQ(model.eval(), norm, radius, bounds=None, keep_points=True, prune="none", **settings)
    return robust, robust.decide(torch.randn(1, features, generator=torch.Generator().manual_seed(1)))


def titled(figure, title):
    """The axes under a title; those in the second row of pictures follow in the same column."""
    (first,) = (each for each in figure.axes if each.get_title() == title)
    return first


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


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_all_changes_have_one_symmetric_scale(norm):
    """The radius for linf; else the geometric mean of what one feature can change and of what all 108 can together."""
    radii, share = {"linf": ((0.1, 0.2), 1), "l2": ((1, 2), 108**-0.25), "l1": ((9, 12), 108**-0.5)}[norm]
    for radius in radii:
        expected = radius * share
        figure = plots.card(about(norm=norm, radius=radius)[1])
        changes = [each for each in pictures(figure) if each.get_cmap().name == "cividis"]
        assert len(changes) == 4
        for each in changes:
            assert each.get_clim() == pytest.approx((-expected, expected), rel=1e-5)
        assert any(telling.short(expected) in each and "one scale" in each for each in texts(figure))


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
    assert [each.get_label() for each in ax.containers] == [*telling.PLACES]
    logits = Quarters()(decision.x)
    torch.testing.assert_close(decision.base_confidence, logits.softmax(1))


def test_many_classes_are_cut_and_said_to_be():
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 9)).eval()
    decision = drq.DRQ(model, "linf", 0.1, keep_points=True, classes=4).decide(images(1)[:1])
    ax = confidence_bars(plots.card(decision))
    assert len(ax.get_yticklabels()) == telling.CLASSES == 6
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
    assert f"where the model alone answers {names[int(decision.runner_up)]}" in " ".join(telling.Told.of(other, names).words())
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
    assert len(shown) == found_points.FEATURES == 10
    assert most[[*shown]].min() >= max(most[each] for each in range(30) if each not in shown)


def test_a_slice_goes_through_the_input_and_both_explored_points():
    robust, decision = about()
    plane = robust.slice(decision, pixels=8)
    torch.testing.assert_close(plane.point, torch.zeros(2, dtype=torch.float64))
    u, v = plane.axes.u.flatten(), plane.axes.v.flatten()
    torch.testing.assert_close(torch.stack([u, v]) @ torch.stack([u, v]).T, torch.eye(2), atol=1e-6, rtol=0)
    for place, label in enumerate((decision.label, decision.runner_up)):
        (point,) = decision.points_of(label)[0]
        at = plane.axes.coordinates(point[None])
        back = plane.axes.points(at[0, :1], at[0, 1:])
        torch.testing.assert_close(back[0], point, atol=1e-5, rtol=0)  # it lies in the plane
        assert at.norm().item() == pytest.approx((point - decision.x[0]).norm().item(), rel=1e-4)
        assert plane.extent[0] < at[0, 0] < plane.extent[1]
        assert plane.extent[2] < at[0, 1] < plane.extent[3]
        if place == 0:
            assert at[0, 1].item() == pytest.approx(0, abs=1e-5)
    figure = plots.card(decision, plane)
    for title in ("the model alone", "DRQ"):
        ax = titled(figure, title)
        marks = {each.get_label(): each.get_xydata()[0] for each in ax.lines if not each.get_label().startswith("_")}
        np.testing.assert_allclose(marks["input"], [0, 0], atol=1e-6)
        for role, label in (("winner", decision.label), ("runner-up", decision.runner_up)):
            expected = plane.axes.coordinates(decision.points_of(label)[0])[0]
            np.testing.assert_allclose(marks[f"explored, {role}"], expected, atol=1e-6)
        assert ax.get_xlim() == pytest.approx(plane.extent[:2])


def test_regions_of_a_slice_are_those_of_the_plane(monkeypatch):
    """Both are drawn by drq.report.plots.plane; the winner is the first class there, and no class is lost."""
    robust, decision = about()
    plane, drawn = robust.plane(decision.x, *slices.directions(decision), (-1, 4, -1, 4), 8), {}
    assert 0 < plane.inside.sum() < 64
    monkeypatch.setattr(planes, "plane", lambda plane, _, show: drawn.update({show: plane}))
    plots.card(decision, plane)
    assert set(drawn) == {"base", "drq"}
    for name in ("label", "base_label"):
        before, after = getattr(plane, name), getattr(drawn["drq"], name)
        assert torch.equal(after == 0, before == decision.label)
        assert torch.equal(after == 1, before == decision.runner_up)
        assert torch.equal(after == -1, before == -1)


def test_a_slice_answers_beyond_the_input_box_at_its_edge():
    robust = drq.DRQ(Quarters().eval(), "linf", 0.1, keep_points=True)
    x = images(1)[:1].round()  # black and white: every direction but towards the explored points leaves the box
    decision = robust.decide(x)
    plane = robust.slice(decision, pixels=6)
    assert plane.inside.all()
    points = plane.axes.points(plane.across, plane.up).clamp(0, 1)
    assert torch.equal(plane.label.flatten(), robust.decide(points).label)
    assert not robust.plane(x, plane.axes.u, plane.axes.v, plane.extent, 6).inside.all()


@pytest.mark.parametrize("case", ["no radius", "parallel", "one of them is the input", "no runner-up"])
def test_directions_that_add_nothing(case):
    """A random direction stands in: always the same, orthogonal to the other and of length 1."""
    decision = about()[1]
    explored, label, second = decision.explored.clone(), int(decision.label), int(decision.runner_up)
    if case == "no radius":
        explored[:] = decision.x[:, None]
    if case == "parallel":
        explored[0, second] = decision.x[0] - 2 * (explored[0, label] - decision.x[0])
    if case == "one of them is the input":
        explored[0, label] = decision.x[0]
    if case == "no runner-up":
        explored[0, second] = torch.nan
    changed = replace(decision, explored=explored)
    u, v = (each.flatten() for each in slices.directions(changed))
    torch.testing.assert_close(torch.stack([u @ u, v @ v, u @ v]), torch.tensor([1.0, 1, 0], dtype=torch.float64))
    assert torch.equal(v, slices.directions(changed)[1].flatten())
    kept = {"parallel": label, "no runner-up": label, "one of them is the input": second}
    if case in kept:
        offset = (explored[0, kept[case]] - decision.x[0]).flatten().double()
        along = torch.stack([u @ offset, v @ offset])
        assert along.norm().item() == pytest.approx(offset.norm().item(), rel=1e-5)


def test_a_line_has_no_slices():
    robust = drq.DRQ(nn.Linear(1, 2).eval(), "l2", 0.1, keep_points=True)
    refused(robust.slice, robust.decide(torch.tensor([[0.5]])), words=["decision must be about at least 2 features, got 1"])


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
    looks = [(luminance(tint), hatch) for tint, hatch in zip(planes.TINTS, planes.HATCHES, strict=True)]
    assert len({hatch for _, hatch in looks}) == len(looks)
    assert abs(looks[0][0] - looks[1][0]) > 0.2  # of the winner and of the runner-up
    assert len({*cards.MARKS, "^"}) == 3
    greys = [luminance(each) for each in colormaps["cividis"](np.linspace(0, 1, 64))]
    assert min(np.diff(greys)) > 0


MODEL = "python:testbed.brightness:quarters"


@pytest.fixture
def command(capfd):
    def run(*arguments):
        status = cli.main(["predict", *arguments, "--model", MODEL])
        return status, *capfd.readouterr()

    return run


@pytest.fixture
def photos(tmp_path):
    paths = []
    for number, pixels in enumerate(images(3)):
        paths.append(str(tmp_path / f"photo{number}.png"))
        Image.fromarray((pixels.permute(1, 2, 0) * 255).to(torch.uint8).numpy()).save(paths[-1])
    return paths


@pytest.mark.parametrize("ending", ["png", "pdf", "svg"])
def test_the_command_draws_a_card(command, photos, tmp_path, ending):
    path = tmp_path / "cards" / f"why.{ending}"
    status, output, errors = command(photos[0], "--explain", str(path))
    assert (status, errors) == (0, "")
    assert str(path) in output.replace("\n", "")
    begins = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}
    assert path.read_bytes().startswith(begins[ending])
    if ending == "png":
        with Image.open(path) as picture:
            assert picture.width == round(200 * cards.WIDTH)


def test_the_command_draws_a_slice(command, photos, tmp_path, monkeypatch):
    asked = []
    real = drq.DRQ.slice
    monkeypatch.setattr(drq.DRQ, "slice", lambda self, decision, pixels: asked.append(pixels) or real(self, decision, pixels))
    paths = [tmp_path / "plain.png", tmp_path / "sliced.png"]
    assert command(photos[0], "--explain", str(paths[0]))[0] == 0
    assert command(photos[0], "--explain", str(paths[1]), "--slice", "5")[0] == 0
    assert asked == [5]
    assert paths[0].read_bytes() != paths[1].read_bytes()
    for wrong in (["--slice", "5"], ["--slice", "1", "--explain", str(paths[0])]):
        status, _, errors = command(photos[0], *wrong)
        assert status == 2
        assert "--slice must be at least 2, beside --explain" in errors


def test_the_command_numbers_cards_of_several_pictures(command, photos, tmp_path):
    broken = tmp_path / "broken.png"
    broken.write_text("no picture")
    path = tmp_path / "why.png"
    status, output, _ = command(photos[0], str(broken), photos[1], "--explain", str(path), "--json")
    found = json.loads(output)
    assert status == 2
    assert [each.get("card") for each in found] == [str(tmp_path / "why-1.png"), None, str(tmp_path / "why-3.png")]
    assert [each.name for each in sorted(tmp_path.glob("why*"))] == ["why-1.png", "why-3.png"]
    assert "decision" not in found[0]


def test_the_command_without_a_card_keeps_no_points(command, photos, monkeypatch):
    kept = []
    decide = drq.DRQ.decide
    monkeypatch.setattr(drq.DRQ, "decide", lambda self, x: kept.append(self.keep_points) or decide(self, x))
    command(photos[0])
    assert kept == [False]


def test_what_the_command_cannot_draw_to(command, photos, tmp_path):
    folder = tmp_path / "folder.png"
    folder.mkdir()
    blocked = tmp_path / "file"
    blocked.write_text("")
    for path, words in (
        ("why.txt", "--explain must end in .png, .pdf or .svg, got 'why.txt'"),
        (str(folder), "--explain must name a file that can be written"),
        (str(blocked / "why.png"), "--explain must name a file that can be written"),
    ):
        status, _, errors = command(photos[0], "--explain", path)
        assert status == 2
        assert words in errors
        assert errors.count("\n") == 1
