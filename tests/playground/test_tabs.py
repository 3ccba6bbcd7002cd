"""What stands behind the tabs of ``drq play``, without a browser or Gradio: scenes, shifts, uploads, runs and their limits."""

import asyncio
import io
import math
import re
import struct
import sys
import threading
import time
import zlib

import numpy as np
import pytest
import torch
from PIL import Image
from testbed.playing import BROKEN, REPAIRED, png, run, uploads
from testbed.synthetic import records
from torch import nn

import drq
from drq.commands import cli
from drq.errors import InputError
from drq.playground import cards, image_tab, markup, pictures, plane_tab, run_tab, runs, shifts
from drq.playground.answers import answered, preview
from drq.playground.guard import BYTES, Guard
from drq.playground.journey import journey
from drq.playground.panels import WHOLE, around, panels
from drq.playground.points import DATA, MODELS, classifier, points
from drq.playground.scene import Settings, defended_regions, grid, resolution, scene
from drq.playground.shifts import SHIFTS, shifted
from drq.playground.watching import Desk, Stopped, Watch, Watched, followed


@pytest.mark.parametrize("data", DATA)
def test_points_fill_the_square_and_models_learn_them(data):
    given = points(data)
    assert given.x.min() >= 0
    assert given.x.max() <= 1
    for model in ("RBF support vector machine", "Neural network"):
        assert (classifier(model, data)(given.x).argmax(1) == given.y).float().mean() > 0.85
    assert classifier("Neural network", data) is classifier("Neural network", data)


@pytest.mark.parametrize("radius", [0.12, drq.Calibrated(0.6)])
@pytest.mark.parametrize("norm", ["l2", "linf", "l1"])
def test_the_journey_ends_where_drq_decides(norm, radius):
    robust = drq.DRQ(classifier("RBF support vector machine", "Blobs"), norm, radius, keep_points=True, prune="none")
    x = torch.tensor([[0.55, 0.45]])
    went, truth = journey(robust, x), robust.decide(x)
    for name in ("label", "base_label", "radius", "reached", "passes", "robustness", "explored", "quantified"):
        torch.testing.assert_close(getattr(went.decision, name), getattr(truth, name), equal_nan=True, rtol=1e-5, atol=1e-6)
    assert (went.calibration is None) == isinstance(radius, float)
    for path, found in ((went.exploration, truth.explored), (went.quantification, truth.quantified)):
        torch.testing.assert_close(path.points[0], path.best[0])  # they begin at the start
        reached = path.counts[-1]
        assert torch.equal(reached, truth.reached[0, path.labels])
        torch.testing.assert_close(path.best[-1][reached], found[0, path.labels][reached], rtol=1e-5, atol=1e-6)
        assert len(path.points) == 21


def test_every_step_stays_in_its_ball():
    went = journey(Settings(radius=0.1).robust(0.1), torch.tensor([[0.3, 0.7]]))
    assert (went.exploration.points - went.x).norm(dim=-1).max() <= 0.1 + 1e-6
    assert (went.quantification.points - went.quantification.points[0]).norm(dim=-1).max() <= 0.05 + 1e-6


def test_a_scene_is_what_drq_says():
    found = scene(Settings(), *plane_tab.START)
    truth = Settings().robust(None).decide(torch.tensor([plane_tab.START]))
    assert int(truth.label) != int(truth.base_label)  # the page opens with something to see
    assert int(found.journey.decision.label) == int(truth.label)
    assert "DRQ corrects the classifier here" in plane_tab.shown(Settings(), *plane_tab.START)[1]
    pixels = len(found.defended.label)
    everywhere = Settings().robust(found.radius).decide(grid(pixels))
    assert torch.equal(found.defended.label.flatten(), everywhere.label)


def test_settings_change_the_scene():
    at = (0.45, 0.5)
    drawn = {plane_tab.shown(each, *at)[0] for each in (Settings(), Settings(radius=0.2), Settings(radius=0.2, norm="linf"))}
    drawn |= {plane_tab.shown(each, *at)[0] for each in (Settings(radius=0.2, alpha=0.2), Settings(radius=0.2, steps=5))}
    drawn |= {plane_tab.shown(Settings(data="Moons"), *at)[0], plane_tab.shown(Settings(model="Logistic regression"), *at)[0]}
    assert len(drawn) == 7


