"""Pictures: what is read, and that it is what was written."""

import io
import struct
import threading
import warnings

import numpy as np
import pytest
from PIL import Image, ImageFile, JpegImagePlugin, PngImagePlugin
from PIL.TiffImagePlugin import ImageFileDirectory_v2
from testbed.pictures import BLUE, DAMAGED, RED, ROTATED, WHITE, encoded, letters, png, quarters, saved, unread

from drq import images
from drq.images import read


@pytest.mark.parametrize("kind", images.FORMATS)
def test_every_format_comes_back_as_rgb(kind, tmp_path):
    picture = read(saved(Image.new("RGB", (7, 5), RED), tmp_path / "picture", format=kind))
    assert (picture.mode, picture.size) == ("RGB", (7, 5))
    assert np.abs(np.asarray(picture).astype(int) - RED).max() <= 2  # JPEG and WebP lose a little


def test_bytes_are_read_as_files_are(tmp_path):
    path = saved(quarters(), tmp_path / "a.png")
    assert read(path.read_bytes()).tobytes() == read(path).tobytes() == read(str(path)).tobytes() == quarters().tobytes()


@pytest.mark.parametrize("orientation", ROTATED)
@pytest.mark.parametrize("kind", ["jpeg", "png", "webp", "tiff"])
def test_pictures_stand_upright(orientation, kind, tmp_path):
    exif = Image.Exif()
    exif[274] = orientation
    path = saved(quarters(), tmp_path / f"a.{kind}", exif=exif)
    assert letters(read(path)) == ROTATED[orientation]


def test_grey_pictures_of_16_bits_stand_upright_too(tmp_path):
    exif = Image.Exif()
    exif[274] = 3
    picture = Image.fromarray(np.asarray(quarters().convert("L")).astype(np.uint16) * 256)
    assert letters(read(saved(picture, tmp_path / "a.png", exif=exif))) == ROTATED[3]


@pytest.mark.parametrize("note", [DAMAGED, b"Exif\0\0garbage", b"Exif\0\0MM\0*\0\0\0\x08"], ids=["cut", "garbage", "empty"])
def test_a_damaged_note_leaves_the_picture(note, tmp_path):
    assert letters(read(saved(quarters(), tmp_path / "a.jpg", exif=note))) == ROTATED[1]


def test_a_note_that_cannot_be_read_leaves_the_picture(monkeypatch):
    def fail(_: object) -> None:
        raise SyntaxError("not a TIFF file")

    monkeypatch.setattr(JpegImagePlugin.JpegImageFile, "getexif", fail, raising=False)
    assert letters(read(encoded(quarters(), "JPEG"))) == ROTATED[1]


def test_notes_of_the_file_are_left_behind(tmp_path):
    exif = Image.Exif()
    exif[274], exif[271] = 6, "a camera"
    picture = read(saved(quarters(), tmp_path / "a.jpg", exif=exif, comment="secret"))
    assert picture.info == {}
    assert 271 not in picture.getexif()


def test_a_refusal_is_one_line():
    assert "\n" not in str(images._refusal(OSError("broken\nin two"), "'a.png'"))


def test_cmyk_of_adobe_is_not_a_negative(tmp_path):
    red = Image.new("CMYK", (8, 8), (0, 255, 255, 0))
    path = saved(red, tmp_path / "a.jpg", quality=95)
    assert b"Adobe" in path.read_bytes()
    assert np.abs(np.asarray(read(path)).astype(int) - RED).max() <= 3
    assert np.array_equal(np.asarray(read(saved(red, tmp_path / "a.tiff")))[0, 0], RED)


@pytest.mark.parametrize("kind", ["png", "tiff", "ppm"])
def test_16_bit_grey_is_scaled_not_clipped(kind, tmp_path):
    values = np.array([[0, 255, 256, 300, 32768, 65279, 65280, 65535]], dtype=np.uint16)
    picture = read(saved(Image.fromarray(values), tmp_path / f"a.{kind}"))
    assert np.asarray(picture)[0].T.tolist() == [[0, 0, 1, 1, 128, 254, 255, 255]] * 3


def test_16_bit_colour_is_scaled():
    rows = b"\0" + struct.pack(">6H", 65535, 0, 32768, 256, 512, 255)
    assert np.asarray(read(png(2, 1, 16, 2, rows))).tolist() == [[[255, 0, 128], [1, 2, 0]]]


