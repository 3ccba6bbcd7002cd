"""``drq predict --explain``: a card for every picture, and one line where none can be drawn."""

import json

import pytest
import torch
from PIL import Image
from testbed.explained import images

import drq
from drq.commands import cli
from drq.report import card as cards

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
    monkeypatch.setattr(drq.DRQ, "slice", lambda self, decision, *given: asked.append(given) or real(self, decision, *given))
    paths = [tmp_path / "plain.png", tmp_path / "sliced.png"]
    assert command(photos[0], "--explain", str(paths[0]))[0] == 0
    assert command(photos[0], "--explain", str(paths[1]), "--slice", "5")[0] == 0
    assert asked == [(5, False)]  # and no bar, where standard error is no terminal
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
    monkeypatch.setattr(drq.DRQ, "decide", lambda self, x, *_: kept.append(self.keep_points) or decide(self, x))
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