def test_frames_lead_through_the_searches():
    found = scene(Settings(), *plane_tab.START)
    assert found.frames[0] == ("calibration", 0)
    assert found.frames[-1] == ("quantification", 20)
    assert [stage for stage, _ in found.frames] == ["calibration"] * 21 + ["exploration"] * 21 + ["quantification"] * 21
    first, middle, last = (panels(found, frame) for frame in (0, 30, 62))
    assert first.count("most confident, class") == 0
    assert first.count("<title>") < middle.count("<title>") < last.count("<title>")
    drawn = [panels(found, frame) for frame in range(63)]
    assert len(set(drawn)) == 63  # every step is another picture
    assert panels(found) == last
    assert panels(found, 99) == last  # a slider that has not heard of the new frames yet


def test_without_a_radius_the_classifier_answers():
    found = scene(Settings(model="Logistic regression", confidence=0.999999), 0.02, 0.02)
    assert not found.found
    assert found.defended is found.base
    assert around(found) == WHOLE
    drawn, told, last, _ = plane_tab.shown(found.settings, 0.02, 0.02)
    assert "found no radius" in told
    assert last == len(found.frames) - 1 == 20
    assert drawn.count("<figure") == 4


def test_panels_cover_the_square():
    """The areas of all classes add up to the whole panel."""
    drawn = panels(scene(Settings("Blobs", "Neural network", radius=0.1), 0.5, 0.5))
    boundary = drawn[drawn.index("(d)") :]
    areas = re.findall(r'<path fill="#\w+" d="([^"]+)"', boundary)
    assert len(areas) == 3
    total = 0.0
    for area in areas:
        for ring in area.split("Z")[:-1]:
            x, y = np.array([float(each) for each in ring[1:].split()]).reshape(-1, 2).T
            total += (np.roll(x, -1) * y - x * np.roll(y, -1)).sum() / 2
    assert abs(total) == pytest.approx(400 * 400, rel=0.03)


def test_a_click_is_where_the_panel_says():
    found = scene(Settings(), *plane_tab.START)
    window = around(found)
    assert window.width < 1
    corner = window.place(np.array([[window.left, window.bottom], [window.left + window.width, window.bottom + window.width]]))
    assert np.allclose(corner, [[0, 400], [400, 0]])


@pytest.mark.parametrize("wrong", [{"radius": 3.0}, {"radius": float("nan")}, {"steps": 0}, {"steps": 10**6}, {"norm": "l7"}])
def test_settings_beyond_the_limits_are_refused(wrong):
    with pytest.raises(InputError):
        Settings(**wrong)


def test_a_point_outside_is_refused():
    drawn, told, _, _ = plane_tab.shown(Settings(), 3.0, 0.5)
    assert drawn == ""
    assert 'role="alert"' in told
    assert "point must lie in the unit square" in told


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("data", DATA)
def test_an_update_takes_less_than_a_second(data, model):
    """On one core: what counts is the time that the processor spends on it, so that whoever else uses the machine does not."""
    classifier(model, data)
    times = []
    for number in range(3):
        defended_regions.cache_clear()
        began = time.thread_time()
        plane_tab.shown(Settings(data, model, confidence=0.9), 0.4 + number / 50, 0.6)
        times.append(time.thread_time() - began)
    assert max(times) < 1


def test_more_classes_and_steps_are_drawn_coarser():
    sizes = [
        resolution(Settings(radius=0.1, steps=steps, data=data)) for data, steps in (("Moons", 5), ("Moons", 40), ("Blobs", 40))
    ]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[2] >= 24


@pytest.mark.parametrize(
    "name", [name for name, each in SHIFTS.items() if each.attack is None and name not in ("nothing", "frost")]
)
def test_shifts_change_a_picture_within_its_bounds(name):
    picture = pictures.offered(pictures.DIGITS if name in ("rotation", "translation") else pictures.MADE)[0]
    found = preview(picture, name, SHIFTS[name].start)
    assert found.image.shape == picture.image.shape
    assert 0 <= found.image.min() <= found.image.max() <= 1
    assert not torch.equal(found.image, picture.image)
    assert found.decision is None


