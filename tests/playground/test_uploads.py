"""Pictures that people bring along: hostile ones are refused before they cost anything."""

import io
import struct
import time
import zlib

import pytest
from PIL import Image
from testbed.playing import png, uploads

from drq.errors import InputError
from drq.playground import image_sources


@pytest.mark.parametrize("name", uploads())
def test_hostile_uploads_are_refused_in_one_line(name):
    with pytest.raises(InputError) as refusal:
        image_sources.read_upload(uploads()[name])
    assert "\n" not in str(refusal.value)


def test_a_bomb_is_refused_before_it_is_decoded():
    """A small file that would fill gigabytes; reading its header takes no time and no memory."""
    began = time.perf_counter()
    with pytest.raises(InputError, match="pixels"):
        image_sources.read_upload(uploads()["bomb.png"])
    assert time.perf_counter() - began < 1


def test_a_picture_has_fewer_pixels_than_others_may_have():
    """Many people may bring pictures at once."""
    with pytest.raises(InputError, match="at most 16,000,000 pixels"):
        image_sources.read_upload(png(5000, 5000, b"\0"))


def test_a_good_upload_is_seen_as_the_model_sees_it():
    held = io.BytesIO()
    Image.new("RGB", (300, 200), (255, 0, 0)).save(held, "JPEG")
    found = image_sources.read_upload(held.getvalue())
    assert found.image.shape == (3, 32, 32)
    assert found.label is None
    assert found.image[0].min() > 0.9


def test_the_page_of_a_bomb_is_small():
    """So that the test of the bomb means something."""
    data = uploads()["bomb.png"]
    assert len(data) < 100_000
    width, height = struct.unpack(">II", data[16:24])
    assert width * height > 10**9
    assert zlib.crc32(data[12:29]) == struct.unpack(">I", data[29:33])[0]
