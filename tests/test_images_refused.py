"""Pictures that are refused: what is none, half of one, too large, or more than one."""

import os
import tracemalloc
import zlib

import pytest
from PIL import Image, ImageFile
from testbed.pictures import BLUE, RED, WHITE, chunk, encoded, png, quarters, saved, textured, unread

from drq import images
from drq.images import read


def test_what_is_no_file(tmp_path):
    unread(tmp_path / "nothing.png", "nothing.png", "does not exist")
    unread(tmp_path, "a folder")
    unread("no\0name", "does not exist")
    unread(tmp_path / ("x" * 5000), "can be read")
    (tmp_path / "empty.png").touch()
    unread(tmp_path / "empty.png", "empty.png", "0 bytes")
    os.mkfifo(tmp_path / "pipe")
    unread(tmp_path / "pipe", "device or pipe")


def test_what_is_no_picture(tmp_path):
    (tmp_path / "a\nb.png").write_bytes(b"not a picture at all")
    unread(tmp_path / "a\nb.png", "a\\nb.png", "no such format", "JPEG, PNG")
    for other in ("ICO", "TGA", "PCX"):
        unread(encoded(Image.new("RGB", (16, 16)), other), "no such format")


@pytest.mark.parametrize("kind", images.FORMATS)
@pytest.mark.parametrize("share", [0.02, 0.3, 0.9])
def test_half_a_picture_is_refused(kind, share):
    data = encoded(textured(), kind)
    assert read(data).size == (64, 64)
    unread(data[: int(len(data) * share)], "path must hold a")


def test_half_a_picture_is_refused_whatever_the_process_has_set(monkeypatch):
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    data = encoded(textured(), "JPEG")
    unread(data[: len(data) // 2], "LOAD_TRUNCATED_IMAGES must be False")


def test_a_wrong_checksum_is_refused():
    data = bytearray(encoded(textured(), "PNG"))
    data[len(data) // 2] ^= 255
    unread(bytes(data), "whole picture")


@pytest.mark.parametrize(("width", "height"), [(8001, 8000), (12_000, 12_000), (40_000, 40_000)])
@pytest.mark.parametrize("limit", [None, 1000, 89_478_485])
def test_bombs_are_refused_from_the_header(width, height, limit, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    data = png(width, height, 8, 2, b"")
    tracemalloc.start()
    unread(data, "at most 64,000,000 pixels", "smaller")
    assert tracemalloc.get_traced_memory()[1] < 2**22
    tracemalloc.stop()
    assert limit == Image.MAX_IMAGE_PIXELS


def test_the_largest_picture_is_not_refused_by_its_header():
    unread(png(8000, 8000, 8, 2, b""), "whole picture")  # past the limit of pixels: it is only truncated


@pytest.mark.parametrize("kind", [b"zTXt", b"iCCP"])
def test_bombs_of_text_are_refused(kind):
    bomb = zlib.compress(b"\0" * 2**24)
    assert len(bomb) < 2**15
    data = png(1, 1, 8, 0, b"\0\0", chunk(kind, b"a\0\0" + bomb))
    tracemalloc.start()
    unread(data, "path must hold a whole picture", "too large")
    assert tracemalloc.get_traced_memory()[1] < 2**22
    tracemalloc.stop()


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "TIFF"])
def test_animations_and_pages_are_refused(kind):
    frames = [Image.new("RGB", (8, 8), colour) for colour in (RED, BLUE, WHITE)]
    unread(encoded(frames[0], kind, save_all=True, append_images=frames[1:]), "single picture", "3 frames or pages", "PNG")
    assert read(encoded(frames[0], kind, save_all=True)).size == (8, 8)


def test_the_preview_of_a_camera_is_no_second_picture():
    data = encoded(Image.new("RGB", (8, 8), RED), "MPO", save_all=True, append_images=[Image.new("RGB", (4, 4), BLUE)])
    picture = read(data)
    assert picture.size == (8, 8)
    assert picture.getpixel((0, 0))[0] > 250


def test_large_files_are_refused_unread(tmp_path):
    with (tmp_path / "a.bmp").open("wb") as file:
        file.truncate(images.BYTES + 1)  # no space is taken
    unread(tmp_path / "a.bmp", "at most 536,870,912 bytes")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_files_without_the_right_to_read(tmp_path):
    path = saved(quarters(), tmp_path / "a.png")
    path.chmod(0)
    unread(path, "can be read")


def test_without_pillow(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "PIL.Image", None)
    unread("a.png", "pip install pillow")