def test_strength_matters_and_has_limits():
    picture = pictures.offered(pictures.MADE)[0]
    far = [(preview(picture, "gaussian noise", severity).image - picture.image).norm() for severity in (1, 5)]
    assert far[0] < far[1]
    for name, strength in (("gaussian noise", 9.0), ("rotation", float("nan")), ("white noise", -1.0)):
        with pytest.raises(InputError, match="strength must lie between"):
            preview(picture, name, strength)
    with pytest.raises(InputError, match="steps must lie between"):
        answered(picture, "attack: PGD, linf", 1.0, 10**9, Watch())
    with pytest.raises(InputError, match="shift must be one of the list"):
        preview(picture, "rm -rf", 1.0)


@pytest.mark.parametrize("name", [name for name, each in SHIFTS.items() if each.attack is not None])
def test_attacks_lower_the_confidence_and_count_their_passes(name):
    picture, watch = pictures.offered(pictures.DIGITS)[0], Watch()
    model, card = pictures.classifier("digits"), pictures.card("digits")
    robust = drq.DRQ(Watched(model, watch), **card.explored)
    x, y = picture.image[None], torch.tensor([picture.label])
    changed = shifted(name, robust, card, x, y, 1.0, 5, watch)
    assert watch.passes > 0
    before, after = (model(each).softmax(1)[0, picture.label] for each in (x, changed))
    assert after < before or "DRQ" in name
    if "l2" not in name:
        assert (changed - x).abs().max() <= card.radius + 1e-6


def test_the_answers_are_those_of_the_model_and_of_drq():
    picture = pictures.offered(pictures.DIGITS)[3]
    found = answered(picture, "nothing", 0.5, 1, Watch())
    model, x = pictures.classifier("digits"), picture.image[None]
    truth = drq.DRQ(model, **pictures.card("digits").explored).decide(x)
    assert found.standard == int(model(x).argmax())
    assert int(found.decision.label) == int(truth.label)
    shown = image_tab.result(found)
    assert f"{int(truth.passes)} passes of the model" in shown
    assert shown.count('class="answer"') == 2


def test_a_slice_is_asked_for_and_drawn_in_the_card():
    picture, watch = pictures.offered(pictures.DIGITS)[3], Watch()
    found = answered(picture, "nothing", 0.5, 1, watch, 4)
    assert found.slice.label.shape == (4, 4)
    assert watch.passes > 16  # every point was decided on
    assert "4 x 4 images" in watch.what
    assert len(cards.card(found.decision, found.names, found.slice)) > len(cards.card(found.decision, found.names))
    for wrong in (1, 10**6):
        with pytest.raises(InputError, match="slice must be 0, or lie between"):
            answered(picture, "nothing", 0.5, 1, Watch(), wrong)


def test_only_models_that_are_offered_are_loaded():
    picture = pictures.offered(pictures.MADE)[0]
    assert pictures.classifiers(pictures.MADE)[0] == picture.model == "cifar10-small"
    assert pictures.seen_by(picture, "cifar10-linf").model == "cifar10-linf"
    for name in ("digits", "python:os:system", "file:/etc/passwd", ""):
        with pytest.raises(InputError, match="model must be one of cifar10-augment"):
            pictures.seen_by(picture, name)
    with pytest.raises(InputError, match="model must be one of"):
        pictures.uploaded(png(4, 4, b"\0" * 52), "python:os:system")


@pytest.mark.parametrize(("norm", "radius"), [("linf", 8 / 255), ("l2", 0.5), (None, None)])
def test_the_strength_of_an_attack_counts_radii_of_the_training(norm, radius):
    """In the norm of the training it is that radius; in the other one, balls have the same volume, by Stirling's formula."""
    card, x = drq.models.Card("mine", norm=norm, radius=radius), torch.zeros(1, 3, 32, 32)
    found = {each: shifts._radius(card, x, 2.0, each) for each in ("linf", "l2")}
    assert found[norm or "linf"] == pytest.approx(2 * (radius or 8 / 255))
    size = x.numel()
    volume = size / 2 * math.log(math.pi) - math.lgamma(size / 2 + 1) + size * math.log(found["l2"])
    assert volume / size == pytest.approx(math.log(2 * found["linf"]), abs=0.01)


