"""Answers about pictures by their views: with the gate of a model's card, with one learnt from a folder, and without any."""

import csv
import io
import json
import math
import re

import pytest
import torch
from PIL import Image
from testbed.brightness import quarters
from testbed.explained import images
from testbed.refusals import refused

import drq
from drq.serving import folder_gate
from drq.serving.default_model import choose_model
from drq.serving.predict import Predictor

MODEL = "python:testbed.brightness:quarters"
UNGATED = "drq: quarters has no gate for {}, so that its answers are ungated: --gate FOLDER learns one from pictures of yours\n"


def save(pixels, path):
    Image.fromarray((pixels.permute(1, 2, 0) * 255).round().to(torch.uint8).numpy()).save(path)
    return str(path)


@pytest.fixture
def photos(tmp_path):
    return [save(pixels, tmp_path / f"photo{number}.png") for number, pixels in enumerate(images(3, count=4))]


@pytest.fixture
def album(tmp_path):
    (tmp_path / "album").mkdir()
    pixels = torch.rand(120, 3, 6, 6, generator=torch.Generator().manual_seed(7))
    for number, each in enumerate(pixels):
        save(each, tmp_path / "album" / f"{number:03}.png")
    return tmp_path / "album"


def read(paths):
    return torch.stack([quarters().card.view(drq.images.read(path)) for path in paths])


def test_the_answer_is_that_of_drq_over_views(photos):
    predictor = Predictor(MODEL, views="Rotation(90, 3) + Mirror()")
    decision = drq.DRQ(quarters(), views="Rotation(90, 3) + Mirror()").decide(read(photos))
    names = ("the input", "rotated by -90 degrees", "rotated by 90 degrees", "mirrored")
    for number, path in enumerate(photos):
        found = predictor(path)
        assert found.answer == "abcd"[decision.label[number]]
        assert found.view == names[decision.view[number]]
        assert (found.views, found.passes, found.forward_passes) == (4, 4, 4)
        assert (found.norm, found.radius, found.kept, found.gate_margin) == (None, 0, False, None)
        assert found.margin == pytest.approx(float(decision.margin[number]), abs=1e-6)


def test_a_preset_without_a_gate_says_so_in_one_line(photos, command):
    for options, views in ((["--preset", "upright"], "preset upright"), (["--views", "Mirror()"], "these views")):
        status, output, errors = command(photos[0], "--model", MODEL, *options)
        assert (status, errors) == (0, UNGATED.format(views))
        assert "forward passes of the model" in output
        assert "Robustness: at the best view of a class" in output
        assert command(photos[0], "--model", MODEL, *options, "--quiet")[2] == ""
    assert "Views: 2; the answer comes from " in output
    assert "Explored" not in output


def test_a_model_of_the_package_brings_its_gate(picture, command):
    status, output, errors = command(picture(120), "--model", "cifar10-tiny", "--preset", "nature", "--json")
    gate = drq.load_model("cifar10-tiny").card.gates["nature"]
    assert (status, errors) == (0, f"drq: the gate of cifar10-tiny: {gate}\n")
    assert "of new inputs of this kind at most 6.3%, with 95 % confidence" in errors
    (found,) = json.loads(output)
    assert found["views"] == found["passes"] == found["forward_passes"] == 12
    assert found["kept"] == (found["gate_margin"] <= 0)
    for preset in ("paper", "upright"):  # views that are given are taken as they are
        given = Predictor("cifar10-tiny", preset=preset, views="Rotation(90, 13)")
        assert given.robust.gate is None
        assert given.promise.startswith("cifar10-tiny has no gate for these views")


def test_a_gate_is_learnt_from_a_folder(photos, album, command):
    options = ["--model", MODEL, "--preset", "upright", "--gate", str(album)]
    status, output, errors = command(*photos, *options, "--json")
    assert status == 0
    said = re.fullmatch(
        r"drq: a gate learnt from 120 pictures in .*album: (\d) of 120 answers change \(.*%\); of new inputs .* confidence\n",
        errors,
    )
    predictor = Predictor(MODEL, preset="upright", gate=str(album))
    x = read(sorted(album.iterdir()))
    expected = drq.DRQ(quarters(), **drq.preset("upright")).gated(x, 0.06)
    assert predictor.robust.gate == expected.gate
    changed = int((predictor.robust.decide(x).label != predictor.robust.decide(x).base_label).sum())
    assert changed == int(said[1]) == expected.gate.changed <= 7
    decision = expected.decide(read(photos))
    for found, each in zip(json.loads(output), decision, strict=False):
        assert found["kept"] == bool(each.kept)
        margin = float(each.gate_margin)  # infinite where no gate holds, which JSON cannot say
        assert found["gate_margin"] == (pytest.approx(margin, abs=1e-4) if math.isfinite(margin) else None)
    assert Predictor(MODEL, preset="nature", gate=str(album)).robust.gate.changed <= 0.05 * 120


def test_a_gate_works_for_the_ball_too(photos, album):
    predictor = Predictor(MODEL, radius=0.1, gate=str(album))
    expected = drq.DRQ(quarters(), "linf", 0.1).gated(read(sorted(album.iterdir())), 0.05)
    assert predictor.robust.gate == expected.gate
    assert predictor(photos[0]).views == 0
    assert predictor(photos[0]).view is None


