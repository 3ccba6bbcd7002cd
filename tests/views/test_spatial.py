"""Views that move pictures: exact where whole pixels move, and bilinear with reflected edges where not."""

import math

import numpy as np
import pytest
import torch
from scipy.ndimage import map_coordinates
from testbed.every_view import batch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from drq.views import Mirror, Rotation, Scale, Shift

SIZES = [(3, 8, 8), (1, 7, 7), (2, 6, 9), (4, 9, 4), (3, 2, 2)]
sizes = pytest.mark.parametrize("shape", SIZES, ids=str)
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def called(views, name: str):
    """The one view of a set with this name."""
    return views[views.names.index(name)]


@DTYPES
@sizes
def test_quarter_turns_move_whole_pixels(shape, dtype):
    x, square = batch(shape).to(dtype), shape[1] == shape[2]
    for views in (Rotation(180, 4), Rotation(180, 8), Rotation(180, 24)):
        half = called(views, "rotated by 180 degrees")
        assert torch.equal(half(x), x.rot90(2, (2, 3)))
        left, right = (called(views, f"rotated by {angle} degrees")(x) for angle in (90, -90))
        assert (left.shape, right.shape) == (x.shape, x.shape)
        if square:
            assert torch.equal(left, torch.rot90(x, 1, (2, 3)))
            assert torch.equal(right, torch.rot90(x, -1, (2, 3)))
            assert torch.equal(half(x), torch.rot90(x, 2, (2, 3)))
    if square:
        for views in (Rotation(90, 3), Rotation(90, 13), Rotation(90, 7)):
            assert torch.equal(called(views, "rotated by 90 degrees")(x), torch.rot90(x, 1, (2, 3)))


@DTYPES
@sizes
def test_mirrors_are_flips(shape, dtype):
    x = batch(shape).to(dtype)
    assert torch.equal(Mirror()[1](x), x.flip(-1))
    assert torch.equal((Mirror() * Rotation(180, 2))[3](x), x.flip(-2))


@DTYPES
@sizes
@pytest.mark.parametrize("pixels", [1, 3])
def test_shifts_move_whole_pixels(shape, dtype, pixels):
    """As np.pad reflects, without the edge itself; inside, pixels are those of torch.roll."""
    if min(shape[1:]) <= pixels:
        pytest.skip("too small to reflect")
    x, views = batch(shape).to(dtype), Shift(pixels, 9)
    edges = [(0, 0), (0, 0), (pixels, pixels), (pixels, pixels)]
    wide = torch.from_numpy(np.pad(x.numpy(), edges, "reflect"))
    height, width = shape[1:]
    ways = {"left": (0, -1), "right": (0, 1), "up": (-1, 0), "down": (1, 0)}
    ways |= {f"{one} and {other}": (ways[one][0], ways[other][1]) for one in ("up", "down") for other in ("left", "right")}
    assert set(views.names) == {"the input", *(f"moved {pixels} pixels {way}" for way in ways)}
    for way, (down, right) in ways.items():
        seen = called(views, f"moved {pixels} pixels {way}")(x)
        first, start = pixels - down * pixels, pixels - right * pixels
        assert torch.equal(seen, wide[:, :, first : first + height, start : start + width])
        inside = (..., slice(pixels, height - pixels), slice(pixels, width - pixels))
        assert torch.equal(seen[inside], x.roll((down * pixels, right * pixels), (2, 3))[inside])
    assert Shift(pixels).names == views.names[:5]


def resampled(x: Tensor, matrix: np.ndarray) -> Tensor:
    """Bilinear, by scipy: where a pixel comes from, as rows and columns from the centre; edges reflected outside of them."""
    height, width = x.shape[2:]
    rows, columns = np.meshgrid(np.arange(height) - (height - 1) / 2, np.arange(width) - (width - 1) / 2, indexing="ij")
    at = np.einsum("ij,jhw->ihw", matrix, np.stack([rows, columns]))
    at += np.array([(height - 1) / 2, (width - 1) / 2])[:, None, None]
    channels = [map_coordinates(each, at, order=1, mode="reflect") for each in x.flatten(0, 1).numpy()]
    return torch.from_numpy(np.stack(channels)).view_as(x)


def turned(degrees: float) -> np.ndarray:
    """Rows and columns before a turn counter-clockwise, as the eye sees it: rows go down."""
    angle = math.radians(degrees)
    return np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])


@sizes
@pytest.mark.parametrize("degrees", [7.0, -30.0, 45.0, 90.0, -90.0, 133.3, 180.0, -179.0])
def test_rotations_are_those_of_scipy(shape, degrees):
    x = batch(shape)
    for views in (Rotation(abs(degrees), 3),) if abs(degrees) < 180 else (Rotation(180, 2),):
        seen = called(views, f"rotated by {degrees:.4g} degrees")(x)
        torch.testing.assert_close(seen, resampled(x, turned(degrees)), rtol=0, atol=1e-9)


@pytest.mark.parametrize("degrees", [20.0, 90.0, 125.0])
def test_rotations_are_those_of_torch(degrees):
    """Square pictures, whose grid affine_grid knows; it gives where pixels come from as (x, y), y down."""
    x, angle = batch((3, 9, 9)), math.radians(degrees)
    turn = torch.tensor([[math.cos(angle), -math.sin(angle), 0], [math.sin(angle), math.cos(angle), 0]], dtype=torch.float64)
    grid = affine_grid(turn.expand(len(x), 2, 3), list(x.shape), align_corners=False)
    expected = grid_sample(x, grid, padding_mode="reflection", align_corners=False)
    torch.testing.assert_close(Rotation(degrees, 3)[2](x), expected, rtol=0, atol=1e-9)


@sizes
@pytest.mark.parametrize("factor", [1.25, 2.0, 5.0])
def test_scales_are_those_of_scipy(shape, factor):
    """The least and the largest; far out it is reflected again and again."""
    x, views = batch(shape), Scale(factor, 3)
    for view, grown in zip(list(views)[1:], (1 / factor, factor), strict=True):
        torch.testing.assert_close(view(x), resampled(x, np.eye(2) / grown), rtol=0, atol=1e-9)
    assert views.names == ("the input", f"enlarged {1 / factor:.3g} times", f"enlarged {factor:.3g} times")


def test_amounts_are_spread_evenly():
    assert Rotation(90, 13).amounts == tuple(float(each) for each in range(-90, 91, 15) if each)
    assert Rotation(180, 4).amounts == (90, 180, -90)
    assert Rotation(180, 5).amounts == (72, 144, -144, -72)
    assert Rotation(0.1, 3).amounts == (-0.1, 0.1)
    assert Scale(2, 5).amounts == pytest.approx((0.5, 0.5**0.5, 2**0.5, 2))
    assert len(Shift()) == 5
    assert len(Rotation()) == 13
    assert len(Scale()) == 9


@sizes
def test_nothing_leaves_what_the_picture_holds(shape):
    """Every view is made of mixtures of pixels: no clipping is needed."""
    x = batch(shape)
    low, high = x.amin((1, 2, 3), keepdim=True), x.amax((1, 2, 3), keepdim=True)
    for view in Rotation(170, 9) + Scale(4, 9) + Mirror():
        seen = view(x)
        assert ((seen >= low - 1e-12) & (seen <= high + 1e-12)).all()
        torch.testing.assert_close(view(0 * x + 0.3), 0 * x + 0.3)