def test_the_drawn_pictures_are_what_they_say():
    found = [preview(each, "nothing", 0.5) for each in pictures.offered(pictures.MADE)]
    right = [each.standard == each.picture.label for each in found]
    assert sum(right) >= 4  # of five: the model in the box is unsure about the frog


@pytest.mark.parametrize("name", uploads())
def test_hostile_uploads_are_refused_in_one_line(name):
    with pytest.raises(InputError) as refusal:
        pictures.uploaded(uploads()[name])
    assert "\n" not in str(refusal.value)


def test_a_bomb_is_refused_before_it_is_decoded():
    """A small file that would fill gigabytes; reading its header takes no time and no memory."""
    began = time.perf_counter()
    with pytest.raises(InputError, match="pixels"):
        pictures.uploaded(uploads()["bomb.png"])
    assert time.perf_counter() - began < 1


def test_a_picture_has_fewer_pixels_than_others_may_have():
    """Many people may bring pictures at once."""
    with pytest.raises(InputError, match="at most 16,000,000 pixels"):
        pictures.uploaded(png(5000, 5000, b"\0"))


def test_a_good_upload_is_seen_as_the_model_sees_it():
    held = io.BytesIO()
    Image.new("RGB", (300, 200), (255, 0, 0)).save(held, "JPEG")
    found = pictures.uploaded(held.getvalue())
    assert found.image.shape == (3, 32, 32)
    assert found.label is None
    assert found.image[0].min() > 0.9


def test_work_can_be_watched_and_stopped():
    watch, model = Watch(), nn.Linear(2, 2)
    watched = Watched(model, watch)

    def work():
        watch.begin("long work", 10**6)
        for _ in range(5000):
            watched(torch.zeros(3, 2))
            time.sleep(0.001)
        return "to the end"

    going = followed(work, watch)
    news = [next(going), next(going)]
    assert news[-1].passes % 3 == 0
    assert news[-1].passes > 0
    watch.stop()
    assert [*going] == []  # it ends at once
    with pytest.raises(Stopped):
        watched(torch.zeros(1, 2))


def test_who_goes_away_leaves_no_work_behind():
    watch = Watch()
    ended, reached = threading.Event(), []

    def work():
        try:
            for _ in range(5000):
                watch.count(1)
                time.sleep(0.001)
            reached.append("the end")
        finally:
            ended.set()

    going = followed(work, watch)
    next(going)
    going.close()
    assert ended.wait(5)
    assert reached == []


def test_everybody_stops_their_own_work():
    desk = Desk()
    mine, yours = desk.take("me"), desk.take("you")
    assert desk.stop("me")
    assert mine.stopped
    assert not yours.stopped
    assert not desk.stop("me")
    again = desk.take("you")  # new work ends the old
    assert yours.stopped
    assert not again.stopped
    desk.leave("you", yours)  # the old one, which must not take the new one along
    assert desk.stop("you")


def test_an_attack_is_cancelled_on_the_way():
    desk, picture = Desk(), pictures.offered(pictures.DIGITS)[0]
    news = []
    for status, result, _ in image_tab.asked(picture, "attack: PGD, linf", 1.0, 500, 0, "me", desk):
        news.append(status)
        assert result is None
        desk.stop("me")
    assert "<progress" in news[0]
    assert "Cancelled" in news[-1]


def test_a_mistake_in_the_work_is_told():
    (*_, (status, result, _)) = image_tab.asked(pictures.offered(pictures.DIGITS)[0], "rotation", 1e9, 1, 0, "me", Desk())
    assert 'role="alert"' in status
    assert result is None


@pytest.fixture
def folder(tmp_path):
    """A folder with a run in it, and something outside of it."""
    run(tmp_path / "runs" / "deep" / "one")
    run(tmp_path / "outside")
    return tmp_path / "runs"


def test_runs_are_found_and_opened(folder):
    assert runs.listed(folder) == ["deep/one"]
    found = runs.opened(folder, "deep/one")
    assert len(found.records) == 240
    assert run_tab.group_names(found) == ["clean, DRQ linf", "PGD, DRQ linf"]