def test_few_pictures_promise_little_and_of_many_some_are_looked_at(photos, album, command, monkeypatch, recwarn):
    for number in range(12, 120):
        (album / f"{number:03}.png").unlink()
    _, _, errors = command(photos[0], "--model", MODEL, "--views", "Mirror()", "--gate", str(album))
    assert errors.count("\n") == 1
    assert errors.startswith(f"drq: a gate learnt from 12 pictures in {album} (100 would promise more): 0 of 12")
    assert not recwarn
    monkeypatch.setattr(folder_gate, "MOST", 5)
    some = Predictor(MODEL, views="Mirror()", gate=str(album))
    assert some.robust.gate.inputs == 5
    assert some.promise.startswith(f"a gate learnt from 5 of 12 pictures in {album}")


def test_csv_names_what_records_name(photos, command):
    _, output, _ = command(*photos, "--model", MODEL, "--views", "Rotation(90, 3)", "--csv", "-")
    rows = [*csv.DictReader(io.StringIO(output, newline=""))]
    assert {"view", "kept", "gate_margin", "passes", "forward_passes"} <= rows[0].keys()
    assert {row["view"] for row in rows} <= {"the input", "rotated by -90 degrees", "rotated by 90 degrees"}
    assert {(row["kept"], row["gate_margin"], row["passes"], row["forward_passes"], row["norm"]) for row in rows} == {
        ("false", "", "3", "3", "")
    }


def test_a_function_may_be_typed(photos, command):
    status, output, _ = command(photos[0], "--model", MODEL, "--views", "python:torch:flip_nothing", "--json")
    assert status == 2
    status, output, _ = command(photos[0], "--model", MODEL, "--views", "python:torch:sqrt + Mirror()", "--json")
    assert status == 0
    assert json.loads(output)[0]["views"] == 3


def test_a_ball_around_views_has_both(photos, tmp_path):
    predictor = Predictor(MODEL, radius=0.05, views="Mirror()", keep_points=True)
    found = predictor(photos[0])
    assert (found.norm, found.views) == ("linf", 2)
    assert found.forward_passes < found.passes
    predictor.explain(found, tmp_path / "card.png")
    assert (tmp_path / "card.png").stat().st_size > 0


def test_the_card_shows_the_views(photos, album, command, tmp_path):
    path = tmp_path / "why.svg"
    status, output, _ = command(photos[0], "--model", MODEL, "--preset", "nature", "--gate", str(album), "--explain", str(path))
    assert status == 0
    assert f"Why: {path}" in output.replace("\n", "")
    said = path.read_text()
    for words in ("DRQ answers", "rotated by -80", "the gate: to be exceeded", "The gate "):
        assert words in said


MISTAKES = {
    ("--views", "Rotaton(90, 13)"): "views must be of Rotation",
    ("--views", "Rotation(90"): "views must be an expression",
    ("--views", "Monotone()"): "leave Monotone out of the views",
    ("--views", "Mirror()", "--gate", "MISSING"): "gate must be a folder of pictures, got 'MISSING': some hundred pictures",
    ("--views", "Mirror()", "--gate", "PICTURE"): "gate must be a folder of pictures, got",
    ("--views", "Mirror()", "--gate", "EMPTY"): "a folder must have pictures in it, got none in",
    ("--views", "Mirror()", "--gate", "BROKEN"): "path must hold a picture",
    ("--preset", "nature", "--norm", "l2"): "norm must be left out where views are looked at, not balls, got 'l2': give a radius",
    ("--preset", "upright", "--explain", "why.png", "--slice", "9"): "--slice must be left out where no ball is searched, got 9",
    ("--preset", "natur"): "did you mean nature",
}


@pytest.mark.parametrize("options", MISTAKES, ids=" ".join)
def test_a_mistake_is_one_line(options, photos, command, tmp_path):
    for name in ("EMPTY", "BROKEN"):
        (tmp_path / name).mkdir()
    (tmp_path / "BROKEN" / "a.png").write_text("no picture")
    places = {"EMPTY": str(tmp_path / "EMPTY"), "BROKEN": str(tmp_path / "BROKEN"), "PICTURE": photos[0]}
    status, output, errors = command(photos[0], "--model", MODEL, *(places.get(each, each) for each in options), "--quiet")
    assert (status, output.rstrip()) in ((2, ""), (2, "[]"))
    assert re.fullmatch(r"drq: [^\n]+\n", errors)
    assert MISTAKES[options] in errors


def test_python_is_told_the_same(album):
    refused(Predictor, MODEL, "l2", views="Mirror()", words=["norm must be left out where views are looked at"])
    refused(Predictor, MODEL, gate=str(album / "000.png"), words=["gate must be a folder of pictures"])


def test_where_no_model_is_named_all_classes_of_photographs_take_part(monkeypatch, tmp_path):
    class There:
        @staticmethod
        def place():
            return tmp_path

    monkeypatch.setattr("drq.serving.default_model.LITE0", There)
    note = "imagenet-lite0 answers, {} (--model names another)"
    assert choose_model(None, "nature", None) == ("imagenet-lite0", "nature", None, note.format("with preset nature"))
    assert choose_model(None, None, None, {"views": "Mirror()"})[1:] == (
        "paper",
        None,
        note.format("with the views that are given"),
    )
    assert choose_model(None, "nature", None, {"radius": 0.1})[:3] == ("imagenet-lite0", "nature", 10)
    assert choose_model(None, "nature", 7)[2] == 7
