"""Elements of the page: text that is escaped, and pictures in them."""

import io

import numpy as np
from PIL import Image
from testbed.refusals import refused

from drq.report.html_elements import Markup, element, image, png


def test_png_of_any_size():
    for shape in ((1, 1, 1), (3, 5, 3), (64, 1, 3)):
        pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
        np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(png(pixels)))).reshape(shape), pixels)


def test_images_of_another_kind_are_refused():
    for wrong in (np.zeros((3, 3, 3)), np.zeros((3, 3, 4), np.uint8), np.zeros((0, 3, 3), np.uint8)):
        refused(image, wrong, "a", words=["examples must be 8-bit images (H, W, C)"])


def test_text_is_escaped_and_markup_is_not():
    assert element("p", "<b>", Markup("<b></b>"), title='"') == '<p title="&quot;">&lt;b&gt;<b></b></p>'
    assert element("input", disabled=True, hidden=False, data_x=None) == "<input disabled></input>"