@pytest.mark.parametrize(
    "name",
    [
        "",
        "..",
        "../outside",
        "deep/../../outside",
        "/etc",
        "deep/one/../../../outside",
        "a\0b",
        "..\\outside",
        "deep/../deep/one",
    ],
)
def test_paths_out_of_the_folder_are_refused(folder, name):
    with pytest.raises(InputError, match="run must be"):
        runs.opened(folder, name)
    with pytest.raises(InputError, match="run must be"):
        runs.opened(folder, str(folder.parent / "outside"))


def test_links_out_of_the_folder_are_refused(folder):
    (folder / "link").symlink_to(folder.parent / "outside")
    with pytest.raises(InputError, match="stays within the folder"):
        runs.opened(folder, "link")
    (folder / "circle").symlink_to(folder / "circle")
    with pytest.raises(InputError, match="stays within the folder"):
        runs.opened(folder, "circle")
    (folder / "here").symlink_to(folder / "deep" / "one")
    assert len(runs.opened(folder, "here").records) == 240  # one that stays inside is fine
    (folder / "deep" / "one" / "images" / "0001-0000000.npz").symlink_to(folder.parent / "outside" / "run.json")
    with pytest.raises(InputError, match="stays within the folder"):
        runs.opened(folder, "deep/one")


def test_a_damaged_run_is_refused(folder):
    (folder / "deep" / "one" / "records" / "0000.parquet").write_bytes(b"PAR1 nonsense")
    with pytest.raises(InputError):
        runs.opened(folder, "deep/one")
    (folder / "empty").mkdir()
    with pytest.raises(InputError):
        runs.opened(folder, "empty")


def test_a_run_is_read_again_once_it_changed(folder):
    before = runs.opened(folder, "deep/one")
    assert runs.opened(folder, "deep/one") is before
    time.sleep(0.02)
    records(30, models=("digits",), data=("digits",)).write_parquet(folder / "deep" / "one" / "records" / "0000.parquet")
    assert len(runs.opened(folder, "deep/one").records) == 30 * 3 * 2


@pytest.mark.parametrize("group", [0, 1])
def test_filters_find_what_was_repaired_and_broken(folder, group):
    found = runs.opened(folder, "deep/one")
    rows = {which: found.samples(found.groups[group], which) for which in runs.FILTERS}
    right, base = ((rows["all"][name] == rows["all"]["label"]).to_numpy() for name in ("prediction", "base_prediction"))
    assert len(rows["all"]) == 60
    assert rows["repaired"]["index"].to_list() == (right & ~base).nonzero()[0].tolist() == REPAIRED
    assert rows["broken"]["index"].to_list() == (~right & base).nonzero()[0].tolist() == BROKEN
    named = run_tab.sample_names(found, group, "repaired")
    assert [index for _, index in named] == rows["repaired"]["index"].to_list()
    with pytest.raises(InputError, match="filter must be"):
        found.samples(found.groups[0], "others")


def test_the_numbers_of_a_run_are_those_of_its_records(folder):
    found = runs.opened(folder, "deep/one")
    shown = run_tab.overview(found)
    rows = found.records.filter(threat="PGD", defence="DRQ linf")
    share = 100 * (rows["prediction"] == rows["label"]).mean()
    assert f"<td>{share:.1f}</td>" in shown
    assert "data:image/svg+xml" in shown


def test_names_of_a_run_have_no_effect(folder):
    told = run_tab.told(runs.opened(folder, "deep/one"))
    assert "<b>" not in told
    assert "&lt;b&gt;Bold" in told
    assert markup.text('"><script>') == "&quot;&gt;&lt;script&gt;"
    assert len(markup.text("x" * 500)) == markup.LONGEST
    assert "<i>" not in markup.refused("<i>")


def test_a_sample_shows_its_image_and_its_record(folder):
    found = runs.opened(folder, "deep/one")
    kept, lost = run_tab.sample(found, 0, 1), run_tab.sample(found, 0, 50)
    assert "Card of the decision of DRQ" in kept
    assert "Card" not in lost
    row = found.samples(found.groups[0]).filter(index=1).row(0, named=True)
    assert torch.equal(found.image(row), drq.load_data("digits", limit=2)[1][0])
    assert f"<td>{row['prediction']}</td>" in kept
    with pytest.raises(InputError, match="sample must be one of the list"):
        run_tab.sample(found, 0, 10**6)


