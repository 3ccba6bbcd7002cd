"""The arithmetic of a view: how a picture becomes the input of a model."""

import numpy as np
import pytest
import torch
from PIL import Image
from testbed.pictures import WHITE, textured

from drq import images
from drq.errors import InputError
from drq.images import View, pixels


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
