"""Pictures: what is read, what is refused, and the arithmetic of a view."""

import io
import os
import struct
import threading
import tracemalloc
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageFile, JpegImagePlugin, PngImagePlugin
from PIL.TiffImagePlugin import ImageFileDirectory_v2
from testbed.refusals import refused

from drq import images
from drq.errors import InputError
from drq.images import View, pixels, read

RED, BLUE, WHITE = (255, 0, 0), (0, 0, 255), (255, 255, 255)
ROTATED = {1: "AB CD", 2: "BA DC", 3: "DC BA", 4: "CD AB", 5: "AC BD", 6: "CA DB", 7: "DB CA", 8: "BD AC"}  # EXIF 2.32, tag 274


def letters(picture: Image.Image) -> str:
    """What lies in the four corners of a picture whose quarters have four levels of grey."""
    values = np.asarray(picture.convert("L"))
    corners = values[2, 2], values[2, -3], values[-3, 2], values[-3, -3]
    found = ["ABCD"[round(int(each) / 80)] for each in corners]
    return "".join(found[:2]) + " " + "".join(found[2:])


def quarters() -> Image.Image:
    values = np.kron(np.array([[0, 80], [160, 240]]), np.ones((16, 16))).astype(np.uint8)
    return Image.fromarray(values).convert("RGB")


def saved(image: Image.Image, path: Path, **options) -> Path:
    image.save(path, **options)
    return path


def encoded(image: Image.Image, kind: str, **options) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width: int, height: int, bits: int, colour: int, rows: bytes, *more: bytes) -> bytes:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(more) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def unread(path, *words: str) -> None:
    refused(read, path, words=words)


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


DAMAGED = b"Exif\0\0II*\0\x08\0\0\0\xff\xff" + b"\x12\x01" * 9  # PIL warns of it


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


def textured() -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8))


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


# The view


def gradient(width: int, height: int) -> Image.Image:
    """Every pixel tells where it lay: red its column, green its row."""
    values = np.zeros((height, width, 3), dtype=np.uint8)
    values[..., 0], values[..., 1] = np.arange(width), np.arange(height)[:, None]
    return Image.fromarray(values)


def test_a_picture_of_the_right_size_stays_as_it_is():
    picture = gradient(9, 6)
    for resize in (None, 6, (6, 9)):
        x = View(6, 9, resize)(picture)
        assert (x.shape, x.dtype) == ((3, 6, 9), torch.float32)
        assert torch.equal(x, torch.tensor(np.array(picture)).permute(2, 0, 1) / 255)
        assert x.is_contiguous()


@pytest.mark.parametrize("interpolation", images.INTERPOLATIONS)
def test_resizing_is_that_of_pil(interpolation):
    picture = textured().crop((0, 0, 61, 47))
    theirs = picture.resize((33, 25), Image.Resampling[interpolation.upper()])  # 33 >= 25 * 61 / 47 = 32.4, cut: 32
    ours = View(25, 33, (25, 33), interpolation)(picture)
    assert torch.equal(ours, torch.tensor(np.array(theirs)).permute(2, 0, 1) / 255)
    assert View(25, 32, 25, interpolation).resized(47, 61) == (25, 32)
    constant = Image.new("RGB", (61, 47), (7, 100, 250))
    values = View(20, 20, 25, interpolation)(constant).flatten(1)
    assert torch.equal(values, values[:, :1].expand_as(values))
    assert (values[:, 0] * 255).round().tolist() == [7, 100, 250]


@pytest.mark.parametrize(
    ("resize", "size", "expected"),
    [
        (256, (500, 375), (341, 256)),  # height, width: 256 * 500 / 375 = 341.3
        (256, (375, 500), (256, 341)),
        (256, (333, 333), (256, 256)),
        (5, (2, 3), (5, 7)),  # 7.5 is cut, not rounded
        (10, (1, 7), (10, 70)),
        ((5, 8), (100, 3), (5, 8)),
        (0, (100, 3), (100, 3)),
        (None, (448, 448), (224, 224)),
        (None, (500, 375), (298, 224)),  # 298.7
        (None, (375, 500), (224, 298)),
        (None, (1, 1000), (224, 224_000)),
    ],
)
def test_the_size_before_the_crop(resize, size, expected):
    assert View(224, 224, resize).resized(*size) == expected


def test_the_smallest_resize_covers_the_crop():
    for height in range(1, 40):
        for width in range(1, 40):
            tall, wide = View(13, 21).resized(height, width)
            assert tall >= 13
            assert wide >= 21
            assert tall == 13 or wide == 21