def test_only_classifiers_of_the_package_have_classes():
    """A run may name anything, a file of the package that is no classifier, too."""
    assert [cards.names_of(name) is not None for name in ("digits", "cifar10-small", "cifar10-tiny")] == [True] * 3
    assert [cards.names_of(name) for name in ("cifar10-denoiser", "cifar10-linf", "python:os:system")] == [None] * 3


def test_a_run_makes_nobody_load_a_model_or_run_code(tmp_path, monkeypatch):
    """Its names are words of whoever wrote it: a function that they name would leave a mark."""
    image, mark = torch.rand(1, 8, 8), tmp_path / "ran"
    (tmp_path / "left_behind.py").write_text(f"def load(*_, **__):\n    open({str(mark)!r}, 'w').close()\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert cards.decided("digits", {"defence": "drq", "norm": "linf", "radius": 0.3}, image) is not None
    assert cards.decided("python:left_behind:load", {"defence": "drq"}, image) is None
    assert cards.decided("digits", {"defence": "python:left_behind:load"}, image) is None
    assert cards.decided("digits", {"defence": "drq", "norm": "l9"}, image) is None
    assert not mark.exists()


def reply(scope, local=True):
    """The status and the headers that the guard sends for a request."""
    sent = []

    async def app(_, __, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message):
        sent.append(message)

    asyncio.run(Guard(app, local)({"type": "http", **scope}, None, send))
    return sent[0]["status"], dict(sent[0]["headers"])


@pytest.mark.parametrize(
    ("host", "status"), [("127.0.0.1:7860", 200), ("localhost", 200), ("[::1]:80", 200), ("evil.example:7860", 421), ("", 421)]
)
def test_another_host_is_refused(host, status):
    assert reply({"headers": [(b"host", host.encode())]})[0] == status
    assert reply({"headers": [(b"host", host.encode())]}, local=False)[0] == 200


def test_large_requests_are_refused_and_pages_load_nothing_from_elsewhere():
    host = (b"host", b"localhost")
    assert reply({"headers": [host, (b"content-length", str(BYTES + 1).encode())]})[0] == 413
    assert reply({"headers": [host, (b"content-length", b"-1")]})[0] == 413
    status, headers = reply({"headers": [host, (b"content-length", b"10")]})
    assert status == 200
    assert b"default-src 'self'" in headers[b"content-security-policy"]
    assert b"http" not in headers[b"content-security-policy"]


def test_a_request_that_hides_its_size_is_cut_off():
    seen = []

    async def app(_, receive, __):
        while (message := await receive())["type"] == "http.request":
            seen.append(len(message["body"]))

    parts = iter([{"type": "http.request", "body": b"0" * 2**20, "more_body": True}] * 50)

    async def receive():
        return next(parts, {"type": "http.disconnect"})

    asyncio.run(Guard(app, True)({"type": "http", "headers": [(b"host", b"localhost")]}, receive, None))
    assert sum(seen) <= BYTES


def test_the_command_says_what_is_missing(monkeypatch, capfd, tmp_path):
    monkeypatch.setitem(sys.modules, "gradio", None)
    assert cli.main(["play", str(tmp_path), "--no-browser"]) == 2
    error = capfd.readouterr().err
    assert error.count("\n") == 1
    assert "pip install 'decision-region-quantification[app]'" in error


@pytest.mark.parametrize("arguments", [["nowhere-at-all"], [".", "--port", "70000"], [".", "--port", "0"]])
def test_the_command_refuses_mistakes_in_one_line(arguments, capfd):
    assert cli.main(["play", "--no-browser", *arguments]) == 2
    assert capfd.readouterr().err.count("\n") == 1


def test_the_page_of_a_bomb_is_small():
    """So that the test of the bomb means something."""
    data = uploads()["bomb.png"]
    assert len(data) < 100_000
    width, height = struct.unpack(">II", data[16:24])
    assert width * height > 10**9
    assert zlib.crc32(data[12:29]) == struct.unpack(">I", data[29:33])[0]