def test_12_bit_grey_is_scaled():
    """TIFF alone has it: 4095 is white."""
    tags = ImageFileDirectory_v2(prefix=b"II")
    entries = {256: 2, 257: 1, 258: 12, 259: 1, 262: 1, 273: 0, 277: 1, 278: 1, 279: 3}  # 273: the pixels follow the tags
    for tag, value in entries.items():
        tags.tagtype[tag], tags[tag] = 4, value
    picture = read(b"II*\0" + struct.pack("<I", 8) + tags.tobytes(8) + b"\xff\xf8\x00")  # 4095 and 2048, twelve bits each
    assert np.asarray(picture)[0, :, 0].tolist() == [255, 128]


def test_other_depths_and_palettes(tmp_path):
    grey = Image.fromarray(np.array([[0, 100, 255]], dtype=np.uint8))
    assert np.asarray(read(saved(grey, tmp_path / "grey.png")))[0].tolist() == [[0] * 3, [100] * 3, [255] * 3]
    bits = Image.fromarray(np.array([[True, False]]))
    assert np.asarray(read(saved(bits, tmp_path / "bits.png")))[0].tolist() == [[255] * 3, [0] * 3]
    palette = Image.new("P", (2, 1))
    palette.putpalette([*RED, *BLUE])
    palette.putpixel((1, 0), 1)
    for name in ("palette.png", "palette.gif"):
        assert np.asarray(read(saved(palette, tmp_path / name)))[0].tolist() == [[*RED], [*BLUE]]


def test_floats_are_refused(tmp_path):
    unread(saved(Image.new("F", (3, 3), 0.5), tmp_path / "a.tiff"), "8 or 16 bits", "mode F", "PNG")
    unread(saved(Image.new("I", (3, 3), 70000), tmp_path / "b.tiff"), "8 or 16 bits", "mode I")


def test_transparent_parts_lie_on_white(tmp_path):
    half = Image.new("RGBA", (3, 1), (255, 0, 0, 255))
    half.putpixel((1, 0), (0, 0, 0, 0))
    half.putpixel((2, 0), (0, 0, 0, 51))
    expected = [[*RED], [255] * 3, [204] * 3]  # 255 * (1 - 51 / 255)
    for name in ("a.png", "a.tiff"):
        assert np.asarray(read(saved(half, tmp_path / name)))[0].tolist() == expected
    grey = Image.merge("LA", [Image.new("L", (1, 1), 0), Image.new("L", (1, 1), 51)])
    assert np.asarray(read(saved(grey, tmp_path / "grey.png")))[0, 0].tolist() == [204] * 3


def test_a_transparent_colour_lies_on_white(tmp_path):
    palette = Image.new("P", (2, 1))
    palette.putpalette([*RED, *BLUE])
    palette.putpixel((1, 0), 1)
    for name in ("a.png", "a.gif"):
        path = saved(palette, tmp_path / name, transparency=1)
        assert np.asarray(read(path))[0].tolist() == [[*RED], [*WHITE]]
    key = saved(Image.new("RGB", (2, 2), BLUE), tmp_path / "key.png", transparency=BLUE)
    assert np.asarray(read(key))[0, 0].tolist() == [*WHITE]


def test_warnings_stay_inside_and_filters_stay():
    """A TIFF with two values where one belongs makes PIL warn."""
    data = bytearray(encoded(Image.new("RGB", (4, 4), RED), "TIFF"))
    start = struct.unpack("<I", data[4:8])[0]
    for entry in range(start + 2, start + 2 + 12 * struct.unpack("<H", data[start : start + 2])[0], 12):
        if struct.unpack("<H", data[entry : entry + 2])[0] == 284:  # the planar configuration
            data[entry + 4 : entry + 8] = struct.pack("<I", 2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Image.open(io.BytesIO(bytes(data))).load()
    assert caught, "PIL no longer warns: this test needs another file"
    filters = list(warnings.filters)
    assert np.asarray(read(bytes(data)))[0, 0].tolist() == [*RED]
    assert warnings.filters == filters


def test_many_threads_read_at_once():
    data, filters, wrong = encoded(quarters(), "JPEG", exif=DAMAGED), list(warnings.filters), []

    def work() -> None:
        for _ in range(20):
            if letters(read(data)) != ROTATED[1]:
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(timeout=30)
    assert not wrong
    assert warnings.filters == filters


def test_settings_stay_as_they_were(tmp_path):
    before = Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES, PngImagePlugin.MAX_TEXT_CHUNK
    read(saved(quarters(), tmp_path / "a.png"))
    assert before == (Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES, PngImagePlugin.MAX_TEXT_CHUNK)