@pytest.mark.parametrize(
    ("size", "crop", "first"),
    [(10, 10, 0), (10, 8, 1), (10, 9, 0), (10, 7, 2), (11, 8, 2), (13, 8, 2), (256, 224, 16), (255, 224, 16), (257, 224, 16)],
)
def test_where_the_crop_begins(size, crop, first):
    """int(round(left over / 2)) with Python's rounding to even: 1 -> 0, 3 -> 2, 5 -> 2, 31 -> 16, 33 -> 16."""
    picture = gradient(256 if size > 256 else size, 4).resize((size, 4), Image.Resampling.NEAREST)
    x = View(4, crop, (4, size))(picture) * 255
    assert x[0, 0, 0] == first
    y = View(crop, 4, (size, 4))(picture.transpose(Image.Transpose.TRANSPOSE)) * 255
    assert y[0, 0, 0] == first


@pytest.mark.parametrize(("size", "crop", "first"), [(10, 10, 0), (10, 8, 1), (10, 7, 1), (13, 8, 2), (255, 224, 15)])
def test_where_the_crop_of_transformers_begins(size, crop, first):
    """(left over) // 2: 3 -> 1, 5 -> 2, 31 -> 15."""
    assert View(4, crop, (4, size), rounded_down=True)(gradient(size, 4))[0, 0, 0] * 255 == first


@pytest.mark.parametrize(("size", "crop", "before"), [(4, 6, 1), (4, 7, 1), (4, 5, 0)])
def test_what_is_too_small_is_padded_with_black(size, crop, before):
    x = View(crop, crop, (size, size))(Image.new("RGB", (size, size), WHITE))
    expected = torch.zeros(3, crop, crop)
    expected[:, before : before + size, before : before + size] = 1
    assert torch.equal(x, expected)


def test_padded_one_way_and_cropped_the_other():
    x = View(4, 6, (7, 4))(gradient(4, 7)) * 255
    assert x[0, 0].tolist() == [0, 0, 1, 2, 3, 0]
    assert x[1, :, 2].tolist() == [2, 3, 4, 5]  # (7 - 4) / 2 = 1.5 -> 2


@pytest.mark.parametrize("size", [(300, 401), (224, 224), (223, 500), (640, 480)])
@pytest.mark.parametrize("resize", [256, 224, 200, (256, 250)])
def test_the_arithmetic_is_that_of_torchvision(size, resize):
    transforms = pytest.importorskip("torchvision.transforms", reason="torchvision is not installed")
    picture = textured().resize(size)
    size_only = list(resize) if isinstance(resize, tuple) else resize
    theirs = transforms.CenterCrop(224)(transforms.Resize(size_only)(picture))
    assert torch.equal(View(224, 224, resize)(picture), transforms.functional.to_tensor(theirs))


def test_one_channel_is_grey():
    picture = Image.new("RGB", (4, 4), (100, 150, 200))
    x = View(2, 2, channels=1)(picture)
    assert x.shape == (1, 2, 2)
    assert x[0, 0, 0] * 255 == pytest.approx(0.299 * 100 + 0.587 * 150 + 0.114 * 200, abs=0.5)  # ITU-R 601


def test_other_pictures_become_rgb():
    assert pixels(Image.new("L", (2, 3), 51)).shape == (1, 3, 2)
    assert pixels(Image.new("RGBA", (2, 3), (0, 0, 0, 0))).flatten().tolist() == [1.0] * 18
    assert torch.equal(View(3, 2)(Image.new("L", (2, 3), 51)), torch.full((3, 3, 2), 0.2))


def test_no_resize_fills_the_memory():
    with pytest.raises(InputError, match=r"at most 64,000,000 pixels once resized, got one of 60000 x 1"):
        View(224, 224, 256)(Image.new("RGB", (60_000, 1)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"height": 0}, "height must be a whole number above 0, got 0"),
        ({"width": 2.5}, "width must be a whole number above 0, got 2.5"),
        ({"width": True}, "width must be a whole number above 0, got True"),
        ({"resize": -1}, "resize must be a whole number, two above 0 or None, got -1"),
        ({"resize": (3, 0)}, "two above 0 or None, got (3, 0)"),
        ({"resize": (3,)}, "two above 0 or None"),
        ({"resize": [3, 4]}, "two above 0 or None"),
        ({"resize": "256"}, "two above 0 or None"),
        ({"interpolation": "cubic"}, "interpolation must be one of nearest, bilinear, bicubic"),
        ({"channels": 4}, "channels must be 3 or 1, got 4"),
    ],
)
def test_mistakes_in_a_view(arguments, message):
    with pytest.raises(InputError) as caught:
        View(**({"height": 8, "width": 8} | arguments))
    assert message in str(caught.value)


def test_a_view_takes_pictures_only():
    with pytest.raises(InputError, match=r"picture must be a PIL image, got ndarray: drq.images.read"):
        View(8, 8)(np.zeros((8, 8, 3)))
